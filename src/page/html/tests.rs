use flex_core::claim::progress::Progress;
use flex_core::config::Problem;
use flex_core::config::classes::Verdict;
use flex_core::findings::{Finding, FindingKind, Severity};
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;

use super::claims::{claim, claims};
use super::lists::{configs, failures, findings, line_number};
use super::overview::{overview as front, size};
use super::runs::runs;
use super::*;
use crate::class_health::health::Health;
use crate::overview::{self, PoolRow, RecipeRow};
use crate::page::model::claims::{
    AttemptRow, ClaimRow, ClaimsInFlight, EarlierAttempts, EventRow, NextStage, OneClaim, StageRow,
};
use crate::page::model::configs::{ConfigRow, Configs};
use crate::page::model::failures::{FailureRow, Failures, NextTry};
use crate::page::model::findings::Findings;
use crate::page::model::overview::{ClassRow, Hour, Overview, Policies};
use crate::page::model::runs::{RunRow, Runs};
use crate::page::model::{Counts, message, name};

const NOW: i64 = 1_790_000_060;

fn document<B>(body: B) -> Document<B> {
    let head = Head {
        version: "0.1.0",
        provisioner: "flex-provisioner.io".into(),
        instance: "default".into(),
        namespace: "flex-provisioner".into(),
        replica: "flex-1".into(),
        leads: true,
        leader: Some("flex-1".into()),
        is_ready: true,
        at: NOW,
        uptime: 3700,
        counts: Counts { claims: 2, runs: 1, failures: 1, findings: 1, configs: 2, refused: 1 },
    };
    Document { head, body }
}

/// Texts that would be markup, leave an attribute, run a script, or turn the direction of reading.
fn hostile() -> Vec<String> {
    let texts = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "javascript:alert(1)",
        "</title></svg></bdi><h1>",
        "a\u{202e}gnp.exe",
        "&lt;b&gt;",
    ];
    texts.map(str::to_owned).into_iter().chain(["x".repeat(5000)]).collect()
}

fn row(text: &str) -> ClaimRow {
    let stage = |stage, after_ms, took_ms| StageRow { stage, after_ms, took_ms, worker: "the orchestrator" };
    ClaimRow {
        namespace: name(text),
        name: name(text),
        class: name(text),
        state: "Running",
        attempt: 1,
        created: NOW - 60,
        age_ms: 60_000,
        stages: vec![stage("stamped", 400, 400), stage("job-created", 20_000, 19_600)],
        next: Some(NextStage { stage: "scheduled", worker: "the scheduler", for_ms: 40_000 }),
        waits_for: None,
        expected_end: Some(NOW + 12),
    }
}

fn failure(text: &str) -> FailureRow {
    FailureRow {
        kind: "claim",
        namespace: name(text),
        name: name(text),
        class: name(text),
        operation: "provision",
        attempt: 2,
        at: NOW - 30,
        cause: name(text),
        message: message(text),
        next: NextTry::At { at: NOW + 90 },
    }
}

fn run(text: &str) -> RunRow {
    RunRow {
        operation: "delete".into(),
        object: Some(name(text)),
        members: 1,
        class: name(text),
        attempt: 1,
        job: name(text),
        node: Some(name(text)),
        began: NOW - 9,
        age_ms: 9000,
        stages: vec![StageRow { stage: "job-created", after_ms: 2000, took_ms: 2000, worker: "the orchestrator" }],
        next: Some(NextStage { stage: "scheduled", worker: "the scheduler", for_ms: 7000 }),
    }
}

fn attempt(text: &str) -> AttemptRow {
    let stages = vec![StageRow { stage: "failed", after_ms: 1500, took_ms: 1500, worker: "the image" }];
    AttemptRow { attempt: 1, stages, reason: name(text), message: message(text), ended: NOW - 60 }
}

fn class(text: &str) -> ClassRow {
    let recipe = RecipeRow {
        version: text.into(),
        max_in_flight: 10,
        max_volumes: Some(9),
        max_bytes: Some(10 << 30),
        ..RecipeRow::default()
    };
    let row = overview::ClassRow {
        name: text.into(),
        provisioner: text.into(),
        has_object: true,
        waits_for_consumer: true,
        last_good: true,
        recipe: Ok(recipe),
        health: Health::default(),
        verdict: text.into(),
        claims: [(Progress::Waiting, 3), (Progress::Refused, 1)].into(),
        runs: Some(2),
        used_volumes: 7,
        used_bytes: 7 << 30,
        most_volumes: None,
        most_bytes: None,
        last_minute: 0,
        last_hour: 0,
        pools: vec![PoolRow { size: 1 << 30, ready: 3, low: 2, high: 5 }],
    };
    ClassRow { row, hour: Hour::default() }
}

/// Returns all pages about objects with a text.
fn pages(text: &str) -> Vec<(&'static str, String)> {
    let one = OneClaim {
        row: ClaimRow { waits_for: Some(message(text)), ..row(text) },
        size: Some("1Gi".into()),
        volume: Some(name(text)),
        node: Some(name(text)),
        job: Some(name(text)),
        failure: Some(failure(text)),
        earlier: EarlierAttempts { attempts: vec![attempt(text)], left_out: 2 },
        events: vec![EventRow { reason: name(text), message: message(text), warning: true, count: 3, at: NOW - 5 }],
        unseen: vec![message(text)],
    };
    let finding = Finding {
        kind: FindingKind::AccountMissing,
        severity: Severity::Error,
        meaning: "a config names a ServiceAccount that does not exist",
        object: ObjectRef { kind: "ConfigMap", name: ObjectName::new("", text), uid: String::new() },
        since: Some(NOW - 500),
        detail: text.into(),
        remedy: text.into(),
        removal: None,
    };
    let problem = Problem { key: text.into(), message: text.into() };
    let config = ConfigRow {
        config: ObjectName::new(text, text),
        verdict: Verdict { problems: vec![problem], classes: vec![text.into()], ..Verdict::default() },
    };
    let policies = Policies { unknown: Some(message(text)), ..Policies::default() };
    let found = Findings { swept_at: Some(NOW - 100), interval: Some(600), findings: Rows::cut(vec![finding]) };
    let mut standby = document(Overview { classes: vec![class(text)], policies, queue: 0, runs: 2 });
    standby.head.leads = false;
    standby.head.leader = Some(name(text));
    vec![
        ("overview", front(&standby)),
        ("claims", claims(&document(ClaimsInFlight { claims: Rows { rows: vec![row(text)], more: 3 } }))),
        ("claim", claim(&document(one))),
        ("runs", runs(&document(Runs { runs: Rows { rows: vec![run(text)], more: 1 } }))),
        ("failures", failures(&document(Failures { failures: Rows::cut(vec![failure(text)]) }))),
        ("findings", findings(&document(found))),
        ("configs", configs(&document(Configs { configs: Rows::cut(vec![config]) }))),
    ]
}

/// Returns the names of all elements and attributes of a page, in their order.
fn markup(page: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), page);
    while let Some((_, after)) = rest.split_once('<') {
        let mut tag = String::new();
        let mut in_value = false;
        let end = after.char_indices().find(|(_, c)| {
            in_value ^= *c == '"';
            if !in_value && *c != '"' && *c != '>' {
                tag.push(*c);
            }
            *c == '>' && !in_value
        });
        found.push(tag);
        rest = &after[end.expect("each tag ends").0..];
    }
    found
}

#[test]
fn no_text_of_a_tenant_is_markup() {
    for (page, harmless) in pages("plain") {
        for text in hostile() {
            let (_, html) = pages(&text).into_iter().find(|(name, _)| *name == page).unwrap();
            assert_eq!(markup(&html), markup(&harmless), "{page} of {text}");
            assert!(!html.contains('\u{202e}'), "{page} of {text}");
            assert!(!html.contains("href=\"javascript:"), "{page} of {text}");
            assert!(html.len() < 32_000, "{page} of {text} has {} bytes", html.len());
        }
    }
}

#[test]
fn pages_about_hostile_objects() {
    let text = hostile()[1].clone();
    for (name, html) in pages(&text) {
        insta::assert_snapshot!(name, html.replace("><", ">\n<"));
    }
}

#[test]
fn links_to_claims_are_paths_of_this_server() {
    for text in hostile() {
        let path = claim_path(&text, &text);
        assert!(path.starts_with("/claims/") && path.matches('/').count() == 3, "{path}");
        assert!(path.chars().all(|c| c.is_ascii_alphanumeric() || "/%-_.~".contains(c)), "{path}");
    }
}

#[test]
fn empty_lists_say_so() {
    let none = [
        front(&document(Overview::default())),
        claims(&document(ClaimsInFlight::default())),
        failures(&document(Failures::default())),
        findings(&document(Findings { swept_at: Some(NOW), interval: Some(600), ..Findings::default() })),
        configs(&document(Configs::default())),
    ];
    for page in none {
        assert!(page.contains("class=\"nothing\""), "{page}");
    }
    let off = findings(&document(Findings::default()));
    assert!(off.contains("--sweep-interval is off"), "{off}");
}

#[test]
fn a_line_is_found_where_the_message_names_one() {
    for (message, line) in [
        ("is not YAML: line 3 column 5: expected a mapping", Some(3)),
        ("at line 12, column 1", Some(12)),
        ("an online 3 check", None),
        ("line of text", None),
        ("line 0", None),
        ("line 99999999999999999999", None),
        ("", None),
    ] {
        assert_eq!(line_number(message), line, "{message}");
    }
}

#[test]
fn times_are_short() {
    for (milliseconds, text) in [(-1, "0 ms"), (999, "999 ms"), (1000, "1.0 s"), (59_999, "59.9 s"), (90_000, "90s")] {
        assert_eq!(span(milliseconds), text);
    }
}

#[test]
fn sizes_have_one_digit_behind_the_point() {
    for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (7 << 30, "7 GiB"), (u64::MAX, "16 EiB")] {
        assert_eq!(size(bytes), text);
    }
}

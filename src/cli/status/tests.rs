//! Tests of the overview.

use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::args::Form;
use super::text::Drawing;
use super::*;
use crate::class_health::health::Health;
use crate::class_health::row::{Row, failing};
use crate::class_health::testing::{config, failed, identity, made, one_class};
use crate::model::volume::Volume;
use crate::policies;
use crate::state::index::{Index, WatchChange};

fn bound(name: &str) -> Row {
    Row {
        claim: format!("team/{name}"),
        class: "c".into(),
        state: "Bound",
        attempt: 1,
        age: 1,
        created: 1,
        running: None,
        failure: None,
        next_try: None,
        waits_for: None,
    }
}

#[test]
fn a_class_fails_if_its_last_known_attempt_failed() {
    let retry = |name: &str, created, at| failed(name, created, Reaction::Retry, at, "the array is off");
    let never = |name: &str, created, at| failed(name, created, Reaction::Never, at, "too large");
    let deletes = || {
        let mut row = retry("a", 100, 200);
        row.failure.as_mut().unwrap().operation = Operation::Delete;
        row
    };
    let deleting = || Row { state: "Deleting", ..retry("a", 100, 200) };
    let unadopted = || Arc::new(Volume { adoption_mark: None, ..Volume::clone(&made("c", 300)) });
    for (what, rows, volumes, expected) in [
        ("nothing is known", vec![], vec![], None),
        ("all is well", vec![bound("b")], vec![made("c", 100)], None),
        ("one fails from the first", vec![retry("a", 100, 200)], vec![], Some((1, "team/a"))),
        ("two fail", vec![retry("a", 1, 9), retry("b", 2, 8)], vec![made("other", 99)], Some((2, "team/a"))),
        (
            "it fails since a volume was made",
            vec![bound("b"), retry("a", 1, 9)],
            vec![made("c", 8)],
            Some((1, "team/a")),
        ),
        ("a volume was made since it failed", vec![retry("a", 1, 9)], vec![made("c", 10)], None),
        ("another can never be made", vec![never("a", 5, 90)], vec![made("c", 50)], None),
        ("nothing was made since it was asked for", vec![never("a", 60, 90)], vec![made("c", 50)], Some((1, "team/a"))),
        ("what was made did not fit", vec![retry("a", 100, 200)], vec![unadopted()], Some((1, "team/a"))),
        ("a deletion fails", vec![deletes()], vec![], None),
        ("its user deletes it", vec![deleting()], vec![], None),
    ] {
        let found = failing("c", &rows, &volumes);
        let says = found.as_ref().map(|found| (found.claims, found.last.split(':').next().unwrap()));
        assert_eq!(says, expected, "{what}");
    }
}

#[test]
fn the_state_of_a_failing_class_has_the_number_of_claims_and_the_last_message() {
    let table = one_class(json!({ "service-account-name": "c" }));
    let class = table.iter().next().expect("the config names a class");
    let says = |rows: &[Row]| Health::of("c", &table, rows, &[]).verdict(class);
    assert_eq!(says(&[bound("a")]), "ok");
    let row = |name: &str, texts: &str| failed(name, 1, Reaction::Retry, 9, texts);
    assert_eq!(says(&[row("a", "exit code 75: off")]), "failing: 1 claim, last team/a: ExitCode: exit code 75: off");
    let long = says(&[row("a", &"x".repeat(1000)), row("b", &"x".repeat(1000))]);
    assert!(long.starts_with("failing: 2 claims, last team/") && long.len() < 250, "{long}");
}

/// The time of the tests, in seconds since 1970.
const NOW: i64 = 1_800_000_000;

fn time(ago: i64) -> String {
    jiff::Timestamp::from_second(NOW - ago).unwrap().to_string()
}

/// Returns a claim of a class that was created so many seconds ago, with these annotations.
fn claim(name: &str, class: &str, ago: i64, annotations: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "team", "uid": name, "creationTimestamp": time(ago) },
        "spec": { "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Pending" },
    });
    claim["metadata"]["annotations"] = annotations.clone();
    serde_json::from_value(claim).unwrap()
}

fn stamped(claim: &str, attempt: u32) -> Value {
    json!({
        names::CLAIM_UID: claim, names::ATTEMPT: attempt.to_string(), names::LABEL_INSTANCE: "default",
        names::PROVISION_TS: time(3), names::RECIPE_VERSION: "admin/gold@1",
    })
}

/// Returns a cluster with classes of all states, and claims in progress.
fn cluster() -> Index {
    let mut index = Index::new(identity(), Clock::default());
    let keys = json!({ "service-account-name": "gold", "max-in-flight": "4", "max-volumes": "3", "zone": "west" });
    for config in [config("gold", keys), config("broken", json!({ "timeout": "soon" }))] {
        index.change_config(WatchChange::Apply(config));
    }
    let failure = json!({
        "operation": "provision", "attempt": 3, "at": NOW - 5, "kind": "retry", "reason": "ExitCode",
        "message": "exit code 75: the array is\n\u{1b}[31mswitched off",
    });
    let mut failed = stamped("fails", 3);
    failed[names::FAILURE] = json!(failure.to_string());
    for claim in [
        claim("waits", "gold", 400, &json!({})),
        claim("runs", "gold", 7, &stamped("runs", 1)),
        claim("fails", "gold", 60, &failed),
        claim("of-another", "other", 60, &json!({})),
        claim("cannot", "broken", 60, &json!({})),
    ] {
        index.change_claim(WatchChange::Apply((&claim).into()));
    }
    index
}

fn surroundings() -> Surroundings {
    Surroundings {
        leader: Ok("flex-1 leads".into()),
        capacities: Ok(Vec::new()),
        policies: Ok(policies::states(&[])),
        unseen_configs: Vec::new(),
    }
}

/// Returns the overview of the cluster in a form.
fn shown(form: Form, class: Option<&str>, drawing: Drawing) -> String {
    let (index, surroundings, identity) = (cluster(), surroundings(), identity());
    let sources = Sources { identity: &identity, surroundings: &surroundings, without_jobs: None };
    form.text(&Overview::of(&index, &sources, class, NOW), class, drawing).unwrap()
}

#[test]
fn the_overview_shows_classes_and_claims() {
    insta::assert_snapshot!("overview", shown(Form::Table, None, Drawing::default()));
    insta::assert_snapshot!("wide", shown(Form::Wide, None, Drawing { wide: true, ..Drawing::default() }));
    insta::assert_snapshot!("names", shown(Form::Name, None, Drawing::default()));
}

#[test]
fn one_class_is_shown_with_its_limits() {
    insta::assert_snapshot!("class", shown(Form::Table, Some("gold"), Drawing::default()));
}

#[test]
fn yaml_has_the_same_content_as_json() {
    let json: Value = serde_json::from_str(&shown(Form::Json, None, Drawing::default())).unwrap();
    let yaml: Value = serde_saphyr::from_str(&shown(Form::Yaml, None, Drawing::default())).unwrap();
    assert_eq!(json, yaml);
    insta::assert_json_snapshot!("json", json["classes"]);
}

#[test]
fn a_picture_has_a_limited_number_of_claims_and_those_that_fail_come_first() {
    let picture = shown(Form::Table, None, Drawing { claims: Some(1), ..Drawing::default() });
    let claims = picture.split("\nCLAIM ").nth(1).unwrap();
    let lines: Vec<_> = claims.lines().take(3).collect();
    assert!(lines[1].starts_with("team/fails ") && lines[2] == "… and 3 more", "{picture}");
}

#[test]
fn colours_are_only_added() {
    let plain = shown(Form::Table, None, Drawing::default());
    let coloured = shown(Form::Table, None, Drawing { coloured: true, ..Drawing::default() });
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
    assert!(coloured.len() > plain.len() && !plain.contains('\u{1b}'), "{plain:?}");
}

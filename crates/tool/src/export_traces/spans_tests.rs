use std::collections::{BTreeMap, BTreeSet};

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::timeline::Stage;
use flex_core::run::failure::LastFailure;
use flex_core::run::state::Cause;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::*;

const CREATED: i64 = 1_790_000_000;
const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn timeline(attempt: u32, reached: &[(Stage, i64)]) -> Timeline {
    let mut timeline = Timeline::new(attempt, CREATED * 1000);
    reached.iter().for_each(|(stage, after)| timeline.reach(*stage, CREATED * 1000 + after));
    timeline
}

/// Returns a number of attempts that failed, one each 10 s.
fn failed(number: u32) -> FailedAttempts {
    (1..=number).fold(FailedAttempts::default(), |all, attempt| {
        let begin = i64::from(attempt) * 10_000;
        let reached = [(Stage::Stamped, begin), (Stage::JobCreated, begin + 1000), (Stage::Failed, begin + 4000)];
        let at = CREATED + i64::from(attempt) * 10 + 4;
        let cause = Cause::new("ExitCode", "exit code 75: busy");
        let failure = LastFailure::of_deleting_run(Operation::Provision, attempt, at, &cause, None);
        all.with(timeline(attempt, &reached), &LastFailure { reaction: Reaction::Retry, ..failure })
    })
}

/// Returns a claim whose attempts failed, and that is bound then.
fn ended(failures: u32, bound: Option<&Timeline>) -> Ended {
    let mut annotations = json!({ names::CLAIM_UID: UID, names::ATTEMPT: "1" });
    if failures > 0 {
        annotations[names::FAILED_ATTEMPTS] = json!(failed(failures).to_string());
    }
    let mut spec = json!({ "storageClassName": "gold" });
    if let Some(bound) = bound {
        annotations[names::TIMELINE] = json!(bound.to_string());
        spec["volumeName"] = json!("pvc-u");
    }
    let created = jiff::Timestamp::from_second(CREATED).unwrap().to_string();
    let object = json!({
        "metadata": { "name": "data", "namespace": "team", "uid": UID, "creationTimestamp": created, "annotations": annotations },
        "spec": spec, "status": { "phase": if bound.is_some() { "Bound" } else { "Pending" } },
    });
    Ended::of(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap()).expect("an attempt has ended")
}

fn bound(attempt: u32, begin: i64) -> Timeline {
    timeline(attempt, &[(Stage::Stamped, begin), (Stage::JobCreated, begin), (Stage::Bound, begin + 2000)])
}

/// Writes spans as lines: name, seconds after the creation, name of the parent, status.
fn lines(spans: &[Span]) -> Vec<String> {
    let names: BTreeMap<_, _> = spans.iter().map(|span| (span.span_id.clone(), span.name.clone())).collect();
    let seconds = |at: u64| i64::try_from(at / 1_000_000_000).unwrap() - CREATED;
    let line = |span: &Span| {
        let parent = names.get(&span.parent_span_id).map_or("nothing", String::as_str);
        let error = span.status.as_ref().map_or(String::new(), |status| format!(", {}", status.message));
        let (from, to) = (seconds(span.start_time_unix_nano), seconds(span.end_time_unix_nano));
        format!("{} {from}-{to} below {parent}{error}", span.name)
    };
    spans.iter().map(line).collect()
}

#[test]
fn a_claim_is_a_trace_with_a_span_for_each_attempt_and_stage() {
    let claim = ended(1, Some(&bound(2, 20_000)));
    let spans = spans(&[claim]);
    assert_eq!(
        lines(&spans),
        [
            "stamped 0-10 below provision volume",
            "attempt 10-14 below provision volume, ExitCode: exit code 75: busy",
            "job-created 10-11 below attempt",
            "failed 11-14 below attempt",
            "stamped 14-20 below provision volume",
            "attempt 20-22 below provision volume",
            "job-created 20-20 below attempt",
            "bound 20-22 below attempt",
            "provision volume 0-22 below nothing",
        ]
    );
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len(), "each span has an id of its own");
    assert!(ids.iter().all(|id| id.len() == 8));
    let uid = UID.replace('-', "");
    let trace: String = spans[0].trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(trace, uid, "the trace has the UID of the claim");
    let attributes: BTreeMap<_, _> = spans[1]
        .attributes
        .iter()
        .map(|pair| (pair.key.as_str(), pair.value.clone().unwrap().value.unwrap()))
        .collect();
    for (key, value) in [
        ("k8s.namespace.name", "team"),
        ("k8s.persistentvolumeclaim.name", "data"),
        ("k8s.persistentvolumeclaim.uid", UID),
        ("k8s.persistentvolume.name", "pvc-u"),
        ("k8s.storageclass.name", "gold"),
        ("error.type", "ExitCode"),
    ] {
        assert_eq!(attributes[key], Value::StringValue(value.into()), "{key}");
    }
    assert_eq!(attributes["flex_provisioner.attempt"], Value::IntValue(1));
}

#[test]
fn a_repeated_export_has_the_same_ids() {
    let first = spans(&[ended(2, None)]);
    let later = spans(&[ended(3, Some(&bound(4, 40_000)))]);
    let ids = |spans: &[Span]| spans.iter().map(|span| span.span_id.clone()).collect::<BTreeSet<_>>();
    assert!(ids(&later).is_superset(&ids(&first)) && !first.is_empty());
}

#[test]
fn an_attempt_that_was_sent_is_not_sent_again() {
    let claim = Ended { sent: 2, ..ended(3, Some(&bound(4, 40_000))) };
    let attempts: Vec<_> = lines(&spans(&[claim])).into_iter().filter(|line| line.starts_with(ATTEMPT)).collect();
    let expected =
        ["attempt 30-34 below provision volume, ExitCode: exit code 75: busy", "attempt 40-42 below provision volume"];
    assert_eq!(attempts, expected);
}

#[test]
fn the_claim_itself_is_a_span_when_it_is_bound() {
    let spans = lines(&spans(&[ended(1, None)]));
    assert_eq!(spans.first().map(String::as_str), Some("stamped 0-10 below nothing"), "the parent follows");
    assert!(!spans.iter().any(|span| span.starts_with(CLAIM)));
}

#[test]
fn attempts_that_are_left_out_are_counted_and_not_taken_for_a_delay() {
    let spans = spans(&[ended(20, Some(&bound(21, 210_000)))]);
    let lines = lines(&spans);
    let waits: Vec<_> = lines.iter().filter(|line| line.starts_with("stamped ")).cloned().collect();
    let expected = ["0-10", "14-20", "174-180", "184-190", "194-200", "204-210"];
    assert_eq!(waits, expected.map(|times| format!("stamped {times} below provision volume")));
    let whole = spans.last().unwrap();
    assert!(whole.attributes.contains(&number("flex_provisioner.attempts.failed", 20)), "{whole:?}");
}

#[test]
fn a_pooled_volume_has_no_stages() {
    let spans = lines(&spans(&[ended(0, Some(&timeline(0, &[(Stage::Bound, 3000)])))]));
    assert_eq!(spans, ["take pooled volume 0-3 below provision volume", "provision volume 0-3 below nothing"]);
}

#[test]
fn a_claim_without_an_ended_attempt_or_with_the_timeline_of_another_is_not_sent() {
    let object = |annotations: serde_json::Value| {
        let created = jiff::Timestamp::from_second(CREATED + 60).unwrap().to_string();
        let metadata = json!({
            "name": "data", "namespace": "team", "uid": UID, "creationTimestamp": created, "annotations": annotations,
        });
        serde_json::from_value::<PersistentVolumeClaim>(json!({ "metadata": metadata, "spec": {} })).unwrap()
    };
    let stamp = json!({ names::CLAIM_UID: UID, names::ATTEMPT: "1" });
    assert!(Ended::of(&object(json!({}))).is_none() && Ended::of(&object(stamp.clone())).is_none());
    let mut copied = stamp;
    copied[names::TIMELINE] = json!(bound(1, 0).to_string());
    assert!(Ended::of(&object(copied)).is_none());
}

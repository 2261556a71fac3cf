use flex_contract::exit::Reaction;
use flex_contract::reason;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use proptest::prelude::*;
use serde_json::json;
use strum::IntoEnumIterator as _;

use super::*;

const CREATED: i64 = 1_790_000_000;

fn failure(attempt: u32, message: &str) -> LastFailure {
    let (operation, reaction) = (Operation::Provision, Reaction::Retry);
    let cause = Cause::new("ExitCode", message);
    let base = LastFailure::of_deleting_run(operation, attempt, CREATED + i64::from(attempt), &cause, None);
    LastFailure { reaction, ..base }
}

fn timeline(attempt: u32) -> Timeline {
    let mut timeline = Timeline::new(attempt, CREATED * 1000);
    timeline.reach(Stage::Stamped, CREATED * 1000 + i64::from(attempt) * 500);
    timeline.reach(Stage::Failed, (CREATED + i64::from(attempt)) * 1000);
    timeline
}

fn failed(numbers: impl IntoIterator<Item = u32>) -> FailedAttempts {
    numbers
        .into_iter()
        .fold(FailedAttempts::default(), |all, number| all.with(timeline(number), &failure(number, "busy")))
}

fn numbers(attempts: &[FailedAttempt]) -> Vec<u32> {
    attempts.iter().map(|attempt| attempt.timeline.attempt).collect()
}

fn claim(annotations: serde_json::Value, phase: &str) -> PersistentVolumeClaim {
    let created = jiff::Timestamp::from_second(CREATED).unwrap().to_string();
    let mut all = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "3" });
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    let object = json!({
        "metadata": { "name": "data", "namespace": "team", "uid": "u", "creationTimestamp": created, "annotations": all },
        "spec": {}, "status": { "phase": phase },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn the_first_and_the_last_attempts_are_kept() {
    let few = failed(1..=6);
    assert_eq!((numbers(few.kept()), few.left_out()), (vec![1, 2, 3, 4, 5, 6], 0));
    assert_eq!((few.parts().0.len(), few.parts().1.len()), (6, 0));
    let many = failed(1..=100);
    let (first, last) = many.parts();
    assert_eq!((numbers(first), many.left_out(), numbers(last)), (vec![1, 2], 94, vec![97, 98, 99, 100]));
}

#[test]
fn an_attempt_that_is_recorded_again_keeps_its_stages() {
    let again = failed(1..=2).with(Timeline::new(2, CREATED * 1000), &failure(2, "busy, and no container ran"));
    assert_eq!(numbers(again.kept()), [1, 2]);
    let last = again.kept().last().unwrap();
    assert_eq!((&last.timeline, last.message.as_str()), (&timeline(2), "busy, and no container ran"));
    assert_eq!(last.ended(), (CREATED + 2) * 1000);
}

#[test]
fn the_last_failure_of_an_older_program_is_an_attempt_without_stages() {
    let record = json!({ names::FAILURE: json!(failure(3, "busy")).to_string() });
    let of = |annotations| FailedAttempts::of(&Claim::from(&claim(annotations, "Pending")));
    let upgraded = of(record.clone());
    assert_eq!(numbers(upgraded.kept()), [3]);
    assert_eq!(upgraded.kept()[0].timeline.line(), "failed 3000 ms");
    // An older program recorded the third attempt, and kept the annotation as it was.
    let mut both = record;
    both[names::FAILED_ATTEMPTS] = json!(failed(1..=1).to_string());
    assert_eq!(numbers(of(both.clone()).kept()), [1, 3]);
    both[names::FAILED_ATTEMPTS] = json!(failed(1..=3).to_string());
    assert_eq!(of(both), failed(1..=3));
    // A delete run is no attempt.
    let deletion = LastFailure { operation: Operation::Delete, ..failure(3, "busy") };
    assert_eq!(of(json!({ names::FAILURE: json!(deletion).to_string() })), FailedAttempts::default());
}

#[test]
fn attempts_are_alike_if_all_that_may_have_left_storage_asked_for_the_same() {
    let of = |attempt: u32, annotations: serde_json::Value| {
        let mut all = annotations;
        all[names::ATTEMPT] = json!(attempt.to_string());
        Claim::from(&claim(all, "Pending"))
    };
    let with = |attempts: FailedAttempts, (attempt, reaction, request): (u32, Reaction, &str)| {
        let failure = LastFailure { reaction, reason: cause::EXIT_CODE.into(), ..failure(attempt, "busy") };
        attempts.with(timeline(attempt), &failure).with_request(&failure, request)
    };
    // The stamped attempt may have no record yet.
    let alike = |attempt, request, recorded: &[(u32, Reaction, &str)]| {
        let attempts = recorded.iter().copied().fold(FailedAttempts::default(), with);
        let read = FailedAttempts::read(&attempts.to_string()).unwrap();
        assert_eq!(read, attempts);
        read.are_alike(&of(attempt, json!({})), request)
    };
    use Reaction::{Never, NoCapacity, Retry};
    assert!(alike(1, Some("v1"), &[]) && alike(1, Some("v1"), &[(1, Retry, "v1")]));
    assert!(alike(3, Some("v1"), &[(1, Retry, "v1"), (2, Retry, "v1")]));
    // The run of the first attempt was killed. Then an admin edited the config, and the driver refused it.
    assert!(!alike(2, Some("v2"), &[(1, Retry, "v1")]), "the stamped attempt asked for something else");
    assert!(!alike(2, Some("v2"), &[(1, Retry, "v1"), (2, Never, "v2")]));
    assert!(!alike(9, Some("v2"), &[(1, Retry, "v1"), (2, Retry, "v2"), (3, Retry, "v2"), (8, Retry, "v2")]));
    // Attempts that the image refused left nothing, whatever they asked for.
    assert!(alike(2, Some("v2"), &[(1, Never, "v1")]) && alike(2, None, &[(1, Never, "v1"), (2, NoCapacity, "v2")]));
    assert!(alike(3, Some("v2"), &[(1, NoCapacity, "v1"), (2, Retry, "v2"), (3, Never, "v3")]));
    assert!(!alike(2, None, &[(1, Never, "v1")]), "the second attempt may have left storage");
    assert!(!alike(2, None, &[(1, Never, "v1"), (2, Retry, "v1")]));
    // Some records are missing.
    assert!(!alike(2, Some("v1"), &[]) && !alike(3, Some("v1"), &[(1, Retry, "v1")]));
    assert!(!alike(3, Some("v1"), &[(2, Retry, "v1")]));
    // The orchestrator refused the volume that an attempt made, or the API server its repeated Job.
    for reason in [reason::VOLUME_REFUSED.name, cause::JOB_REFUSED] {
        let refused = LastFailure { reaction: Never, reason: reason.into(), ..failure(1, "small") };
        let attempts = FailedAttempts::default().with(timeline(1), &refused).with_request(&refused, "v1");
        assert!(!attempts.are_alike(&of(2, json!({})), Some("v2")), "{reason}");
    }
    // No container of the first two attempts has run.
    let unstarted = LastFailure { unstarted_attempts: 2, ..failure(2, "no image") };
    let attempts = FailedAttempts::default().with(timeline(2), &unstarted).with_request(&unstarted, "v1");
    assert!(attempts.are_alike(&of(3, json!({})), Some("v2")));
    // The orchestrator learns after its first record that no container has run. The image refused the second attempt.
    let late = LastFailure { unstarted_attempts: 1, ..failure(1, "no image") };
    let attempts = FailedAttempts::default().with(timeline(1), &failure(1, "no image"));
    let attempts = attempts.with_request(&failure(1, "no image"), "v1").with(timeline(1), &late);
    let attempts = with(attempts.with_request(&late, "v1"), (2, Never, "v2"));
    assert!(attempts.are_alike(&of(2, json!({})), Some("v2")));
    assert!(!FailedAttempts::default().are_alike(&of(0, json!({})), Some("v1")), "the claim has no stamp");
}

#[test]
fn a_bound_claim_has_its_attempts_in_the_annotation_and_not_in_the_cache() {
    let object = claim(json!({ names::FAILED_ATTEMPTS: failed(1..=2).to_string() }), "Bound");
    let bound = Claim::from(&object);
    assert_eq!(bound.failed_attempts, None);
    assert_eq!(FailedAttempts::of_object(&object.metadata, &bound), failed(1..=2));
}

#[test]
fn a_copied_claim_has_no_attempts_of_its_original() {
    let copied = json!({ names::FAILED_ATTEMPTS: failed(1..=2).to_string(), names::CLAIM_UID: "another" });
    let object = claim(copied, "Pending");
    assert_eq!(Claim::from(&object).failed_attempts, None);
    assert_eq!(FailedAttempts::of_object(&object.metadata, &Claim::from(&object)), FailedAttempts::default());
}

#[test]
fn a_forged_annotation_is_ignored() {
    let [one, two] = [failed([1]), failed([2])].map(|attempts| json!(attempts.kept()[0]));
    let zero = json!(failed([0]).kept()[0]);
    let many = serde_json::json!(vec![&one; FIRST + LAST + 1]);
    for attempts in [json!([two, one]), json!([one, one]), json!([zero]), many, json!([{ "attempt": 1 }]), json!(1)] {
        let text = json!({ "attempts": attempts }).to_string();
        assert_eq!(FailedAttempts::read(&text), None, "{text}");
    }
    for requests in [json!({ "upTo": MAX_ATTEMPTS }), json!({ "upTo": 1, "hash": "f".repeat(HASH + 1) })] {
        assert_eq!(FailedAttempts::read(&json!({ "attempts": [], "requests": requests }).to_string()), None);
    }
    let long = json!({ "attempts": [], "x": "x".repeat(limits::FAILED_ATTEMPTS) }).to_string();
    assert_eq!(FailedAttempts::read(&long), None);
    let mut evil = one;
    evil["message"] = json!("\u{1b}[2J".repeat(200));
    let read = FailedAttempts::read(&json!({ "attempts": [evil] }).to_string()).unwrap();
    assert!(read.kept()[0].message.starts_with("\\u{1b}[2J") && read.kept()[0].message.len() <= MESSAGE);
}

proptest! {
    /// Whatever images say and however many attempts fail, the annotation is bounded, counts each attempt, and is read
    /// again.
    #[test]
    fn the_annotation_is_bounded_and_read_again(
        messages in prop::collection::vec(prop_oneof![".{0,900}", "[\"\\\\]{0,900}", "[\u{0}\u{1b}]{0,400}"], 1..12),
        times in prop::collection::vec(any::<i64>(), Stage::iter().count()),
    ) {
        let count = messages.len();
        let mut attempts = FailedAttempts::default();
        for (number, message) in messages.iter().enumerate() {
            // The latest numbers have the most digits.
            let number = MAX_ATTEMPTS - 20 + u32::try_from(number).unwrap();
            let mut timeline = Timeline::new(number, CREATED * 1000);
            Stage::iter().zip(&times).for_each(|(stage, at)| timeline.reach(stage, *at));
            let cause = Cause::new(message.clone(), message.clone());
            let failure = LastFailure { reason: cause.reason, message: cause.message, ..failure(number, "") };
            attempts = attempts.with(timeline, &failure).with_request(&failure, &"f".repeat(HASH));
            attempts.requests = Requests { up_to: number, request: Some("f".repeat(HASH)) };
            let text = attempts.to_string();
            prop_assert!(text.len() <= limits::FAILED_ATTEMPTS, "{} bytes: {text}", text.len());
            prop_assert_eq!(FailedAttempts::read(&text), Some(attempts.clone()));
        }
        prop_assert_eq!(attempts.kept().len() + usize::try_from(attempts.left_out()).unwrap(), count);
    }
}

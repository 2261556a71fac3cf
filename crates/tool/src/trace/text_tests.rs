use flex_contract::names;
use flex_core::claim::decide::Rule;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::model::claim::Claim;
use flex_core::run::failure::LastFailure;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::*;

const CREATED: i64 = 1_790_000_000;

fn claim(annotations: Value, bound: bool) -> Claim {
    let mut annotations = annotations;
    let mut spec = json!({ "storageClassName": "gold" });
    if bound {
        annotations[names::BIND_COMPLETED] = json!("yes");
        spec["volumeName"] = json!("pvc-u");
    }
    let created = jiff::Timestamp::from_second(CREATED).unwrap().to_string();
    let metadata = json!({
        "name": "data", "namespace": "team", "uid": "u", "creationTimestamp": created, "annotations": annotations,
    });
    let phase = if bound { "Bound" } else { "Pending" };
    let object = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
    Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
}

fn timeline(attempt: u32, reached: &[(Stage, i64)]) -> Timeline {
    let mut timeline = Timeline::new(attempt, CREATED * 1000);
    for (stage, after) in reached {
        timeline.reach(*stage, CREATED * 1000 + after);
    }
    timeline
}

fn trace(claim: Claim, timeline: Timeline) -> Trace {
    let failed = FailedAttempts::default();
    Trace {
        claim,
        timeline,
        failed,
        events: Vec::new(),
        obstacle: None,
        next_try: None,
        idle: None,
        unseen: Vec::new(),
    }
}

fn obstacle(rule: Rule, why: &str) -> Option<Obstacle> {
    Some(Obstacle { rule, why: why.into() })
}

fn event(reason: &str, message: &str, warning: bool, count: i32) -> ClaimEvent {
    let is_ours = !reason.starts_with("WaitForFirst");
    ClaimEvent { reason: reason.into(), message: message.into(), warning, is_ours, count, at: CREATED + 3 }
}

#[test]
fn a_bound_claim_shows_its_stages_and_who_was_slow() {
    let reached = [
        (Stage::Stamped, 16),
        (Stage::JobCreated, 0),
        (Stage::Scheduled, 0),
        (Stage::Started, 0),
        (Stage::VolumeCreated, 1000),
        (Stage::Adopted, 1900),
        (Stage::Bound, 1946),
    ];
    insta::assert_snapshot!(text(&trace(claim(json!({}), true), timeline(1, &reached)), CREATED + 7_300));
}

#[test]
fn a_claim_that_got_a_pooled_volume_has_one_stage() {
    let trace = trace(claim(json!({}), true), timeline(0, &[(Stage::Bound, 34)]));
    insta::assert_snapshot!(text(&trace, CREATED + 1));
}

#[test]
fn a_waiting_claim_says_for_whom_it_waits_and_what_to_do() {
    let reached = [(Stage::Stamped, 16), (Stage::JobCreated, 0), (Stage::Scheduled, 0)];
    let mut trace = trace(claim(json!({}), false), timeline(1, &reached));
    let pull = "pod flex-1: ImagePullBackOff: Back-off pulling image \"vendor/x\"";
    trace.events = vec![
        event("WaitingForProvisioner", pull, true, 3),
        event("Provisioning", "attempt 1: image vendor/x of class gold", false, 1),
        event("LimitReached", "5 runs of class gold", false, 1),
        event("WaitForFirstConsumer", "waiting for first consumer to be created before binding", false, 1),
    ];
    // The PV controller says this of each class without a StorageClass object.
    let is_ours = false;
    let harmless = event("ProvisioningFailed", "storageclass.storage.k8s.io \"gold\" not found", true, 9);
    trace.events.insert(0, ClaimEvent { is_ours, ..harmless });
    insta::assert_snapshot!(text(&trace, CREATED + 90));
}

#[test]
fn a_claim_without_an_attempt_says_first_what_the_orchestrator_warns_of() {
    let mut trace = trace(claim(json!({}), false), timeline(0, &[]));
    let full = "namespace team may have at most 1 volumes of class gold, and that many exist";
    trace.events = vec![
        event("LimitReached", full, true, 1),
        event("WaitingForProvisioner", "no node can take a run for this claim", true, 1),
    ];
    let printed = text(&trace, CREATED + 90);
    let first = printed.lines().next().unwrap();
    assert!(first.ends_with(&format!("has no volume yet: {full}.")), "{printed}");
    assert!(!printed.contains("Waits for "), "{printed}");
    // Others, and events that are no warnings, say nothing of what the orchestrator waits for.
    trace.events[0].is_ours = false;
    trace.events[1].warning = false;
    let printed = text(&trace, CREATED + 90);
    assert!(printed.contains("has no volume yet.") && printed.contains("Waits for an attempt to begin"), "{printed}");
    // An attempt in progress is more than the warning before it.
    let stamped = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "1" });
    (trace.claim, trace.timeline) = (claim(stamped, false), timeline(1, &[(Stage::Stamped, 16)]));
    trace.events = vec![event("LimitReached", full, true, 1)];
    let printed = text(&trace, CREATED + 90);
    assert!(printed.contains("has no volume yet.") && printed.contains("Waits for its Job"), "{printed}");
}

#[test]
fn a_claim_of_a_populator_waits_for_others() {
    let mut trace = trace(claim(json!({}), false), timeline(0, &[]));
    trace.obstacle = obstacle(Rule::LeftToPopulator, "the populator for Hello.example.com h fills this claim");
    trace.events = vec![event("LimitReached", "of another time", true, 1)];
    let printed = text(&trace, CREATED + 90);
    let first = printed.lines().next().unwrap();
    assert!(first.ends_with("has no volume yet: the populator for Hello.example.com h fills this claim."), "{printed}");
    assert!(!printed.contains("Waits for "), "{printed}");
}

/// A pod changes nothing about what the orchestrator warns of.
#[test]
fn a_claim_that_waits_for_a_pod_says_first_what_the_orchestrator_warns_of() {
    let mut trace = trace(claim(json!({}), false), timeline(0, &[]));
    trace.obstacle = obstacle(Rule::WaitForFirstConsumer, "waits for a pod that uses it");
    trace.events = vec![event("WaitForFirstConsumer", "waiting for first consumer", false, 1)];
    let printed = text(&trace, CREATED + 90);
    assert!(printed.contains("has no volume yet: waits for a pod that uses it."), "{printed}");
    assert!(printed.contains("To do: Create a pod") && !printed.contains("Waits for "), "{printed}");
    let missing = "there is no VolumeAttributesClass gold";
    trace.events.push(event("ProvisioningFailed", missing, true, 1));
    let printed = text(&trace, CREATED + 90);
    assert!(printed.contains(&format!("has no volume yet: {missing}.")), "{printed}");
}

#[test]
fn a_failed_claim_that_is_refused_is_not_told_to_try_again() {
    let failure = json!({
        "operation": "provision", "attempt": 2, "at": CREATED + 80, "kind": "retry", "reason": "ExitCode",
        "message": "exit code 75: busy",
    });
    let stamped = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "2", names::FAILURE: failure.to_string() });
    let mut trace = trace(claim(stamped, false), timeline(2, &[(Stage::Stamped, 75_000), (Stage::Failed, 80_000)]));
    let retry = "to try again now: flex-provisioner retry team/data";
    assert!(text(&trace, CREATED + 90).contains(&format!("Next try: not known; {retry}\n")));
    trace.next_try = Some(CREATED + 120);
    assert!(text(&trace, CREATED + 90).contains(&format!("Next try: in 30s; {retry}\n")));
    assert!(text(&trace, CREATED + 120).contains("Next try: now\n"));
    trace.obstacle = obstacle(Rule::ClaimRefused, "class gold provides at most 1Gi; ask for less");
    let printed = text(&trace, CREATED + 90);
    assert!(
        printed.contains("is refused: class gold provides at most 1Gi") && !printed.contains("Next try"),
        "{printed}"
    );
}

#[test]
fn a_failed_attempt_says_why() {
    let failure = json!({
        "operation": "provision", "attempt": 2, "at": CREATED + 80, "kind": "retry", "reason": "ExitCode",
        "message": "exit code 75: the array\nis switched off",
    });
    let stamped = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "2", names::FAILURE: failure.to_string() });
    let claim = claim(stamped, false);
    let reached = [(Stage::Stamped, 75_000), (Stage::JobCreated, 75_000), (Stage::Failed, 80_000)];
    insta::assert_snapshot!(text(&trace(claim, timeline(2, &reached)), CREATED + 90));
}

/// Returns a number of failed attempts, one each 10 s.
fn failed(number: u32) -> FailedAttempts {
    (1..=number).fold(FailedAttempts::default(), |all, attempt| {
        let begin = i64::from(attempt) * 10_000;
        let reached = [(Stage::Stamped, begin), (Stage::JobCreated, begin), (Stage::Failed, begin + 4_000)];
        let failure = LastFailure::read(
            &json!({
                "operation": "provision", "attempt": attempt, "at": CREATED + i64::from(attempt) * 10 + 4,
                "kind": "retry", "reason": "ExitCode", "message": format!("exit code 75: busy\u{1b}[2J {attempt}"),
            })
            .to_string(),
        );
        all.with(timeline(attempt, &reached), &failure.unwrap())
    })
}

#[test]
fn a_bound_claim_shows_its_failed_attempts_with_their_causes() {
    let reached = [(Stage::Stamped, 90_000), (Stage::JobCreated, 90_000), (Stage::Bound, 95_000)];
    let bound = Trace { failed: failed(8), ..trace(claim(json!({}), true), timeline(9, &reached)) };
    insta::assert_snapshot!(text(&bound, CREATED + 100));
}

#[test]
fn the_attempt_that_has_just_failed_is_shown_once() {
    let last = failed(2).kept()[1].timeline.clone();
    let pending = Trace { failed: failed(2), ..trace(claim(json!({}), false), last) };
    insta::assert_snapshot!(text(&pending, CREATED + 25));
}

#[test]
fn a_claim_without_a_class_and_with_few_rights_says_so() {
    let mut trace = trace(claim(json!({}), false), timeline(0, &[]));
    let too_large = "the claim asks for 2Gi, and class gold provides at most 1Gi; ask for less";
    trace.obstacle = obstacle(Rule::ClaimRefused, too_large);
    let refused = text(&trace, 0);
    let first = refused.lines().next().unwrap();
    assert!(first.ends_with(&format!("is refused: {too_large}.")), "{first}");
    assert!(!refused.contains("Waits for"), "{refused}");
    trace.obstacle = None;
    trace.idle = Some("class gold belongs to another provisioner than flex-provisioner.io".into());
    trace.claim.volume_name = Some("\u{1b}[2J".into());
    trace.unseen = vec!["its volume: persistentvolumes is forbidden\u{1b}[2J".into()];
    insta::assert_snapshot!(text(&trace, CREATED + 90));
}

#[test]
fn nothing_is_to_be_done_for_a_bound_claim_and_own_events_come_first() {
    let mut trace = trace(claim(json!({}), true), timeline(1, &[(Stage::Stamped, 16), (Stage::Bound, 20)]));
    trace.events = vec![
        event("WaitForFirstConsumer", "waiting for first consumer to be created before binding", false, 1),
        event("LimitReached", "5 runs of class gold", false, 1),
    ];
    let printed = text(&trace, CREATED + 90);
    let (own, other) = (printed.find("Event LimitReached"), printed.find("Event WaitForFirstConsumer"));
    assert!(own.is_some() && own < other && !printed.contains("To do"), "{printed}");
}

#[test]
fn each_remedy_is_read_without_markdown() {
    for reason in reason::ALL {
        let remedy = remedy(reason.name, true).unwrap_or_default();
        assert!(!remedy.contains("]("), "{}: {remedy}", reason.name);
    }
    assert_eq!(remedy("Provisioning", true), None);
    assert_eq!(remedy("ProvisioningFailed", false), None);
}

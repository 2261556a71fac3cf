//! The data of nodes and images: statuses of pods and Jobs, exit codes, termination messages, warnings.

use flex_contract::exit::{self, Reaction};
use flex_core::run::failure::LastFailure;
use flex_core::run::state::{Cause, RunState, state};
use flex_core::run::view::{Job, Pod, WarningEvent};
use flex_provisioner::api::events::event_note;
use k8s_openapi::api::{batch, core};
use serde_json::{Value, json};

use crate::draw::Draw;
use crate::world::check_request_size;

/// The longest cause, with the reason, in bytes.
const REASON: usize = 128;
const MESSAGE: usize = 4096;

const REASONS: &[&str] = &[
    "Completed",
    "Error",
    "OOMKilled",
    "StartError",
    "ContainerCannotRun",
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CrashLoopBackOff",
    "DeadlineExceeded",
    "BackoffLimitExceeded",
    "Unschedulable",
    "Evicted",
    "FailedCreate",
    "FailedMount",
    "ContainerCreating",
];
const TIMES: &[&str] =
    &["2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z"];

/// Reads the JSON of a pod, or draws a Job, pods and warnings of all kinds.
pub fn check(data: &[u8]) {
    let draw = &mut Draw::new(data);
    let (job, pods, warning_events) = match serde_json::from_slice::<core::v1::Pod>(data) {
        Ok(pod) => (Some(Job { uid: "job".into(), ..Job::default() }), vec![Pod::from(&pod)], Vec::new()),
        Err(_) => (job(draw), (0..draw.below(3)).map(|_| pod(draw)).collect(), warning_events(draw)),
    };
    let (pods_seen, warning_events): (Vec<&Pod>, Vec<&WarningEvent>) =
        (pods.iter().collect(), warning_events.iter().collect());
    let state = state(job.as_ref(), &pods_seen, &warning_events);
    match &state {
        RunState::NotCached => assert!(job.is_none() && pods.iter().all(Pod::is_over)),
        RunState::MayBeRunning => {}
        RunState::Stuck { cause, .. } => warning_event(cause),
        RunState::Succeeded => {
            let done = pods.iter().any(|pod| pod.terminated.as_ref().is_some_and(|end| end.code == 0));
            assert!(job.as_ref().is_some_and(|job| job.complete) || done, "no Job or pod reported success");
        }
        RunState::Failed { cause, reaction, pods_ended, .. } => {
            warning_event(cause);
            let has_code =
                pods.iter().filter_map(|pod| pod.terminated.as_ref()).any(|end| exit::reaction(end.code) == *reaction);
            assert!(*reaction == Reaction::Retry || has_code, "{reaction:?} without an exit code");
            assert!(!pods_ended || pods.iter().all(Pod::is_over), "a process may still run");
        }
    }
}

fn warning_event(cause: &Cause) {
    assert!(!cause.message.is_empty());
    check_request_size(&cause.reason, REASON);
    check_request_size(&cause.message, MESSAGE);
    let event = event_note(&format!("attempt 1 failed: {}; next try in 2 s", cause.message));
    check_request_size(&event, 1024);
    let failure = LastFailure::of_delete_run(1, 0, cause, None);
    let kept = json!(failure).to_string();
    assert!(kept.len() <= 4 * MESSAGE, "{} bytes are kept", kept.len());
    assert_eq!(LastFailure::read(&kept), Some(failure));
}

fn condition(draw: &mut Draw<'_>, kinds: &[&str]) -> Value {
    json!({
        "type": draw.text_or(kinds), "status": draw.pick(&["True", "False", "Unknown"]),
        "reason": draw.text_or(REASONS), "message": draw.text(), "lastTransitionTime": draw.pick(TIMES),
    })
}

fn job(draw: &mut Draw<'_>) -> Option<Job> {
    if draw.below(5) == 4 {
        return None;
    }
    let kinds = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"];
    let conditions: Vec<_> = (0..draw.below(3)).map(|_| condition(draw, &kinds)).collect();
    let job = json!({
        "metadata": { "name": "a", "namespace": "admin", "uid": "job", "creationTimestamp": draw.pick(TIMES),
            "labels": { flex_contract::names::LABEL_ATTEMPT: draw.text_or(&["1"]) },
            "annotations": { flex_contract::names::JOB_CLAIM: draw.text_or(&["team/data"]) } },
        "status": { "conditions": conditions },
    });
    let job: batch::v1::Job = serde_json::from_value(job).expect("the value is a Job");
    Some(Job::from(&job))
}

fn container(draw: &mut Draw<'_>) -> Value {
    let state = match draw.below(4) {
        0 => json!({ "terminated": {
            "exitCode": draw.pick(&[0, 1, 64, 65, 69, 75, 77, 78, 126, 127, 137, 143, 255, -1, i32::MAX, i32::MIN]),
            "reason": draw.text_or(REASONS), "message": draw.text(), "finishedAt": draw.pick(TIMES),
        }}),
        1 => json!({ "waiting": { "reason": draw.text_or(REASONS), "message": draw.text() } }),
        2 => json!({ "running": {} }),
        _ => json!({}),
    };
    json!({ "name": draw.text_or(&["provisioner", "sidecar"]), "state": state,
        "image": "", "imageID": "", "ready": false, "restartCount": 0 })
}

fn pod(draw: &mut Draw<'_>) -> Pod {
    let conditions: Vec<_> = (0..draw.below(2)).map(|_| condition(draw, &["PodScheduled", "Ready"])).collect();
    let mut pod = json!({
        "metadata": { "name": "a-1", "namespace": "admin", "uid": "pod", "creationTimestamp": draw.pick(TIMES) },
        "spec": { "containers": [], "nodeName": draw.text_or(&["node-1"]) },
        "status": {
            "phase": draw.text_or(&["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            "reason": draw.text_or(REASONS), "message": draw.text(), "conditions": conditions,
            "initContainerStatuses": (0..draw.below(3)).map(|_| container(draw)).collect::<Vec<_>>(),
            "containerStatuses": (0..draw.below(3)).map(|_| container(draw)).collect::<Vec<_>>(),
        },
    });
    if draw.chance() {
        pod["metadata"]["deletionTimestamp"] = json!(draw.pick(TIMES));
    }
    let pod: core::v1::Pod = serde_json::from_value(pod).expect("the value is a pod");
    Pod::from(&pod)
}

fn warning_events(draw: &mut Draw<'_>) -> Vec<WarningEvent> {
    let count = draw.below(3);
    let event = |draw: &mut Draw<'_>| WarningEvent {
        object_uid: draw.pick(&["job", "pod", "x"]).to_owned(),
        reason: draw.text_or(REASONS),
        message: draw.text(),
        at: draw.number(),
    };
    (0..count).map(|_| event(draw)).collect()
}

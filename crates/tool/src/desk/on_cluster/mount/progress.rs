//! The end of a mount pod, and the texts about one that does not end.

use flex_core::run::view;
use flex_desk::conformance::mounts::Reading;
use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};

use super::objects::Act;

/// The progress of a mount pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The pod starts or runs.
    Runs,
    /// The image does not start, with the reason. The volume is not the cause.
    NoImage(String),
    /// The pod has ended.
    Ended(Reading),
}

fn end(pod: &Pod) -> Option<&ContainerState> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()
}

/// Derives the progress of a pod.
pub(super) fn progress(pod: &Pod, act: Act<'_>, volume: &str) -> Progress {
    let seen = view::Pod::from(pod);
    let ended = end(pod).and_then(|state| state.terminated.as_ref());
    let words = ended.and_then(|end| end.message.clone()).unwrap_or_default();
    let unusable = |why: String| {
        Progress::Ended(Reading::Unusable(format!("the pod that {} the volume {volume} {why}", act.verb())))
    };
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") if words == "empty" => Progress::Ended(Reading::Empty),
        Some("Succeeded") if is_sum(&words) => Progress::Ended(Reading::Sum(words)),
        Some("Succeeded") => unusable(format!("said `{}` in place of a sum", one_line(&words))),
        Some("Failed") => {
            let end = ended.map(|end| format!("ended with exit code {}", end.exit_code));
            let kubelet = (!seen.reason.is_empty()).then(|| format!("{}: {}", seen.reason, seen.message));
            let parts = [end, kubelet, Some(one_line(&words)).filter(|words| !words.is_empty())];
            unusable(parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
        }
        _ => match seen.stuck {
            Some(stuck) if is_of_image(&stuck.reason) => {
                Progress::NoImage(format!("{}: {}", stuck.reason, one_line(&stuck.message)))
            }
            _ => Progress::Runs,
        },
    }
}

/// Checks for a reason that names the image or the settings of a container, and no volume.
fn is_of_image(reason: &str) -> bool {
    reason.contains("Image") || reason.starts_with("CreateContainer") || reason == "RunContainerError"
}

fn is_sum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Describes a pod that has not ended in time, with what Kubernetes says about it.
pub(super) fn too_late(pod: &Pod, act: Act<'_>, volume: &str, after: u64, warnings: &[Event]) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unscheduled = conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let unscheduled = unscheduled.map(|one| (one.reason.clone().unwrap_or_default(), one.message.clone()));
    let events = warnings.iter().map(|event| (event.reason.clone().unwrap_or_default(), event.message.clone()));
    let mut reasons: Vec<String> = Vec::new();
    for (reason, message) in unscheduled.chain(events) {
        let text = format!("{reason}: {}", one_line(&message.unwrap_or_default()));
        if !reasons.contains(&text) {
            reasons.push(text);
        }
    }
    let reasons = if reasons.is_empty() { "no event says why".to_owned() } else { reasons.join("; ") };
    format!("the pod that {} the volume {volume} has not ended within {after} s: {reasons}", act.verb())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status })).unwrap()
    }

    fn ended(phase: &str, code: i32, message: &str) -> Pod {
        let end = json!({ "exitCode": code, "message": message });
        pod(json!({ "phase": phase, "containerStatuses": [status(&json!({ "terminated": end }))] }))
    }

    fn status(state: &Value) -> Value {
        json!({ "name": "mount", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": state })
    }

    #[test]
    fn the_end_of_a_mount_pod_is_its_reading_or_the_reason_why_there_is_none() {
        let sum = "a".repeat(64);
        let waiting = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "why" } });
            pod(json!({ "phase": "Pending", "containerStatuses": [status(&state)] }))
        };
        let unusable = |why: &str| Progress::Ended(Reading::Unusable(format!("the pod that reads the volume v {why}")));
        let evicted = pod(json!({ "phase": "Failed", "reason": "Evicted", "message": "no memory" }));
        for (what, pod, expected) in [
            ("new", pod(json!({ "phase": "Pending" })), Progress::Runs),
            ("without a status", Pod::default(), Progress::Runs),
            ("its volume is mounted", waiting("ContainerCreating"), Progress::Runs),
            ("no image", waiting("ErrImagePull"), Progress::NoImage("ErrImagePull: why".into())),
            (
                "no right to be root",
                waiting("CreateContainerConfigError"),
                Progress::NoImage("CreateContainerConfigError: why".into()),
            ),
            ("a sum", ended("Succeeded", 0, &sum), Progress::Ended(Reading::Sum(sum.clone()))),
            ("empty", ended("Succeeded", 0, "empty"), Progress::Ended(Reading::Empty)),
            ("other words", ended("Succeeded", 0, "a\nb"), unusable("said `a b` in place of a sum")),
            ("no message", ended("Succeeded", 0, ""), unusable("said `` in place of a sum")),
            (
                "no permission",
                ended("Failed", 1, "sh: Permission\ndenied"),
                unusable("ended with exit code 1: sh: Permission denied"),
            ),
            ("evicted", evicted, unusable("Evicted: no memory")),
        ] {
            assert_eq!(progress(&pod, Act::Read, "v"), expected, "{what}");
        }
    }

    #[test]
    fn a_pod_that_does_not_end_is_described_by_its_conditions_and_events() {
        let event = |reason: &str, message: &str| Event {
            reason: Some(reason.into()),
            message: Some(message.into()),
            ..Event::default()
        };
        let condition =
            json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no\nnode" });
        for (pod, events, expected) in [
            (pod(json!({})), vec![], "within 9 s: no event says why"),
            (
                pod(json!({})),
                vec![event("FailedMount", "no server"), event("FailedMount", "no server")],
                "the pod that writes into the volume v has not ended within 9 s: FailedMount: no server",
            ),
            (
                pod(json!({ "conditions": [condition] })),
                vec![event("FailedMount", "x")],
                "Unschedulable: no node; FailedMount: x",
            ),
        ] {
            let text = too_late(&pod, Act::Write("x"), "v", 9, &events);
            assert!(text.ends_with(expected), "{text}");
        }
    }
}

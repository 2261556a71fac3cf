//! Pods of runs, with the fields that the cache keeps.

use std::sync::Arc;

use flex_contract::names::CONTAINER;
use k8s_openapi::api::core::v1 as core;

use super::member::Member;
use super::phase::PodPhase;
use super::run_labels::{RunLabels, is_first, members, run_labels, seconds};
use super::start_gate;
use crate::object::ObjectName;
use crate::status_reason::{StatusReason, message_of};
use crate::text::{name, name_of};

/// The end of a pod's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEnd {
    /// The name of the container.
    pub container: String,
    /// The exit code.
    pub code: i32,
    /// The runtime's reason, such as `OOMKilled`.
    pub reason: String,
    /// The last words.
    pub message: String,
    /// The time, in seconds since 1970.
    pub at: i64,
}

/// A pod of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The name of the pod.
    pub name: ObjectName,
    /// The UID of the pod.
    pub uid: String,
    /// The labels of the pod.
    pub run_labels: RunLabels,
    /// The name of the pod's Job.
    pub job: String,
    /// The UID of that Job, which differs from those of earlier Jobs with the same name; empty without an owner.
    pub job_uid: String,
    /// The node of the pod.
    pub node: Option<String>,
    /// The phase.
    pub phase: PodPhase,
    /// The reason of the phase, for pods that the kubelet refused or evicted.
    pub reason: String,
    /// The message of the phase.
    pub message: String,
    /// Why Kubernetes ends the pod before its image has ended: an eviction, a preemption, or a node that goes.
    pub disruption: Option<StatusReason>,
    /// The pod is terminating.
    pub terminating: bool,
    /// The position of our scheduling gate among those of the pod; `None` if the pod has it no longer.
    pub gate: Option<usize>,
    /// What Kubernetes says of a pod that does not start.
    pub stuck: Option<StatusReason>,
    /// The time since when the pod does not start, in seconds since 1970.
    pub created: i64,
    /// The end of the image, or of a container before it.
    pub terminated: Option<ContainerEnd>,
    /// The end of the image's log counts as last words. The kubelet reads it only after a failure.
    pub reads_log: bool,
    /// A container has begun to run.
    pub started: bool,
    /// The time when the scheduler chose the node, in seconds since 1970.
    pub scheduled_at: Option<i64>,
    /// The time when the image's container started, in seconds since 1970.
    pub started_at: Option<i64>,
    /// No container of the pod has run, and none will. Kubernetes says so of each container, or the scheduler found no
    /// node.
    pub never_started: bool,
    /// The pod's Job is certainly the first of its attempt.
    pub is_first: bool,
    /// The members, if the pod is that of a batch.
    pub members: Arc<[Member]>,
}

impl Pod {
    /// Checks that no process of the pod can be running any more.
    pub fn is_over(&self) -> bool {
        self.phase.has_ended()
    }
}

/// The kubelet's reasons of a waiting container that cannot start by itself.
const STUCK: &[&str] = &[
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
    "PreStartHookError",
];

/// The reason that the kubelet invents for the end of a container that it does not find.
const POD_LOST_REASON: &str = "ContainerStatusUnknown";

/// The reasons with which the runtime says that it could not start a process.
pub(super) const START_ERRORS: &[&str] = &["StartError", "ContainerCannotRun"];

/// The policy with which the kubelet reads the end of a failed container's log, if the container left no message.
pub(super) const READS_LOG: &str = "FallbackToLogsOnError";

/// The reason of Kubernetes for a pod that has scheduling gates.
const SCHEDULING_GATED: &str = "SchedulingGated";

/// The label with which Kubernetes names the Job of a pod.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let status = pod.status.as_ref();
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Job");
        // If a Job is deleted without its pod, the pod loses its owner, but still belongs to that run.
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(JOB_NAME));
        let job = owner.map(|owner| &owner.name).or(label).map(|job| name(job)).unwrap_or_default();
        let mut view = Pod {
            name: ObjectName::of(&pod.metadata),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            run_labels: run_labels(&pod.metadata),
            is_first: is_first(&pod.metadata),
            job_uid: owner.map(|owner| name(&owner.uid)).unwrap_or_default(),
            members: members(&job, Some(&pod.metadata)),
            job,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(name),
            phase: status.and_then(|s| s.phase.as_deref()).unwrap_or_default().into(),
            reason: name_of(status.and_then(|s| s.reason.as_deref())),
            message: message_of(status.and_then(|s| s.message.as_deref()).unwrap_or_default()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            gate: pod.spec.as_ref().and_then(start_gate::position),
            reads_log: reads_log(pod),
            created: seconds(pod.metadata.creation_timestamp.as_ref()),
            ..Pod::default()
        };
        let Some(status) = status else { return view };
        let scheduling = |status_of: &str| {
            status.conditions.iter().flatten().find(move |c| c.type_ == "PodScheduled" && c.status == status_of)
        };
        let text = |text: &Option<String>| name_of(text.as_deref());
        let disrupted = |c: &&core::PodCondition| c.type_ == "DisruptionTarget" && c.status == "True";
        let disruption = status.conditions.iter().flatten().find(disrupted);
        view.disruption = disruption.map(said);
        view.scheduled_at = scheduling("True").map(|condition| seconds(condition.last_transition_time.as_ref()));
        let scheduled = scheduling("False");
        view.stuck = scheduled.and_then(|condition| unscheduled(pod, condition));
        let init = status.init_container_statuses.iter().flatten();
        let all: Vec<_> = init.chain(status.container_statuses.iter().flatten()).collect();
        for container in all.iter().copied() {
            let Some(state) = &container.state else { continue };
            if let Some(waiting) = &state.waiting
                && let Some(reason) = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))
            {
                view.stuck = Some(StatusReason::new(reason, waiting.message.as_deref().unwrap_or_default()));
            }
            if container.name == CONTAINER {
                let running = state.running.as_ref().and_then(|state| state.started_at.as_ref());
                let ended = state.terminated.as_ref().and_then(|state| state.started_at.as_ref());
                view.started_at = running.or(ended).map(|at| seconds(Some(at)));
            }
            view.started |= state.running.is_some() || (state.terminated.is_some() && !has_not_started(container));
            // The image's own end counts most, then the end of a failed container before it. Kubernetes invents an end
            // for a container that it never made.
            if let Some(end) = &state.terminated
                && !was_never_created(container)
                && (container.name == CONTAINER || (end.exit_code != 0 && view.terminated.is_none()))
            {
                view.terminated = Some(ContainerEnd {
                    container: name(&container.name),
                    code: end.exit_code,
                    reason: text(&end.reason),
                    message: message_of(end.message.as_deref().unwrap_or_default()),
                    at: seconds(end.finished_at.as_ref()),
                });
            }
        }
        let nothing_started =
            all.iter().any(|container| container.name == CONTAINER) && all.into_iter().all(has_not_started);
        // A pod that was not opened says nothing about another pod of its run.
        let is_open = view.gate.is_none();
        let placeless = scheduled.is_some() && view.node.is_none() && (view.terminating || view.is_over());
        view.never_started = is_open && (placeless || (view.phase == PodPhase::Failed && nothing_started));
        view
    }
}

/// Says why a pod has no node; `None` if it waits for our gate alone.
fn unscheduled(pod: &core::Pod, condition: &core::PodCondition) -> Option<StatusReason> {
    match condition.reason.as_deref() {
        Some(SCHEDULING_GATED) => pod.spec.as_ref().and_then(held),
        _ => Some(said(condition)),
    }
}

/// Returns what a condition says.
fn said(condition: &core::PodCondition) -> StatusReason {
    let message = condition.message.as_deref().unwrap_or_default();
    StatusReason::new(name_of(condition.reason.as_deref()), message)
}

/// Says which gates of others keep the scheduler from choosing a node; `None` if there are none.
fn held(pod: &core::PodSpec) -> Option<StatusReason> {
    let gates = start_gate::foreign(pod);
    let message = format!("whoever set the scheduling gate of the pod must remove it: {}", gates.join(", "));
    (!gates.is_empty()).then(|| StatusReason::new(SCHEDULING_GATED, &message))
}

/// Checks whether the end of the image's log counts as last words.
fn reads_log(pod: &core::Pod) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|container| {
        container.name == CONTAINER && container.termination_message_policy.as_deref() == Some(READS_LOG)
    })
}

/// Checks whether Kubernetes never made the container, even if its pod has ended.
fn was_never_created(container: &core::ContainerStatus) -> bool {
    let end = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let id = |id: &Option<String>| id.as_deref().unwrap_or_default().is_empty();
    let fresh =
        container.restart_count == 0 && container.last_state.as_ref().is_none_or(|last| last.terminated.is_none());
    let unknown = |end: &core::ContainerStateTerminated| {
        end.reason.as_deref() == Some(POD_LOST_REASON) && end.started_at.is_none() && id(&end.container_id)
    };
    fresh && container.image_id.is_empty() && id(&container.container_id) && end.is_some_and(unknown)
}

/// Checks that no process of the container has run: it was never made, or could not be started.
fn has_not_started(container: &core::ContainerStatus) -> bool {
    let end = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let refused = end.and_then(|end| end.reason.as_deref()).is_some_and(|reason| START_ERRORS.contains(&reason));
    was_never_created(container) || (refused && container.restart_count == 0)
}

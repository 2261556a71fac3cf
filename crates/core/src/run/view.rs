//! Jobs, pods and warnings, with the fields that the cache keeps.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::member::{self, Member};
use super::phase::PodPhase;
use super::pod::required_node;
use crate::config::classes::Identity;
use crate::config::modify::Attributes;
use crate::object::ObjectName;
use crate::status_reason::StatusReason;

/// The operation of a run, as the label of its Job or pod has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelledOperation {
    /// The object has no such label.
    #[default]
    None,
    /// An operation of this version.
    Known(Operation),
    /// Any other text.
    Other(String),
}

impl LabelledOperation {
    /// Returns the text of the label; empty for none.
    pub fn as_str(&self) -> &str {
        match self {
            LabelledOperation::None => "",
            LabelledOperation::Known(operation) => operation.as_str(),
            LabelledOperation::Other(text) => text,
        }
    }

    /// Checks whether the run is for a whole class, and for no volume or snapshot. Runs of an admin's command count as
    /// such: they are for volumes that the orchestrator does not have yet, or not any more.
    pub fn is_of_no_volume(&self) -> bool {
        let of_command = |operation: &Operation| matches!(operation, Operation::MoveIn | Operation::MoveOut);
        matches!(self, LabelledOperation::Known(operation) if !operation.is_of_volume() || of_command(operation))
    }

    /// Checks whether the run makes or deletes a snapshot. An operation of another version has it in its name.
    pub fn is_of_snapshot(&self) -> bool {
        match self {
            LabelledOperation::None => false,
            LabelledOperation::Known(operation) => operation.is_of_snapshot(),
            LabelledOperation::Other(text) => text.contains("snapshot"),
        }
    }
}

impl From<&str> for LabelledOperation {
    fn from(text: &str) -> Self {
        match text.parse() {
            Ok(operation) => LabelledOperation::Known(operation),
            Err(_) if text.is_empty() => LabelledOperation::None,
            Err(_) => LabelledOperation::Other(text.to_owned()),
        }
    }
}

impl PartialEq<Operation> for LabelledOperation {
    fn eq(&self, other: &Operation) -> bool {
        matches!(self, LabelledOperation::Known(operation) if operation == other)
    }
}

impl fmt::Display for LabelledOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The labels of a Job or pod of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLabels {
    /// The operation of the run.
    pub operation: LabelledOperation,
    /// The volume id of the run.
    pub id: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The class, in the form of a label value.
    pub class: String,
}

fn run_labels(metadata: &ObjectMeta) -> RunLabels {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned()).unwrap_or_default();
    RunLabels {
        operation: label(names::LABEL_OPERATION).as_str().into(),
        id: label(names::LABEL_VOLUME_ID),
        attempt: label(names::LABEL_ATTEMPT).parse().unwrap_or(0),
        class: label(names::LABEL_CLASS),
    }
}

/// Checks whether a Job, or that of a pod, is certainly the first of its attempt.
fn is_first(metadata: &ObjectMeta) -> bool {
    let mark = metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::FIRST_JOB));
    mark.is_some_and(|mark| mark == names::FIRST_JOB_YES)
}

/// Reads the members of a batch if the Job has the name of a batch. Pods of other runs may have any annotations from an
/// admin's template.
fn members(job: &str, metadata: Option<&ObjectMeta>) -> Arc<[Member]> {
    let metadata = metadata.filter(|_| member::operation(job).is_some());
    member::members(metadata.and_then(|metadata| metadata.annotations.as_ref()))
}

/// The end of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// The reason in the Job's condition; empty for success.
    pub reason: String,
    /// The message in the Job's condition.
    pub message: String,
    /// The time, in seconds since 1970.
    pub at: i64,
}

/// The longest time between the request for a Job and its creation, in seconds. Clocks may differ, too.
const LONGEST_REQUEST: i64 = 600;

/// A Job of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The name of the Job.
    pub name: ObjectName,
    /// The UID of the Job.
    pub uid: String,
    /// The labels of the Job.
    pub run_labels: RunLabels,
    /// The recipe, as `namespace/name@hash`.
    pub recipe_version: String,
    /// The claim of the run.
    pub claim: Option<ObjectName>,
    /// The volume that the run deletes, expands or modifies; `None` for runs of a claim without a volume.
    pub volume: Option<String>,
    /// The VolumeSnapshotContent of the run.
    pub content: Option<String>,
    /// The deletion policy of that content when the run began; `None` for Jobs of earlier versions.
    pub deletion_policy: Option<ReclaimPolicy>,
    /// The size that the run must give its volume, in bytes.
    pub size: Option<u64>,
    /// The attributes that the run must give its volume.
    pub attributes: Option<Attributes>,
    /// The fingerprint of the segment when a capacity run was created.
    pub fingerprint: String,
    /// The Job is terminating.
    pub terminating: bool,
    /// The Job has completed.
    pub complete: bool,
    /// The Job has failed, or is about to. Its pods may still be stopping.
    pub failed: Option<JobEnd>,
    /// The Job and all its pods have ended.
    pub is_over: bool,
    /// The Job's status counts a pod, whether the pod still exists or not.
    pub had_pods: bool,
    /// The time of the Job's creation, in seconds since 1970.
    pub created: i64,
    /// The UID of the cluster whose orchestrator created the Job; `None` for Jobs of earlier versions.
    pub cluster: Option<String>,
    /// The time at which the orchestrator asked for the Job, in seconds since 1970; `None` for Jobs of earlier versions.
    pub requested: Option<i64>,
    /// The time after which Kubernetes ends the Job, in seconds; `None` for never.
    pub deadline: Option<i64>,
    /// The node to which the pod is bound.
    pub node: Option<String>,
    /// The Job is certainly the first of its attempt.
    pub is_first: bool,
    /// The members, if the Job is a batch.
    pub members: Arc<[Member]>,
    /// The name of the existing Job, where this is a member's view of a batch.
    pub batch: Option<ObjectName>,
}

impl Job {
    /// Returns the name of the existing Job.
    pub fn real_name(&self) -> &ObjectName {
        self.batch.as_ref().unwrap_or(&self.name)
    }

    /// Checks whether a backup tool may have created the Job again: the Job is much younger than the request for it. No
    /// request is on its way for so long.
    pub fn may_be_restored(&self) -> bool {
        self.requested.is_some_and(|requested| self.created.saturating_sub(requested) > LONGEST_REQUEST)
    }

    /// Checks whether the orchestrator of another cluster created the Job, so that this is a copy. If an orchestrator
    /// does not know its own cluster, each Job is its own.
    pub fn is_copy(&self, identity: &Identity) -> bool {
        !identity.cluster.is_empty()
            && self.cluster.as_deref().is_some_and(|cluster| identity.is_other_cluster(cluster))
    }

    /// Checks whether somebody else created the Job again: it is a copy, or may be restored.
    pub fn was_created_again(&self, identity: &Identity) -> bool {
        self.is_copy(identity) || self.may_be_restored()
    }

    /// Checks whether the run is for a claim without a volume.
    pub fn is_for_claim(&self) -> bool {
        self.volume.is_none() && self.content.is_none()
    }
}

impl From<&batch::Job> for Job {
    fn from(job: &batch::Job) -> Self {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut view = Job {
            name: ObjectName::of(&job.metadata),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            run_labels: run_labels(&job.metadata),
            is_first: is_first(&job.metadata),
            terminating: job.metadata.deletion_timestamp.is_some(),
            created: seconds(job.metadata.creation_timestamp.as_ref()),
            deadline: job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds),
            node: job.spec.as_ref().and_then(|spec| required_node(&spec.template)).cloned(),
            members: members(
                job.metadata.name.as_deref().unwrap_or_default(),
                job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref()),
            ),
            ..Job::default()
        };
        let counts = job.status.iter().flat_map(|status| {
            let uncounted = status.uncounted_terminated_pods.as_ref();
            let uncounted = uncounted.map(|u| u.failed.iter().chain(&u.succeeded).map(Vec::len).sum::<usize>() as i32);
            [status.active, status.failed, status.succeeded, status.terminating, uncounted]
        });
        view.had_pods = counts.flatten().any(|count| count > 0);
        if let Some(annotations) = &job.metadata.annotations {
            view.recipe_version = annotations.get(names::RECIPE_VERSION).cloned().unwrap_or_default();
            view.claim = annotations.get(names::JOB_CLAIM).and_then(|claim| claim.parse().ok());
            view.volume = annotations.get(names::JOB_VOLUME).cloned();
            view.fingerprint = annotations.get(names::CAPACITY_FINGERPRINT).cloned().unwrap_or_default();
            view.content = annotations.get(names::JOB_CONTENT).cloned();
            view.deletion_policy = annotations.get(names::JOB_DELETION_POLICY).map(|policy| policy.as_str().into());
            view.attributes = annotations.get(names::ATTRIBUTES).and_then(|text| serde_json::from_str(text).ok());
            view.size = annotations.get(names::JOB_SIZE).and_then(|size| size.parse().ok());
            view.cluster = annotations.get(names::CLUSTER).cloned();
            let requested = annotations.get(names::JOB_REQUESTED);
            view.requested = requested.and_then(|at| at.parse::<jiff::Timestamp>().ok()).map(|at| at.as_second());
        }
        for condition in conditions.filter(|condition| condition.status == "True") {
            match condition.type_.as_str() {
                "Complete" => (view.complete, view.is_over) = (true, true),
                "SuccessCriteriaMet" => view.complete = true,
                kind @ ("Failed" | "FailureTarget") => {
                    view.is_over |= kind == "Failed";
                    view.failed = Some(JobEnd {
                        reason: condition.reason.clone().unwrap_or_default(),
                        message: condition.message.clone().unwrap_or_default(),
                        at: seconds(condition.last_transition_time.as_ref()),
                    });
                }
                _ => {}
            }
        }
        view
    }
}

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
    /// The pod is terminating.
    pub terminating: bool,
    /// What Kubernetes says of a pod that does not start.
    pub stuck: Option<StatusReason>,
    /// The time since when the pod does not start, in seconds since 1970.
    pub created: i64,
    /// The end of the image, or of a container before it.
    pub terminated: Option<ContainerEnd>,
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

/// The label with which Kubernetes names the Job of a pod.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let status = pod.status.as_ref();
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Job");
        // If a Job is deleted without its pod, the pod loses its owner, but still belongs to that run.
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(JOB_NAME));
        let job = owner.map(|owner| &owner.name).or(label).cloned().unwrap_or_default();
        let mut view = Pod {
            name: ObjectName::of(&pod.metadata),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            run_labels: run_labels(&pod.metadata),
            is_first: is_first(&pod.metadata),
            job_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            members: members(&job, Some(&pod.metadata)),
            job,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            phase: status.and_then(|s| s.phase.as_deref()).unwrap_or_default().into(),
            reason: status.and_then(|s| s.reason.clone()).unwrap_or_default(),
            message: status.and_then(|s| s.message.clone()).unwrap_or_default(),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            created: seconds(pod.metadata.creation_timestamp.as_ref()),
            ..Pod::default()
        };
        let Some(status) = status else { return view };
        let scheduling = |status_of: &str| {
            status.conditions.iter().flatten().find(move |c| c.type_ == "PodScheduled" && c.status == status_of)
        };
        view.scheduled_at = scheduling("True").map(|condition| seconds(condition.last_transition_time.as_ref()));
        let scheduled = scheduling("False");
        if let Some(condition) = scheduled {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            view.stuck = Some(StatusReason::new(text(&condition.reason), text(&condition.message)));
        }
        let init = status.init_container_statuses.iter().flatten();
        let main = status.container_statuses.iter().flatten();
        for container in init.chain(main) {
            let Some(state) = &container.state else { continue };
            if let Some(waiting) = &state.waiting
                && let Some(reason) = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))
            {
                view.stuck = Some(StatusReason::new(reason, waiting.message.clone().unwrap_or_default()));
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
                    container: container.name.clone(),
                    code: end.exit_code,
                    reason: end.reason.clone().unwrap_or_default(),
                    message: end.message.clone().unwrap_or_default(),
                    at: seconds(end.finished_at.as_ref()),
                });
            }
        }
        let init = status.init_container_statuses.iter().flatten();
        let all: Vec<_> = init.chain(status.container_statuses.iter().flatten()).collect();
        let nothing_started =
            all.iter().any(|container| container.name == CONTAINER) && all.into_iter().all(has_not_started);
        let placeless = scheduled.is_some() && view.node.is_none() && (view.terminating || view.is_over());
        view.never_started = placeless || (view.phase == PodPhase::Failed && nothing_started);
        view
    }
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

/// A recent warning of Kubernetes about a Job or pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarningEvent {
    /// The UID of the Job or pod.
    pub object_uid: String,
    /// The reason, such as `FailedCreate` or `FailedMount`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The time of the last occurrence, in seconds since 1970.
    pub at: i64,
}

/// Converts an API time to seconds since 1970; 0 without a time.
pub fn seconds(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> i64 {
    time.map_or(0, |time| time.0.as_second())
}

/// Returns the nodes of pods that may still be running.
pub fn nodes_with_pods(pods: &[Arc<Pod>]) -> Vec<String> {
    let nodes: BTreeSet<_> = pods.iter().filter(|pod| !pod.is_over()).filter_map(|pod| pod.node.clone()).collect();
    nodes.into_iter().collect()
}

/// Checks whether a pod of a run of this operation may still be running.
pub fn has_running_pods(pods: &[Arc<Pod>], operation: Operation) -> bool {
    pods.iter().any(|pod| pod.run_labels.operation == operation && !pod.is_over())
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;

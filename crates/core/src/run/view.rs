//! Jobs, pods and warnings, with the fields that the cache keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use k8s_openapi::api::batch::v1 as batch;

use super::managers::{Suspension, suspension, was_created_by_other};
use super::member::Member;
use super::pod::required_node;
pub use super::pod_view::{ContainerEnd, Pod};
pub use super::run_labels::{LabelledOperation, RunLabels, seconds};
use super::run_labels::{is_first, members, run_labels};
use super::start_gate;
use crate::config::classes::Identity;
use crate::config::modify::Attributes;
use crate::limits;
use crate::object::ObjectName;
use crate::status_reason::message_of;
use crate::text::{cut, name, name_of, note};

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

/// The reason of Kubernetes for a Job that was in progress for too long.
pub(super) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

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
    /// Somebody else than an orchestrator created the Job, as the API server records.
    pub created_by_other: bool,
    /// The suspension of the Job.
    pub suspended: Option<Suspension>,
    /// The time at which somebody resumed the Job, in seconds since 1970; 0 for never.
    pub resumed: i64,
    /// The time after which Kubernetes ends the Job, in seconds; `None` for never.
    pub deadline: Option<i64>,
    /// Its pods are born with our scheduling gate.
    pub has_gate: bool,
    /// Its time was over before anybody opened its pod. It counts as one in progress, until the gate deletes it.
    pub is_unopened: bool,
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

    /// Checks whether a backup tool may have created the Job again: the API server names another writer, or the Job is
    /// much younger than the request for it. No request is on its way for so long.
    pub fn may_be_restored(&self) -> bool {
        let late = |requested| self.created.saturating_sub(requested) > LONGEST_REQUEST;
        self.created_by_other || self.requested.is_some_and(late)
    }

    /// Checks whether the orchestrator of another cluster created the Job, so that this is a copy. If an orchestrator
    /// does not know its own cluster, each Job is its own.
    pub fn is_copy(&self, identity: &Identity) -> bool {
        !identity.cluster.is_empty()
            && self.cluster.as_deref().is_some_and(|cluster| identity.is_other_cluster(cluster))
    }

    /// Says who has suspended the Job, and what to do; `None` for a Job on which Kubernetes works, or that has ended.
    pub fn suspension_text(&self) -> Option<String> {
        let is_open = !self.is_over && !self.complete && self.failed.is_none();
        let Suspension { by, .. } = self.suspended.as_ref().filter(|_| is_open)?;
        let by = by.as_deref().unwrap_or("an admission policy or webhook, when it was created");
        let ObjectName { namespace, name } = self.real_name();
        let (label, value) = (names::LABEL_MANAGED_BY, names::FIELD_MANAGER);
        Some(format!(
            "the provisioner's Job {namespace}/{name} is suspended (`spec.suspend`) by {by}; exempt the namespace {namespace}, or Jobs with the label {label}={value}, from that; to resume this one: kubectl -n {namespace} patch job {name} --type merge -p '{{\"spec\":{{\"suspend\":false}}}}'"
        ))
    }

    /// Checks whether the Job has a gate, and failed, or is about to, because it was in progress for too long.
    pub fn may_be_unopened(&self) -> bool {
        self.has_gate && self.failed.as_ref().is_some_and(|failed| failed.reason == DEADLINE_EXCEEDED)
    }

    /// Returns the same Job as one whose time was over before anybody opened its pod.
    #[must_use]
    pub fn unopened(self) -> Self {
        Job { is_unopened: true, is_over: false, failed: None, ..self }
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
            created_by_other: was_created_by_other(&job.metadata),
            suspended: suspension(job),
            has_gate: start_gate::has_gate(job),
            deadline: job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds),
            node: job.spec.as_ref().and_then(|spec| required_node(&spec.template)).map(|node| name(node)),
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
            let of = |key: &str| annotations.get(key).map(|text| name(text));
            let recipe_version = annotations.get(names::RECIPE_VERSION).map(String::as_str).unwrap_or_default();
            view.recipe_version = cut(recipe_version, 2 * limits::NAME).into_owned();
            view.claim = annotations.get(names::JOB_CLAIM).and_then(|claim| claim.parse().ok());
            view.volume = of(names::JOB_VOLUME);
            view.fingerprint = of(names::CAPACITY_FINGERPRINT).unwrap_or_default();
            view.content = of(names::JOB_CONTENT);
            view.deletion_policy = annotations.get(names::JOB_DELETION_POLICY).map(|policy| policy.as_str().into());
            view.attributes = annotations.get(names::ATTRIBUTES).and_then(|text| note(text));
            view.size = annotations.get(names::JOB_SIZE).and_then(|size| size.parse().ok());
            view.cluster = of(names::CLUSTER);
            let requested = annotations.get(names::JOB_REQUESTED);
            view.requested = requested.and_then(|at| at.parse::<jiff::Timestamp>().ok()).map(|at| at.as_second());
        }
        for condition in conditions {
            match condition.type_.as_str() {
                "Suspended" if condition.status == "False" => {
                    view.resumed = seconds(condition.last_transition_time.as_ref());
                }
                _ if condition.status != "True" => {}
                "Complete" => (view.complete, view.is_over) = (true, true),
                "SuccessCriteriaMet" => view.complete = true,
                kind @ ("Failed" | "FailureTarget") => {
                    view.is_over |= kind == "Failed";
                    view.failed = Some(JobEnd {
                        reason: name_of(condition.reason.as_deref()),
                        message: message_of(condition.message.as_deref().unwrap_or_default()),
                        at: seconds(condition.last_transition_time.as_ref()),
                    });
                }
                _ => {}
            }
        }
        view
    }
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

//! Jobs, pods and revisions that nobody needs.

use super::finding::{Finding, MIN_AGE, Removal, STUCK_AFTER};
use super::kind::FindingKind;
use super::observation::Lookups;
use crate::config::effective_config::{hash_of, revision_name};
use crate::limits::NAME;
use crate::model::object_ref::ObjectRef;
use crate::object::ObjectName;
use crate::run::job::JOB_TTL;
use crate::run::member::Member;
use crate::run::view::LabelledOperation;
use crate::run::view::{Job, Pod};
use crate::text::cut;

/// The time after its deadline for which a Job may be without an end, in seconds.
const STALLED_AFTER: i64 = 120;

fn object_ref(kind: &'static str, name: &ObjectName, uid: &str) -> ObjectRef {
    ObjectRef { kind, name: name.clone(), uid: uid.to_owned() }
}

/// Returns the finding about a Job that nobody needs.
pub(super) fn job(w: &Lookups<'_>, job: &Job) -> Option<Finding> {
    let age = w.now - job.created;
    // A Job without an id and an operation has the orchestrator's label, but the orchestrator did not create it.
    // The reconciler that created such a Job deletes it.
    let of_no_volume = job.run_labels.operation.is_of_no_volume();
    let ours = job.run_labels.operation != LabelledOperation::None && (!job.run_labels.id.is_empty() || of_no_volume);
    if job.terminating || age < MIN_AGE || !ours {
        return None;
    }
    let remedy = format!("kubectl -n {} delete job {}", job.name.namespace, job.name.name);
    let finding =
        |kind, detail: String| Finding::new(kind, object_ref("Job", &job.name, &job.uid), detail, remedy.clone());
    // The Job controller of Kubernetes 1.36 works by names. It may forget for good a Job that was created again soon
    // after a Job of the same name was deleted.
    if is_stalled(w, job) {
        let detail = format!("{age} s after its creation it has no pod, and has not failed");
        return Some(finding(FindingKind::JobStalled, detail).since(job.created).removed_by(Removal::StalledJob));
    }
    // The reconciler of contents deletes runs for snapshots. If the content is gone, the snapshot of the run is deleted
    // first.
    if let Some(content) = &job.content {
        let left = !w.contents.contains_key(content.as_str()) && age > STUCK_AFTER;
        let detail = || format!("its VolumeSnapshotContent {content} does not exist");
        return left.then(|| finding(FindingKind::JobWithoutOwner, detail()).since(job.created));
    }
    let id = job.run_labels.id.as_str();
    let claim = w.objects.claim_by_id(id);
    if !has_owner(w, job) {
        let batch = !job.members.is_empty();
        let detail = match &job.volume {
            Some(volume) => format!("its volume {volume} does not exist"),
            None if batch => format!("none of its {} claims or volumes exists", job.runs()),
            None => format!("no claim has the id {id}"),
        };
        let found = finding(FindingKind::JobWithoutOwner, detail).since(job.created);
        // The orchestrator deletes the Job, unless it is creating it just now.
        if job.volume.is_none() && (batch || is_known(w, job)) {
            return (age > STUCK_AFTER).then_some(found);
        }
        let removal = Removal::Job { claim: id.to_owned(), volume: job.volume.clone() };
        return Some(found.removed_by(removal));
    }
    if !job.is_over {
        return None;
    }
    let pods = w.ended.get(&(job.name.namespace.as_str(), job.name.name.as_str())).copied();
    let at = pods.into_iter().chain(job.failed.as_ref().map(|failed| failed.at)).max().unwrap_or(0).max(job.created);
    let over = w.now - at;
    if over > JOB_TTL.as_secs() as i64 + STUCK_AFTER {
        let detail = format!("it ended {} min ago, and Kubernetes should have removed it after an hour", over / 60);
        return Some(finding(FindingKind::JobFinished, detail).since(at).removed_by(Removal::OldJob));
    }
    let settled = claim.is_some_and(|claim| claim.is_bound() && !claim.is_held() && !claim.terminating);
    if job.volume.is_none() && settled && over > STUCK_AFTER {
        let removal = Removal::Job { claim: id.to_owned(), volume: None };
        return Some(finding(FindingKind::JobFinished, "its claim is bound".to_owned()).since(at).removed_by(removal));
    }
    None
}

/// Returns the finding about a copy of another cluster's Job.
pub(super) fn copied_job(job: &Job) -> Option<Finding> {
    let cluster = job.cluster.as_deref().filter(|_| !job.terminating)?;
    let detail = format!(
        "the cluster {} created it (the UID of its namespace kube-system), so it is a copy, as from a backup; its run may change the storage of that cluster",
        cut(cluster, NAME)
    );
    let remedy = format!("kubectl -n {} delete job {}", job.name.namespace, job.name.name);
    let object = object_ref("Job", &job.name, &job.uid);
    let finding = Finding::new(FindingKind::JobCopied, object, detail, remedy).since(job.created);
    Some(finding.removed_by(Removal::CopiedJob))
}

/// Checks whether the volume of a Job exists, or a claim or volume of its runs. A run of no volume needs none.
fn has_owner(w: &Lookups<'_>, job: &Job) -> bool {
    match &job.volume {
        Some(volume) => w.objects.volume(volume).is_some(),
        None => {
            let mut volumes = job.members.iter().filter_map(Member::volume);
            job.run_labels.operation.is_of_no_volume()
                || job.ids().any(|id| w.objects.claim_by_id(id.as_str()).is_some())
                || volumes.any(|volume| w.objects.volume(volume).is_some())
        }
    }
}

/// Checks whether a Job is past its deadline without a pod and without an end. A suspended Job has no deadline, and one
/// that was resumed has it from then on.
fn is_stalled(w: &Lookups<'_>, job: &Job) -> bool {
    let began = job.created.max(job.resumed);
    let late = job.deadline.is_some_and(|deadline| w.now - began > deadline.saturating_add(STALLED_AFTER));
    let has_pod = w.ended.contains_key(&(job.name.namespace.as_str(), job.name.name.as_str()));
    late && job.suspended.is_none() && !has_pod && !job.is_over && !job.complete && job.failed.is_none()
}

/// Checks whether the recipe of the Job is stored.
fn is_known(w: &Lookups<'_>, job: &Job) -> bool {
    hash_of(&job.recipe_version).is_some_and(|hash| w.s.recipes.contains(hash))
}

/// Returns the finding about a pod whose Job is gone.
pub(super) fn pod(w: &Lookups<'_>, pod: &Pod) -> Option<Finding> {
    let job = ObjectName::new(&pod.name.namespace, &pod.job);
    let ours = pod.run_labels.operation != LabelledOperation::None
        && !pod.run_labels.id.is_empty()
        && !pod.run_labels.operation.is_of_snapshot();
    if pod.terminating || w.now - pod.created < MIN_AGE || !ours || w.jobs.contains(&job) {
        return None;
    }
    let id = &pod.run_labels.id;
    let claim = w.objects.claim_by_id(id);
    let whose = match &claim {
        _ if pod.run_labels.operation.is_of_no_volume() => "no claim".to_owned(),
        _ if !pod.members.is_empty() => format!("{} claims or volumes", pod.members.len()),
        Some(claim) => format!("claim {}", claim.name),
        None => format!("a claim that is gone ({id})"),
    };
    let state = if pod.is_over() { "has ended" } else { "may still be at work; the next run waits for its end" };
    let mut finding = Finding::new(
        FindingKind::PodWithoutJob,
        object_ref("Pod", &pod.name, &pod.uid),
        format!("a {} run for {whose}, which {state}", pod.run_labels.operation),
        format!("kubectl -n {} delete pod {}", pod.name.namespace, pod.name.name),
    )
    .since(pod.created);
    if pod.is_over() && claim.is_none() {
        finding = finding.removed_by(Removal::Pod { claim: id.clone() });
    }
    Some(finding)
}

/// Returns the finding about a revision to which no object refers.
pub(super) fn revision(w: &Lookups<'_>, hash: &str) -> Finding {
    let name = ObjectName::new(&w.s.identity.namespace, revision_name(hash));
    let remedy = format!("kubectl -n {} delete controllerrevision {}", name.namespace, name.name);
    let object_ref = object_ref("ControllerRevision", &name, "");
    Finding::new(FindingKind::RevisionUnused, object_ref, "no class, claim or Job uses it", remedy)
        .removed_by(Removal::Revision { hash: hash.to_owned() })
}

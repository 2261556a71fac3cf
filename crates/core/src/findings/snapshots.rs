//! Snapshots that are stuck or that nobody knows, and finalizers of the orchestrator that nothing needs.

use flex_contract::policy::ReclaimPolicy;
use std::borrow::Cow;

use flex_contract::names;
use flex_contract::operation::Operation;

use super::finding::{Finding, MIN_AGE, STUCK_AFTER, correct_or};
use super::kind::FindingKind;
use super::observation::Lookups;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::snapshot::Content;
use crate::model::snapshot::Snapshot;

const CONTENT: &str = "volumesnapshotcontent";

/// Returns the finding about a content, if any.
pub(super) fn content(w: &Lookups<'_>, content: &Content) -> Option<Finding> {
    let identity = &w.s.identity;
    let instance = content.instance.as_ref().is_none_or(|instance| *instance == identity.instance);
    if content.driver != identity.provisioner || !instance || w.now - content.created < MIN_AGE || content.abandoned {
        return None;
    }
    let finding =
        |kind, detail: String, remedy: String| Finding::new(kind, ObjectRef::content_itself(content), detail, remedy);
    let failed = |operation| content.last_failure.as_ref().filter(|failure| failure.operation == operation);
    if content.terminating {
        let failure = failed(Operation::DeleteSnapshot)?;
        let detail = format!("delete-snapshot run {} failed: {}", failure.attempt, failure.message);
        let by_hand = format!("clean up by hand, then {}", content.how_to_abandon());
        return Some(finding(FindingKind::ContentHeld, detail, correct_or(&by_hand)).since(failure.at));
    }
    let is_its = |snapshot: &&Snapshot| content.snapshot_uid.as_ref() == Some(&snapshot.uid);
    // A content that the orchestrator has begun was bound, even if a backup tool has lost the reference.
    let bound = content.snapshot_uid.is_some() || content.may_be_restored();
    if bound && w.snapshots.get(&content.snapshot).copied().filter(is_its).is_none() {
        let detail = format!("its VolumeSnapshot {} does not exist", content.snapshot);
        if content.may_be_restored() {
            return Some(finding(FindingKind::ContentRestored, detail, content.remedy_of_restored()));
        }
        let remedy = format!("kubectl delete {CONTENT} {}", content.name);
        return Some(match content.policy {
            ReclaimPolicy::Delete => finding(
                FindingKind::ContentWithoutSnapshot,
                detail,
                format!("{remedy}, which deletes the stored data, too"),
            ),
            _ if content.ready => finding(
                FindingKind::ContentRetained,
                detail,
                format!("if nobody needs the snapshot, delete the stored data by hand, then: {remedy}"),
            ),
            _ => finding(FindingKind::ContentWithoutSnapshot, detail, remedy),
        });
    }
    let why = content.error.as_ref().filter(|_| !content.ready && w.now - content.created > STUCK_AFTER)?;
    let at = failed(Operation::Snapshot).map_or(content.created, |failure| failure.at);
    let look = format!("kubectl -n {} describe volumesnapshot {}", content.snapshot.namespace, content.snapshot.name);
    Some(finding(FindingKind::SnapshotStuck, why.clone(), look).since(at))
}

/// Finds finalizers of the orchestrator without a cause. This reads each object.
pub(super) fn finalizers(w: &Lookups<'_>) -> Vec<Finding> {
    if !w.s.deep {
        return Vec::new();
    }
    let of_claims = w.objects.claims().flat_map(|claim| {
        let object_ref = ObjectRef::claim(&claim);
        leftover_finalizers(w, object_ref, "pvc", &claim.finalizers)
    });
    let of_contents =
        w.s.contents.iter().flat_map(|content| {
            leftover_finalizers(w, ObjectRef::content_itself(content), CONTENT, &content.finalizers)
        });
    let of_snapshots = w.s.snapshots.iter().flat_map(|snapshot| {
        let none = snapshot.content().is_none_or(|name| !w.contents.contains_key(name.as_str()));
        // While the VolumeSnapshot exists, its content may be created next.
        let held = snapshot.terminating && snapshot.has_finalizer() && none;
        let of: &[String] = if held { &snapshot.finalizers } else { &[] };
        leftover_finalizers(w, ObjectRef::snapshot(snapshot), "volumesnapshot", of)
    });
    of_claims.chain(of_contents).chain(of_snapshots).collect()
}

/// Finds the orchestrator's finalizers on an object that nothing needs.
fn leftover_finalizers(w: &Lookups<'_>, object_ref: ObjectRef, resource: &str, finalizers: &[String]) -> Vec<Finding> {
    let why = |finalizer: &String| Some((finalizer.clone(), unneeded_finalizer(w, resource, finalizer)?));
    let remedy = |finalizer: &str| {
        let namespace = match object_ref.name.namespace.as_str() {
            "" => String::new(),
            namespace => format!("-n {namespace} "),
        };
        let name = &object_ref.name.name;
        format!(
            "make sure that an orchestrator runs, which removes the finalizer; else kubectl {namespace}edit {resource} {name}, and remove {finalizer}"
        )
    };
    let found = finalizers.iter().filter_map(why).collect::<Vec<_>>().into_iter();
    found
        .map(|(finalizer, why)| {
            let remedy = remedy(&finalizer);
            Finding::new(FindingKind::FinalizerLeft, object_ref.clone(), format!("{finalizer}: {why}"), remedy)
        })
        .collect()
}

/// Returns the reason why nothing needs a finalizer; `None` if something does, or if it is not the orchestrator's.
fn unneeded_finalizer(w: &Lookups<'_>, resource: &str, finalizer: &str) -> Option<Cow<'static, str>> {
    if let Some(copy) = finalizer.strip_prefix(names::CLONE_FINALIZER) {
        let done = |claim: &Claim| claim.is_bound() && !claim.is_held();
        return match w.objects.claim_by_id(copy) {
            None => Some("the claim that is made from it does not exist".into()),
            Some(claim) => {
                done(&claim).then(|| format!("claim {}, which was made from it, is bound", claim.name).into())
            }
        };
    }
    if let Some(snapshot) = finalizer.strip_prefix(names::SOURCE_FINALIZER) {
        return match w.contents.get(names::content_name(snapshot).as_str()) {
            None => Some("the snapshot that is made of it does not exist".into()),
            Some(content) => content.ready.then(|| format!("the snapshot of {} is ready", content.name).into()),
        };
    }
    let of_snapshot = resource == "volumesnapshot" && finalizer == names::SNAPSHOT_FINALIZER;
    of_snapshot.then(|| "its content does not exist any more".into())
}

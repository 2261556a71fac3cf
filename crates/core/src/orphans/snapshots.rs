//! Snapshots that are stuck or that nobody knows, and finalizers of the orchestrator that nothing needs.

use std::borrow::Cow;

use contract::names;
use contract::request::Operation;

use super::{Finding, Kind, MIN_AGE, Object, STUCK_AFTER, World, without_protection};
use crate::model::claim::Claim;
use crate::model::snapshot::Content;
use crate::model::snapshot::Snapshot;

const CONTENT: &str = "volumesnapshotcontent";

fn object(content: &Content) -> Object {
    let name = crate::object::ObjectName::new("", &content.name);
    Object { kind: "VolumeSnapshotContent", name, uid: content.uid.clone() }
}

/// Returns the finding about a content, if any.
pub(super) fn content(w: &World<'_>, content: &Content) -> Option<Finding> {
    let identity = &w.s.identity;
    let instance = content.instance.as_ref().is_none_or(|instance| *instance == identity.instance);
    if content.driver != identity.provisioner || !instance || w.now - content.created < MIN_AGE || content.abandoned {
        return None;
    }
    let finding = |kind, detail: String, remedy: String| Finding::new(kind, object(content), detail, remedy);
    let failed = |operation| content.last_failure.as_ref().filter(|failure| failure.operation == operation);
    if content.deleting {
        let failure = failed(Operation::DeleteSnapshot)?;
        let detail = format!("delete-snapshot run {} failed: {}", failure.attempt, failure.message);
        return Some(
            finding(Kind::ContentHeld, detail, without_protection(CONTENT, "", &content.name)).since(failure.at),
        );
    }
    let is_its = |snapshot: &&Snapshot| snapshot.uid == content.snapshot_uid;
    let bound = !content.snapshot_uid.is_empty();
    if bound && w.snapshots.get(&content.snapshot).copied().filter(is_its).is_none() {
        let detail = format!("its VolumeSnapshot {} does not exist", content.snapshot);
        let remedy = format!("kubectl delete {CONTENT} {}", content.name);
        return Some(match content.policy.as_str() {
            "Delete" => {
                finding(Kind::ContentWithoutSnapshot, detail, format!("{remedy}, which deletes what is stored, too"))
            }
            _ if content.ready => finding(
                Kind::ContentRetained,
                detail,
                format!("if nobody needs it, delete by hand what is stored, then: {remedy}"),
            ),
            _ => finding(Kind::ContentWithoutSnapshot, detail, remedy),
        });
    }
    let why = content.error.as_ref().filter(|_| !content.ready && w.now - content.created > STUCK_AFTER)?;
    let at = failed(Operation::Snapshot).map_or(content.created, |failure| failure.at);
    let look = format!("kubectl -n {} describe volumesnapshot {}", content.snapshot.namespace, content.snapshot.name);
    Some(finding(Kind::SnapshotStuck, why.clone(), look).since(at))
}

/// Finds finalizers of the orchestrator without a cause. This reads each object.
pub(super) fn finalizers(w: &World<'_>) -> Vec<Finding> {
    if !w.s.deep {
        return Vec::new();
    }
    let of_claims = w.s.claims.iter().flat_map(|claim| {
        let object = Object { kind: "PersistentVolumeClaim", name: claim.name.clone(), uid: claim.uid.clone() };
        left(w, object, "pvc", &claim.finalizers)
    });
    let of_contents = w.s.contents.iter().flat_map(|content| left(w, object(content), CONTENT, &content.finalizers));
    let of_snapshots = w.s.snapshots.iter().flat_map(|snapshot| {
        let name = snapshot.name.clone();
        let object = Object { kind: "VolumeSnapshot", name, uid: snapshot.uid.clone() };
        let none = snapshot.content().is_none_or(|name| !w.contents.contains_key(name.as_str()));
        // While the VolumeSnapshot exists, its content may be created next.
        let held = snapshot.deleting && snapshot.has_finalizer() && none;
        let of: &[String] = if held { &snapshot.finalizers } else { &[] };
        left(w, object, "volumesnapshot", of)
    });
    of_claims.chain(of_contents).chain(of_snapshots).collect()
}

/// Finds the orchestrator's finalizers on an object that nothing needs.
fn left(w: &World<'_>, object: Object, resource: &str, finalizers: &[String]) -> Vec<Finding> {
    let why = |finalizer: &String| Some((finalizer.clone(), needless(w, resource, finalizer)?));
    let remedy = |finalizer: &str| {
        let namespace = match object.name.namespace.as_str() {
            "" => String::new(),
            namespace => format!("-n {namespace} "),
        };
        let name = &object.name.name;
        format!(
            "see that an orchestrator runs, which takes it off; else kubectl {namespace}edit {resource} {name}, and take out {finalizer}"
        )
    };
    let found = finalizers.iter().filter_map(why).collect::<Vec<_>>().into_iter();
    found
        .map(|(finalizer, why)| {
            let remedy = remedy(&finalizer);
            Finding::new(Kind::FinalizerLeft, object.clone(), format!("{finalizer}: {why}"), remedy)
        })
        .collect()
}

/// Returns the reason why nothing needs a finalizer; `None` if something does, or if it is not the orchestrator's.
fn needless(w: &World<'_>, resource: &str, finalizer: &str) -> Option<Cow<'static, str>> {
    if let Some(copy) = finalizer.strip_prefix(names::CLONE_FINALIZER) {
        let done = |claim: &Claim| claim.is_bound() && !claim.has_finalizer();
        return match w.claims.get(copy) {
            None => Some("the claim that is made from it does not exist".into()),
            Some(claim) => {
                done(claim).then(|| format!("claim {}, which was made from it, is bound", claim.name).into())
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
    of_snapshot.then(|| "it has no content any more".into())
}

//! The invariants of snapshots at all times, and their expected state at the end.

use std::collections::BTreeSet;

use flex_contract::names;
use flex_contract::quantity;
use flex_core::object::ObjectName;
use serde_json::Value;

use super::records::any_held;
use super::{Guarantee, is_bound, is_protected};
use crate::store::{self, Kind, Store, annotation, document, has_finalizer, is_deleting, text, uid};
use crate::world::{StorageKey, World};

fn is_ready(object: &Value) -> bool {
    object["status"]["readyToUse"] == true
}

/// Returns the id of the stored snapshot of a content.
fn id(content: &Value) -> &str {
    let names = |at| Some(text(content, at)).filter(|id| !id.is_empty());
    let of_name = || text(content, "/metadata/name").strip_prefix(names::CONTENT_PREFIX);
    let id = names("/spec/source/snapshotHandle").or_else(|| names("/spec/volumeSnapshotRef/uid"));
    id.or_else(of_name).unwrap_or_default()
}

/// Returns the content of a VolumeSnapshot.
fn content_of<'s>(store: &'s Store, snapshot: &Value) -> Option<&'s Value> {
    let name = match text(snapshot, "/spec/source/volumeSnapshotContentName") {
        "" => names::content_name(uid(snapshot)),
        name => name.to_owned(),
    };
    let content = store.get(Kind::Content, &ObjectName::new("", name))?;
    (text(content, "/spec/volumeSnapshotRef/uid") == uid(snapshot)).then_some(&**content)
}

/// Returns the VolumeSnapshot of a content.
fn snapshot_of<'s>(store: &'s Store, content: &Value) -> Option<&'s Value> {
    let name = ObjectName::new(
        text(content, "/spec/volumeSnapshotRef/namespace"),
        text(content, "/spec/volumeSnapshotRef/name"),
    );
    let snapshot = store.get(Kind::Snapshot, &name)?;
    (uid(snapshot) == text(content, "/spec/volumeSnapshotRef/uid")).then_some(&**snapshot)
}

fn stored<'w>(world: &'w World, content: &'w Value) -> impl Iterator<Item = (&'w StorageKey, bool)> {
    world.snapshots.iter().filter(move |((of, _), _)| of == id(content)).map(|(location, whole)| (location, *whole))
}

/// Checks after a step that each ready snapshot is stored as a whole, and that restored contents keep theirs.
pub fn check_step(store: &Store, world: &World) -> Option<String> {
    for (name, snapshot) in store.all(Kind::Snapshot).filter(|(_, s)| is_ready(s) && !is_deleting(s)) {
        let content = content_of(store, snapshot);
        if !content.is_some_and(|content| stored(world, content).any(|(_, whole)| whole)) {
            return Some(format!("snapshot {name} says that it is ready, and is not stored"));
        }
    }
    // Snapshots that a restored content stores may not be deleted before an admin has let them go.
    for (name, content) in store.all(Kind::Content) {
        let keys = world.restored_snapshots.get(uid(content)).into_iter().flatten();
        if let Some(lost) = keys.into_iter().find(|key| !world.snapshots.contains_key(key)) {
            return Some(format!("the snapshot {lost:?} of the restored content {} is gone", name.name));
        }
    }
    None
}

/// Returns the snapshots that were left on purpose, because their deleted contents had the policy Retain.
pub fn retained(store: &Store, world: &World) -> BTreeSet<StorageKey> {
    let log = store.log(Kind::Content);
    let gone = log.iter().filter(|change| change.gone).map(|change| &change.object);
    // The orchestrator takes no part when an admin deletes a content before it was observed.
    let unseen = |content: &Value| {
        let same = log.iter().map(|change| &change.object).filter(|of| uid(of) == uid(content));
        same.into_iter().all(|of| !has_finalizer(of, names::SNAPSHOT_FINALIZER))
    };
    let is_whole = |content: &Value| is_ready(content) || !text(content, "/spec/source/snapshotHandle").is_empty();
    let stays = |content: &&std::rc::Rc<Value>| {
        text(content, "/spec/deletionPolicy") == "Retain" && is_whole(content) || unseen(content)
    };
    gone.filter(stays).flat_map(|content| stored(world, content).map(|(location, _)| location.clone())).collect()
}

fn provenance(content: &Value) -> Value {
    document(content, names::PROVENANCE)
}

/// Returns whether a node that a volume or snapshot needs is gone.
fn is_lost(store: &Store, node: &str) -> bool {
    !node.is_empty() && store.get(Kind::Node, &ObjectName::new("", node)).is_none()
}

/// Returns whether a claim is to be restored from an unsuitable snapshot: only users can change that.
pub fn waits(store: &Store, name: &ObjectName, claim: &Value) -> bool {
    let mut contents = store.all(Kind::Content).map(|(_, content)| &**content);
    let kept = contents.find(|content| is_protected(content, claim));
    let snapshot = store.get(Kind::Snapshot, &ObjectName::new(&name.namespace, text(claim, "/spec/dataSource/name")));
    let usable = |snapshot: &&std::rc::Rc<Value>| is_ready(snapshot) && !is_deleting(snapshot);
    let bound = snapshot.filter(usable).and_then(|snapshot| content_of(store, snapshot)).filter(|of| !is_deleting(of));
    let Some(content) = kept.or(bound).filter(|content| is_ready(content)) else { return true };
    let made_by = provenance(content);
    let class = text(&made_by, "/class");
    let size = quantity::bytes(text(claim, "/spec/resources/requests/storage")).unwrap_or_default();
    let larger = content["status"]["restoreSize"].as_u64().is_some_and(|of| of > size);
    let other = !class.is_empty() && class != text(claim, "/spec/storageClassName");
    // An imported snapshot is on no node.
    let elsewhere = class.is_empty() && store::text(claim, "/spec/storageClassName").starts_with("lo");
    larger || other || elsewhere || is_lost(store, text(&made_by, "/node"))
}

/// Returns whether a claim that protects a content is still in progress, or what is left of it.
fn is_read(store: &Store, content: &Value) -> bool {
    any_held(store, |claim| is_protected(content, claim))
}

/// Returns whether a snapshot can be made, or is being made.
fn can_be_made(store: &Store, snapshot: &Value) -> bool {
    // A content that an admin deleted first waits until the user deletes the snapshot.
    let content = content_of(store, snapshot);
    if content.is_some_and(is_deleting) {
        return false;
    }
    if !text(snapshot, "/spec/source/volumeSnapshotContentName").is_empty() {
        return content.is_some();
    }
    let of = text(snapshot, "/spec/source/persistentVolumeClaimName");
    let claim = store.get(Kind::Claim, &ObjectName::new(text(snapshot, "/metadata/namespace"), of));
    let Some(claim) = claim.filter(|claim| is_bound(claim) && !is_deleting(claim)) else { return false };
    let volume = store.get(Kind::Volume, &ObjectName::new("", text(claim, "/spec/volumeName")));
    volume.is_some_and(|volume| {
        let made_by = document(volume, names::PROVENANCE);
        // A snapshot that was begun from a deleted claim is not made from another claim of its name.
        let begun = content.map(provenance).unwrap_or_default();
        let same = begun.is_null() || text(&begun, "/volume_id") == annotation(volume, names::VOLUME_ID);
        same && !made_by.is_null() && !is_deleting(volume) && !is_lost(store, text(&made_by, "/node"))
    })
}

/// Returns the violations at the end that concern snapshots.
pub fn check_end(store: &Store, world: &World, waived: &BTreeSet<StorageKey>) -> Vec<(Guarantee, String)> {
    let mut wrong = Vec::new();
    let mut needed: BTreeSet<&StorageKey> = BTreeSet::new();
    for (name, content) in store.all(Kind::Content) {
        needed.extend(stored(world, content).map(|(location, _)| location));
        let snapshot = snapshot_of(store, content);
        let stays = text(content, "/spec/deletionPolicy") == "Retain" && is_ready(content);
        let read = is_read(store, content);
        if snapshot.is_none() && !stays && !read && !text(content, "/spec/volumeSnapshotRef/uid").is_empty() {
            wrong.push((Guarantee::Leaked, format!("content {} belongs to no snapshot", name.name)));
        }
        if is_deleting(content) && !read && snapshot.is_none_or(is_deleting) {
            wrong.push((Guarantee::Stuck, format!("content {} is not deleted", name.name)));
        }
        // A content that an admin deleted first waits for its VolumeSnapshot, and then for claims.
        let first = is_deleting(content) && snapshot.is_some_and(|snapshot| !is_deleting(snapshot));
        let kept = store::finalizers(content).filter(|_| !first);
        for claim in kept.filter_map(|of| of.strip_prefix(names::CLONE_FINALIZER)) {
            if !any_held(store, |of| uid(of) == claim) {
                let what =
                    format!("content {} is protected for claim {claim}, which does not need it any more", name.name);
                wrong.push((Guarantee::Stuck, what));
            }
        }
    }
    // A Job that was on its way when an admin let go of its snapshot stores the snapshot nevertheless.
    let is_let_go = |location: &StorageKey| waived.contains(location) || world.let_go.contains(&location.0);
    for location in world.snapshots.keys().filter(|location| !needed.contains(location) && !is_let_go(location)) {
        wrong.push((Guarantee::Leaked, format!("the snapshot {location:?} has no content")));
    }
    for (name, snapshot) in store.all(Kind::Snapshot) {
        let content = content_of(store, snapshot);
        if is_deleting(snapshot) && !content.is_some_and(|content| is_read(store, content)) {
            wrong.push((Guarantee::Stuck, format!("snapshot {name} is not deleted")));
        }
        if !is_deleting(snapshot) && !is_ready(snapshot) && can_be_made(store, snapshot) {
            wrong.push((Guarantee::Stuck, format!("snapshot {name} is not ready: {}", snapshot["status"])));
        }
    }
    for (name, claim) in store.all(Kind::Claim) {
        for of in store::finalizers(claim).filter_map(|of| of.strip_prefix(names::SOURCE_FINALIZER)) {
            let content = store.get(Kind::Content, &ObjectName::new("", names::content_name(of)));
            if content.is_none_or(|content| is_ready(content)) {
                wrong.push((
                    Guarantee::Stuck,
                    format!("claim {name} is protected for the snapshot {of}, which does not need it any more"),
                ));
            }
        }
    }
    wrong
}

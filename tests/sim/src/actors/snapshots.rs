//! The actions of users and admins on snapshots.

use std::rc::Rc;

use flex_contract::names;
use flex_core::model::snapshot::{Content, SnapshotClass, api};
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{Actors, claim, is_local};
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, document, finalizers, is_deleting, text, uid};
use crate::trace::{count, line};
use crate::world::World;
use crate::{PROVISIONER, SYSTEM, TEAM};

/// The snapshot that an admin made by hand, with its content.
const GIVEN: &str = "given";

/// Returns whether an event tells the admin that a backup may have restored the content. An admin first looks for runs.
fn looks_restored(store: &Store, content: &Value) -> bool {
    let id = text(content, "/spec/volumeSnapshotRef/uid");
    let is_of_it = |kind| store.all(kind).any(|(name, _)| name.name.contains(id));
    let read: api::VolumeSnapshotContent = serde_json::from_value(content.clone()).expect("a content");
    let read = Content::from(&read);
    read.may_be_restored() && !read.abandoned && !is_of_it(Kind::Job) && !is_of_it(Kind::Pod)
}

/// Returns the VolumeSnapshotClasses, which never change.
pub fn classes(profile: &Profile) -> Vec<SnapshotClass> {
    let class = |name: &str, policy: &str| SnapshotClass {
        name: name.to_owned(),
        driver: PROVISIONER.to_owned(),
        policy: policy.into(),
        default: policy == "Delete",
        storage_class: profile.classes.first().map(|class| (*class).to_owned()),
    };
    vec![class("snaps", "Delete"), class("kept-snaps", "Retain")]
}

fn all(store: &Store, kind: Kind) -> Vec<(ObjectName, Rc<Value>)> {
    store.all(kind).map(|(name, object)| (name.clone(), object.clone())).collect()
}

fn some_snapshot(store: &Store, rng: &mut Rng) -> Option<ObjectName> {
    let snapshots = all(store, Kind::Snapshot);
    (!snapshots.is_empty()).then(|| rng.pick(&snapshots).0.clone())
}

/// Returns the node of a snapshot; empty for none.
fn node_of(content: &Value) -> String {
    let made_by = document(content, names::PROVENANCE);
    text(&made_by, "/node").to_owned()
}

impl Actors {
    /// Makes a snapshot, deletes one, or creates a claim from one, as a user. Imports a snapshot, deletes a content, or
    /// removes the finalizers of a snapshot that is deleted too slowly, as an admin.
    pub(super) fn touch_snapshot(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng, profile: &Profile) {
        match rng.below(11) {
            0..=3 => Actors::snapshot(store, rng),
            4 | 5 => Actors::delete_snapshot(store, rng),
            6 | 7 => self.restore(store, world, rng),
            8 if !is_local(profile.classes[0]) => Actors::import(store, world),
            9 if store.version().is_multiple_of(3) => Actors::restore_content(store, world),
            9 => Actors::remove_finalizers(store, rng),
            _ => {
                let contents = all(store, Kind::Content);
                if !contents.is_empty() {
                    let (name, _) = rng.pick(&contents);
                    line(|| format!("admin: deletes content {}", name.name));
                    store.delete(Kind::Content, name);
                }
            }
        }
    }

    fn snapshot(store: &mut Store, rng: &mut Rng) {
        let claims = Actors::claims(store);
        let name = *rng.pick(&["s", "t"]);
        let class = *rng.pick(&[Some("snaps"), Some("snaps"), Some("kept-snaps"), None]);
        if claims.is_empty() {
            return;
        }
        // Most snapshots wait until the claim is bound.
        let bound = claims.iter().find(|(_, claim)| text(claim, "/status/phase") == "Bound");
        let (of, _) = bound.filter(|_| !rng.permille(200)).unwrap_or(&claims[0]);
        let snapshot = json!({
            "metadata": { "name": name, "namespace": TEAM },
            "spec": { "source": { "persistentVolumeClaimName": of.name }, "volumeSnapshotClassName": class },
            "status": {},
        });
        if let Some(created) = store.create(Kind::Snapshot, snapshot) {
            line(|| format!("user: creates snapshot {name} of claim {of}, UID {}", uid(&created)));
            count("snapshots requested");
        }
    }

    fn delete_snapshot(store: &mut Store, rng: &mut Rng) {
        if let Some(name) = some_snapshot(store, rng) {
            line(|| format!("user: deletes snapshot {name}"));
            count("snapshots deleted");
            store.delete(Kind::Snapshot, &name);
        }
    }

    /// Deletes a snapshot with `kubectl delete` and a patch that removes all finalizers. Its content is not informed.
    fn remove_finalizers(store: &mut Store, rng: &mut Rng) {
        if let Some(name) = some_snapshot(store, rng) {
            line(|| format!("admin: deletes snapshot {name}, and removes its finalizers"));
            count("snapshots forced away");
            store.delete(Kind::Snapshot, &name);
            store.update(Kind::Snapshot, &name, |snapshot| snapshot["metadata"]["finalizers"] = json!([]));
        }
    }

    /// Loses a content with its VolumeSnapshot, while the stored snapshot stays, and restores the content from a backup:
    /// with or without its status, and with or without the UID of the VolumeSnapshot. The version of the store decides,
    /// so that the histories of earlier seeds stay as they are.
    fn restore_content(store: &mut Store, world: &mut World) {
        let whole = |content: &Value| {
            let id = text(content, "/spec/volumeSnapshotRef/uid");
            let keys: Vec<_> = world.snapshots.iter().filter(|((of, _), whole)| of == id && **whole).collect();
            let is_used = finalizers(content).any(|of| of.starts_with(names::CLONE_FINALIZER));
            let is_there = content["status"]["readyToUse"] == true && !is_deleting(content) && !is_used;
            let begun = !annotation(content, names::PROVENANCE).is_empty();
            let keys: Vec<_> = keys.into_iter().map(|(key, _)| key.clone()).collect();
            (is_there && begun && !keys.is_empty()).then_some(keys)
        };
        let found =
            all(store, Kind::Content).into_iter().find_map(|(name, of)| whole(&of).map(|keys| (name, of, keys)));
        let Some((name, content, keys)) = found else { return };
        line(|| format!("mishap: loses content {} and its snapshot; a backup restores the content", name.name));
        count("contents restored");
        let mut saved = super::backup::saved(&content);
        match store.version() % 2 {
            0 => saved["status"] = content["status"].clone(),
            _ => saved["status"] = json!({}),
        }
        if (store.version() / 2).is_multiple_of(2) {
            saved["spec"]["volumeSnapshotRef"].as_object_mut().map(|of| of.remove("uid"));
        }
        let of = ObjectName::new(TEAM, text(&content, "/spec/volumeSnapshotRef/name"));
        store.remove(Kind::Content, &name);
        store.remove(Kind::Snapshot, &of);
        if let Some(created) = store.create(Kind::Content, saved) {
            world.restored_snapshots.insert(uid(&created).to_owned(), keys);
        }
    }

    fn restore(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng) {
        let Some(from) = some_snapshot(store, rng) else { return };
        let name = *rng.pick(&["a", "b", "c"]);
        // No other image knows the storage of the imported snapshot; no object records which class made it.
        let class = if from.name == GIVEN { self.classes[0] } else { *rng.pick(&self.classes) };
        let mut wanted = claim(name, class, &json!({}));
        wanted["spec"]["dataSource"] = json!({ "apiGroup": api::GROUP, "kind": "VolumeSnapshot", "name": from.name });
        if let Some(created) = store.create(Kind::Claim, wanted) {
            line(|| format!("user: creates claim {name} of class {class} from snapshot {from}, UID {}", uid(&created)));
            count("restores requested");
            self.created += 1;
            world.consumed.insert(ObjectName::new(TEAM, name));
        }
    }

    /// Imports a snapshot that the backend has, and that no run has made.
    fn import(store: &mut Store, world: &mut World) {
        let at = ObjectName::new("", GIVEN);
        if store.get(Kind::Content, &at).is_some() || world.snapshots.keys().any(|(id, _)| id == GIVEN) {
            return;
        }
        line(|| "admin: imports a snapshot".to_owned());
        count("snapshots imported");
        world.snapshots.insert((GIVEN.to_owned(), String::new()), true);
        let content = json!({
            "metadata": { "name": GIVEN },
            "spec": {
                "deletionPolicy": "Delete", "driver": PROVISIONER, "source": { "snapshotHandle": GIVEN },
                "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "snaps",
                "volumeSnapshotRef": { "namespace": TEAM, "name": GIVEN },
            },
            "status": {},
        });
        store.create(Kind::Content, content);
        let snapshot = json!({
            "metadata": { "name": GIVEN, "namespace": TEAM },
            "spec": { "source": { "volumeSnapshotContentName": GIVEN }, "volumeSnapshotClassName": "snaps" },
            "status": {},
        });
        store.create(Kind::Snapshot, snapshot);
    }

    /// Deletes snapshots of volumes on nodes that do not come back, as a user, and abandons existing contents there, as
    /// an admin. Contents that a backup may have restored are abandoned, too, after what they store was deleted by hand.
    pub(super) fn delete_all_snapshots(&self, store: &mut Store, world: &mut World) {
        for (name, content) in all(store, Kind::Content) {
            let of = ObjectName::new(TEAM, text(&content, "/spec/volumeSnapshotRef/name"));
            let of = store.get(Kind::Snapshot, &of).cloned();
            let of = of.filter(|of| uid(of) == text(&content, "/spec/volumeSnapshotRef/uid") && !is_deleting(of));
            let class = document(&content, names::PROVENANCE);
            let config = store.get(Kind::Config, &ObjectName::new(SYSTEM, text(&class, "/class")));
            let holds = config.is_some_and(|config| config["data"]["node-gone"] == "hold");
            let (lost, ready) = (world.lost.contains(&node_of(&content)), content["status"]["readyToUse"] == true);
            let bound = !text(&content, "/spec/volumeSnapshotRef/uid").is_empty();
            let stays = text(&content, "/spec/deletionPolicy") == "Retain";
            if let Some(keys) = world.restored_snapshots.remove(uid(&content)) {
                line(|| format!("admin: deletes what content {} stores, abandons it, and deletes it", name.name));
                for key in keys {
                    world.snapshots.remove(&key);
                    world.let_go.insert(key.0);
                }
                store.update(Kind::Content, &name, |content| {
                    content["metadata"]["annotations"][names::ABANDON] = json!(names::ABANDON_YES);
                });
                store.delete(Kind::Content, &name);
                continue;
            }
            match of {
                // This includes contents that are terminating, which an event tells the admin to delete. A
                // VolumeSnapshot without the orchestrator's finalizer says nothing about the stored snapshot.
                None if bound && !is_deleting(&content) && !(ready && stays) => {
                    line(|| format!("admin: deletes content {}, whose snapshot is gone", name.name));
                    store.delete(Kind::Content, &name);
                }
                None if bound && is_deleting(&content) && looks_restored(store, &content) => {
                    line(|| format!("admin: deletes what content {} stores, and abandons it", name.name));
                    let id = text(&content, "/spec/volumeSnapshotRef/uid");
                    world.snapshots.retain(|(of, _), _| of != id);
                    world.let_go.insert(id.to_owned());
                    store.update(Kind::Content, &name, |content| {
                        content["metadata"]["annotations"][names::ABANDON] = json!(names::ABANDON_YES);
                    });
                }
                Some(of) if lost && !ready || is_deleting(&content) => {
                    let name = crate::store::name_of(&of);
                    line(|| format!("user: deletes snapshot {name}"));
                    store.delete(Kind::Snapshot, &name);
                }
                None if lost && holds && is_deleting(&content) && annotation(&content, names::ABANDON).is_empty() => {
                    line(|| format!("admin: abandons content {}", name.name));
                    store.update(Kind::Content, &name, |content| {
                        content["metadata"]["annotations"][names::ABANDON] = json!(names::ABANDON_YES);
                    });
                }
                _ => {}
            }
        }
    }

    /// Deletes all snapshots.
    pub(super) fn delete_every_snapshot(store: &mut Store) {
        for (name, _) in all(store, Kind::Snapshot) {
            store.delete(Kind::Snapshot, &name);
        }
    }
}

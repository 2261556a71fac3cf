//! Users and admins: the first objects of the cluster, and the actions of these people.

mod backup;
mod configs;
mod in_place;
mod repairs;
mod runs;
mod snapshots;

use std::collections::BTreeMap;
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

pub use self::backup::is_restored;
pub use self::snapshots::classes as snapshot_classes;
use crate::api::FOREGROUND;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, is_deleting, text, uid};
use crate::trace::{count, line};
use crate::world::{CLAIM_PROTECTION, VOLUME_PROTECTION, World};
use crate::{PROVISIONER, SYSTEM, TEAM, VENDOR};

/// All nodes.
pub const NODES: &[&str] = &["n1", "n2", "n3"];

/// All VolumeAttributesClasses.
pub const ATTRIBUTES: [&str; 2] = ["gold", "silver"];

/// The class that keeps the storage of deleted claims.
pub const KEPT: &str = "kept";

/// The finalizer of another controller.
pub const OTHERS: &str = "other.example/in-use";

/// Checks whether a claim is bound to a volume that the orchestrator has adopted, or is about to adopt.
fn is_used(volume: &Value) -> bool {
    text(volume, "/status/phase") == "Bound" && !annotation(volume, names::PROVENANCE).is_empty()
}

/// Users and admins.
#[derive(Debug, Default)]
pub struct Actors {
    /// The classes of this history.
    classes: Vec<&'static str>,
    /// The configs in their correct form.
    configs: Vec<Value>,
    /// The lost objects that are to be restored.
    lost: Vec<backup::Lost>,
    /// The number of claims that are still to be restored.
    backups: Vec<Value>,
    /// The number of claims created so far.
    created: usize,
}

/// Returns whether the volumes of the class are on the nodes where they were made.
fn is_local(class: &str) -> bool {
    matches!(class, "local" | "loose")
}

/// Returns the namespace of a class's config.
fn namespace(class: &str) -> &'static str {
    if class == "vendor" { VENDOR } else { SYSTEM }
}

/// Returns the name of the config to which a swapped class points.
fn second(class: &str) -> String {
    format!("{class}-two")
}

fn config(class: &str, profile: &Profile) -> Value {
    let mut data = json!({
        "plugin-name": names::DEFAULT_PLUGIN,
        "image": "registry.example/images/maker:1",
        "timeout": "60s",
        "max-in-flight": profile.most.to_string(),
        "kind": if is_local(class) { "local" } else { "nfs" },
    });
    let expands = class != "pure" && !is_local(class);
    data["capabilities"] = json!(match (expands, profile.snapshots) {
        (true, false) => "clone, expand, modify",
        (false, false) => "clone",
        (true, true) => "clone, expand, modify, snapshot",
        (false, true) => "clone, snapshot",
    });
    if let Some(each) = profile.each {
        data["max-in-flight-per-namespace"] = json!(each.to_string());
        if is_local(class) {
            data["max-in-flight-per-node"] = json!(each.to_string());
        }
    }
    if let Some(share) = profile.share {
        data["max-volumes"] = json!(share.to_string());
    }
    if let Some(size) = profile.batch {
        data["batch-size"] = json!(size.to_string());
    }
    if let Some(count) = profile.pool {
        data["pool"] = json!(format!("1Gi={count}"));
        data["capabilities"] = json!(format!("{}, pool", data["capabilities"].as_str().unwrap_or_default()));
    }
    match is_local(class) {
        true => {
            data["volume-sources"] = json!("local:/vol");
            data["node-gone"] = json!(profile.node_gone);
        }
        false => data["placement"] = json!("any"),
    }
    if class == "script" {
        // A parameter for the image, which then makes its volume by hand.
        data["by-hand"] = json!("yes");
    }
    json!({
        "metadata": {
            "name": class, "namespace": namespace(class),
            "labels": { names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: class },
        },
        "data": data,
    })
}

fn class(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "provisioner": if name == "foreign" { "other.example" } else { PROVISIONER },
        "reclaimPolicy": if name == KEPT { "Retain" } else { "Delete" },
        "allowVolumeExpansion": true,
        "volumeBindingMode": if name == "local" { "WaitForFirstConsumer" } else { "Immediate" },
    })
}

fn node(name: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: name } } })
}

fn claim(name: &str, class: &str, annotations: &Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": TEAM, "annotations": annotations, "finalizers": [CLAIM_PROTECTION] },
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Pending" },
    })
}

impl Actors {
    /// Builds the cluster at its beginning, with objects that do not concern the orchestrator.
    pub fn new(store: &mut Store, profile: &Profile) -> Self {
        let mut people = Actors { classes: profile.classes.clone(), ..Actors::default() };
        for name in NODES {
            store.create(Kind::Node, node(name));
        }
        people.open(store);
        for name in profile.classes.iter().copied() {
            if name != "pure" {
                store.create(Kind::Class, class(name));
            }
            let config = config(name, profile);
            store.create(Kind::Config, config.clone());
            if profile.swaps && name != "pure" {
                let mut other = config.clone();
                other["metadata"]["name"] = json!(second(name));
                other["metadata"]["labels"] = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG });
                other["data"]["image"] = json!("registry.example/images/other:1");
                store.create(Kind::Config, other.clone());
                people.configs.push(other);
            }
            people.configs.push(config);
        }
        store.create(Kind::Class, class("foreign"));
        let mut theirs = claim("foreign", "foreign", &json!({}));
        theirs["metadata"]["finalizers"] = json!(["other.example/keep"]);
        store.create(Kind::Claim, theirs);
        let their_volume = |name: &str, phase: &str, more: Value| {
            let mut volume = json!({
                "metadata": { "name": name, "annotations": { names::PROVISIONED_BY: "other.example" }, "finalizers": [VOLUME_PROTECTION] },
                "spec": {
                    "storageClassName": "foreign", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" },
                    "persistentVolumeReclaimPolicy": "Delete", "nfs": { "server": "s", "path": "/x" },
                },
                "status": { "phase": phase },
            });
            crate::api::merge(&mut volume, &more);
            volume
        };
        let released = json!({ "spec": { "claimRef": { "namespace": TEAM, "name": "gone", "uid": "c-gone" } } });
        store.create(Kind::Volume, their_volume("foreign-released", "Failed", released));
        store.create(Kind::Volume, their_volume("foreign-free", "Available", json!({})));
        store.create(
            Kind::Job,
            json!({ "metadata": { "name": "foreign", "namespace": SYSTEM }, "spec": { "template": {} }, "status": { "conditions": [{ "type": "Complete", "status": "True" }] } }),
        );
        people
    }

    /// Returns the size of each class's pool.
    pub fn pools(&self, profile: &Profile) -> BTreeMap<String, usize> {
        let classes = self.classes.iter().filter_map(|class| Some(((*class).to_owned(), profile.pool?)));
        classes.collect()
    }

    fn claims(store: &Store) -> Vec<(ObjectName, Rc<Value>)> {
        let own = store.all(Kind::Claim).filter(|(name, _)| !name.name.starts_with("foreign"));
        own.map(|(name, claim)| (name.clone(), claim.clone())).collect()
    }

    fn volumes(store: &Store) -> Vec<(ObjectName, Rc<Value>)> {
        let own = store.all(Kind::Volume).filter(|(name, _)| !name.name.starts_with("foreign"));
        own.map(|(name, volume)| (name.clone(), volume.clone())).collect()
    }

    /// Plays one action of a user or an admin.
    pub fn act(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng, profile: &Profile) {
        let weights = [
            if self.created < profile.claims { 10 } else { 0 },
            4,
            if profile.volumes { 4 } else { 0 },
            if profile.in_place { 6 } else { 0 },
            if profile.manual_removals { 6 } else { 0 },
            if profile.configs { 4 } else { 0 },
            if profile.nodes { 4 } else { 0 },
            if profile.others { 6 } else { 0 },
            if profile.swaps { 6 } else { 0 },
            if profile.vendor { 3 } else { 0 },
            if profile.snapshots { 14 } else { 0 },
            if profile.restores { 30 } else { 0 },
            if profile.second_pods { 12 } else { 0 },
            if profile.copies { 12 } else { 0 },
            if world.is_down { 1 } else { 0 },
            if profile.records { 8 } else { 0 },
        ];
        match rng.weighted(&weights) {
            Some(0) => {
                self.create(store, world, rng);
                let more: &[&str] = match (profile.outages, profile.batch) {
                    (true, _) => &["a", "b", "c", "d", "e", "f", "g", "h"],
                    (false, Some(_)) => &["a", "b", "c", "d", "e"],
                    (false, None) => &[],
                };
                self.create_more(store, world, rng, more);
            }
            Some(1) => {
                let claims = Actors::claims(store);
                if !claims.is_empty() {
                    let (name, _) = rng.pick(&claims);
                    line(|| format!("user: deletes claim {name}"));
                    count("claims deleted");
                    store.delete(Kind::Claim, name);
                }
            }
            Some(2) => Actors::touch_volume(store, world, rng),
            Some(3) if rng.permille(500) => Actors::modify(store, rng),
            Some(3) => Actors::expand(store, rng),
            Some(4) => self.remove_by_hand(store, rng),
            Some(5) => self.touch_config(store, rng, profile),
            Some(6) => {
                let name = ObjectName::new("", *rng.pick(NODES));
                match store.get(Kind::Node, &name).is_some() {
                    true => {
                        line(|| format!("admin: node {} is deleted", name.name));
                        count("nodes gone");
                        world.went.insert(name.name.clone());
                        store.remove(Kind::Node, &name);
                    }
                    false => {
                        store.create(Kind::Node, node(&name.name));
                    }
                }
            }
            Some(7) => Actors::mark(store, world, rng),
            Some(8) => self.swap(store, rng),
            Some(9) => match store.is_closed(VENDOR) {
                true => self.open(store),
                false => Actors::close(store),
            },
            Some(11) => self.lose(store, world, rng),
            Some(12) => Actors::remove_by_force(store, world, rng),
            Some(13) => Actors::copy_job(store, world, rng),
            Some(10) => self.touch_snapshot(store, world, rng, profile),
            Some(14) => Actors::repair_backend(world),
            Some(15) => Actors::copy_record(store, rng),
            _ => {}
        }
    }

    /// Asks for the next attempt of an object at once, whether its last run failed or not.
    fn retry(store: &mut Store, kind: Kind, name: &ObjectName) {
        line(|| format!("user: asks for the next attempt of {kind:?} {name}"));
        count("attempts asked for");
        store.update(kind, name, |object| object["metadata"]["annotations"][names::RETRY] = json!("now"));
    }

    /// Ends the outage of the backend.
    fn repair_backend(world: &mut World) {
        line(|| "admin: the backend is up".to_owned());
        count("outages ended");
        world.is_down = false;
    }

    /// Adds or removes the finalizer of another controller on an object, or asks for its next attempt.
    fn mark(store: &mut Store, world: &mut World, rng: &mut Rng) {
        let mut all: Vec<_> = Actors::claims(store).into_iter().map(|of| (Kind::Claim, of)).collect();
        all.extend(Actors::volumes(store).into_iter().map(|of| (Kind::Volume, of)));
        if all.is_empty() {
            return;
        }
        let (kind, (name, object)) = rng.pick(&all);
        if rng.permille(300) {
            return Actors::retry(store, *kind, name);
        }
        let mark = (*kind, name.clone(), uid(object).to_owned());
        if world.marked.contains(&mark) {
            return Actors::unmark(store, world, &mark);
        }
        if !is_deleting(object) {
            line(|| format!("another controller: adds its finalizer to {kind:?} {name}"));
            count("finalizers of others");
            store.update(*kind, name, |object| crate::api::add_finalizer(object, OTHERS));
            world.marked.insert(mark);
        }
    }

    fn unmark(store: &mut Store, world: &mut World, mark: &(Kind, ObjectName, String)) {
        let (kind, name, of) = mark;
        world.marked.remove(mark);
        if store.get(*kind, name).is_some_and(|object| uid(object) == of) {
            line(|| format!("another controller: removes its finalizer from {kind:?} {name}"));
            store.update(*kind, name, |object| crate::store::drop_finalizer(object, OTHERS));
        }
    }

    /// Creates several claims of a class at one time.
    fn create_more(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let class = *rng.pick(&self.classes);
        for name in names.iter().copied() {
            if rng.permille(700) && store.create(Kind::Claim, claim(name, class, &json!({}))).is_some() {
                line(|| format!("user: creates claim {name} of class {class}, too"));
                count("claims created");
                if rng.permille(800) {
                    world.consumed.insert(ObjectName::new(TEAM, name));
                }
            }
        }
    }

    fn create(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng) {
        let name = *rng.pick(&["a", "b", "c"]);
        let class = *rng.pick(&self.classes);
        let mut annotations = json!({});
        let claims = Actors::claims(store);
        if rng.permille(100) && !claims.is_empty() {
            let (from, source) = rng.pick(&claims);
            line(|| format!("user: copies claim {from} with its annotations"));
            count("claims copied");
            annotations = source["metadata"]["annotations"].clone();
            for key in [names::BIND_COMPLETED, names::BOUND_BY_CONTROLLER, names::SELECTED_NODE] {
                annotations.as_object_mut().map(|annotations| annotations.remove(key));
            }
        }
        let mut wanted = claim(name, class, &annotations);
        // Every third claim that can: this draws no number.
        let source =
            claims.iter().find(|(of, claim)| text(claim, "/spec/storageClassName") == class && of.name != name);
        if let Some((of, _)) = source.filter(|_| self.created % 3 == 2) {
            wanted["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": of.name });
        }
        if let Some(created) = store.create(Kind::Claim, wanted) {
            if let Some(of) = created.pointer("/spec/dataSource/name") {
                line(|| format!("user: claim {name} is to clone {of}"));
                count("clones requested");
            }
            line(|| format!("user: creates claim {name} of class {class}, UID {}", uid(&created)));
            count("claims created");
            self.created += 1;
            if rng.permille(800) {
                world.consumed.insert(ObjectName::new(TEAM, name));
            }
        }
    }

    fn touch_volume(store: &mut Store, world: &mut World, rng: &mut Rng) {
        let volumes = Actors::volumes(store);
        if volumes.is_empty() {
            return;
        }
        // A claim can be bound between the two writes of an adoption, for a moment.
        let unmarked = volumes.iter().find(|(_, volume)| is_used(volume) && text(volume, "/status/reason").is_empty());
        let (name, volume) = unmarked.unwrap_or_else(|| rng.pick(&volumes));
        if rng.permille(500) {
            line(|| format!("admin: deletes volume {}", name.name));
            count("volumes deleted by admins");
            store.delete(Kind::Volume, name);
            return;
        }
        let policy = if text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" { "Retain" } else { "Delete" };
        line(|| format!("admin: volume {} gets policy {policy}", name.name));
        count("policies changed");
        store.update(Kind::Volume, name, |volume| volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy));
        // An admin who sees the claim bound decides about the data of its user.
        match is_used(volume) && policy == "Retain" {
            true => world.retained.insert(uid(volume).to_owned()),
            false => world.retained.remove(uid(volume)),
        };
    }

    fn remove_by_hand(&self, store: &mut Store, rng: &mut Rng) {
        let kind = *rng.pick(&[Kind::Job, Kind::Pod]);
        let there: Vec<ObjectName> = store
            .all(kind)
            .filter(|(name, _)| !name.name.starts_with("foreign"))
            .map(|(name, _)| name.clone())
            .collect();
        if there.is_empty() {
            return;
        }
        let name = rng.pick(&there);
        line(|| format!("user: deletes {kind:?} {name} by hand"));
        count("Jobs and pods deleted by hand");
        if kind == Kind::Job && rng.permille(500) {
            store.update(kind, name, |job| crate::api::add_finalizer(job, FOREGROUND));
        }
        store.delete(kind, name);
    }
}

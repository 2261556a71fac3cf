//! Users and admins: what stands in the cluster at first, and what they do to it.

use std::rc::Rc;

use contract::names;
use flex_provisioner::object::ObjectName;
use serde_json::{Value, json};

use crate::api::FOREGROUND;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, is_deleting, text, uid};
use crate::trace::{count, line};
use crate::world::{CLAIM_PROTECTION, VOLUME_PROTECTION, World};
use crate::{PROVISIONER, SYSTEM, TEAM};

/// All nodes.
pub const NODES: &[&str] = &["n1", "n2", "n3"];

/// The classes of a history; none knows more than the others.
const CLASSES: &[&str] = &["shared", "local", "kept", "pure", "script"];

/// Users and admins.
#[derive(Debug, Default)]
pub struct People {
    /// The classes of this history.
    classes: Vec<&'static str>,
    /// The configs as they should be.
    configs: Vec<Value>,
    /// Claims that were created.
    created: usize,
}

fn config(class: &str, most: usize) -> Value {
    let mut data = json!({
        "plugin-name": names::DEFAULT_PLUGIN,
        "image": "registry.example/images/maker:1",
        "timeout": "60s",
        "max-in-flight": most.to_string(),
        "kind": if class == "local" { "local" } else { "nfs" },
    });
    data["capabilities"] = json!(if class != "pure" && class != "local" { "clone, expand" } else { "clone" });
    match class {
        "local" => data["volume-sources"] = json!("local:/vol"),
        _ => data["placement"] = json!("any"),
    }
    if class == "script" {
        data["script"] = json!("yes");
    }
    json!({
        "metadata": {
            "name": class, "namespace": SYSTEM,
            "labels": { names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: class },
        },
        "data": data,
    })
}

fn class(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "provisioner": if name == "foreign" { "other.example" } else { PROVISIONER },
        "reclaimPolicy": if name == "kept" { "Retain" } else { "Delete" },
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

impl People {
    /// The cluster as it is at first, with things in it that are nobody's business.
    pub fn new(store: &mut Store, rng: &mut Rng, profile: &Profile) -> Self {
        let mut people = People::default();
        for name in NODES {
            store.create(Kind::Node, node(name));
        }
        for _ in 0..1 + rng.below(2) {
            let name = *rng.pick(CLASSES);
            if people.classes.contains(&name) {
                continue;
            }
            people.classes.push(name);
            if name != "pure" {
                store.create(Kind::Class, class(name));
            }
            let config = config(name, profile.most);
            store.create(Kind::Config, config.clone());
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

    fn claims(store: &Store) -> Vec<(ObjectName, Rc<Value>)> {
        let ours = store.all(Kind::Claim).filter(|(name, _)| !name.name.starts_with("foreign"));
        ours.map(|(name, claim)| (name.clone(), claim.clone())).collect()
    }

    fn volumes(store: &Store) -> Vec<(ObjectName, Rc<Value>)> {
        let ours = store.all(Kind::Volume).filter(|(name, _)| !name.name.starts_with("foreign"));
        ours.map(|(name, volume)| (name.clone(), volume.clone())).collect()
    }

    /// Somebody does something.
    pub fn act(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng, profile: &Profile) {
        let weights = [
            if self.created < profile.claims { 10 } else { 0 },
            4,
            if profile.volumes { 4 } else { 0 },
            if profile.growth { 6 } else { 0 },
            if profile.by_hand { 6 } else { 0 },
            if profile.configs { 4 } else { 0 },
            if profile.nodes { 4 } else { 0 },
        ];
        match rng.weighted(&weights) {
            Some(0) => self.create(store, world, rng),
            Some(1) => {
                let claims = People::claims(store);
                if !claims.is_empty() {
                    let (name, _) = rng.pick(&claims);
                    line(|| format!("user: deletes claim {name}"));
                    count("claims deleted");
                    store.delete(Kind::Claim, name);
                }
            }
            Some(2) => self.touch_volume(store, rng),
            Some(3) => People::grow(store, rng),
            Some(4) => self.by_hand(store, rng),
            Some(5) => self.touch_config(store, rng),
            Some(6) => {
                let name = ObjectName::new("", *rng.pick(NODES));
                match store.get(Kind::Node, &name).is_some() {
                    true => {
                        line(|| format!("admin: node {} goes", name.name));
                        count("nodes gone");
                        store.remove(Kind::Node, &name);
                    }
                    false => {
                        store.create(Kind::Node, node(&name.name));
                    }
                }
            }
            _ => {}
        }
    }

    fn create(&mut self, store: &mut Store, world: &mut World, rng: &mut Rng) {
        let name = *rng.pick(&["a", "b", "c"]);
        let class = *rng.pick(&self.classes);
        let mut annotations = json!({});
        let claims = People::claims(store);
        if rng.permille(100) && !claims.is_empty() {
            let (from, original) = rng.pick(&claims);
            line(|| format!("user: copies claim {from} with its annotations"));
            count("claims copied");
            annotations = original["metadata"]["annotations"].clone();
            for key in [names::BIND_COMPLETED, names::BOUND_BY_CONTROLLER, names::SELECTED_NODE] {
                annotations.as_object_mut().map(|annotations| annotations.remove(key));
            }
        }
        let mut wanted = claim(name, class, &annotations);
        // Every third one that can: nothing is drawn for it.
        let original =
            claims.iter().find(|(of, claim)| text(claim, "/spec/storageClassName") == class && of.name != name);
        if let Some((of, _)) = original.filter(|_| self.created % 3 == 2) {
            wanted["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": of.name });
        }
        if let Some(created) = store.create(Kind::Claim, wanted) {
            if let Some(of) = created.pointer("/spec/dataSource/name") {
                line(|| format!("user: claim {name} is to be a copy of {of}"));
                count("copies asked for");
            }
            line(|| format!("user: creates claim {name} of class {class}, UID {}", uid(&created)));
            count("claims created");
            self.created += 1;
            if rng.permille(800) {
                world.consumed.insert(ObjectName::new(TEAM, name));
            }
        }
    }

    /// A user asks for more.
    fn grow(store: &mut Store, rng: &mut Rng) {
        let mut bound = People::claims(store);
        bound.retain(|(_, claim)| {
            text(claim, "/status/phase") == "Bound"
                && !matches!(text(claim, "/spec/storageClassName"), "local" | "pure")
        });
        if bound.is_empty() {
            return;
        }
        let (name, claim) = rng.pick(&bound);
        let size = if text(claim, "/spec/resources/requests/storage") == "1Gi" { "2Gi" } else { "4Gi" };
        line(|| format!("user: claim {name} asks for {size}"));
        count("claims that ask for more");
        store.update(Kind::Claim, name, |claim| claim["spec"]["resources"]["requests"]["storage"] = json!(size));
    }

    fn touch_volume(&self, store: &mut Store, rng: &mut Rng) {
        let volumes = People::volumes(store);
        if volumes.is_empty() {
            return;
        }
        let (name, volume) = rng.pick(&volumes);
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
    }

    fn by_hand(&self, store: &mut Store, rng: &mut Rng) {
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

    fn touch_config(&mut self, store: &mut Store, rng: &mut Rng) {
        let at = rng.below(self.configs.len());
        let name = crate::store::name_of(&self.configs[at]);
        count("configs changed");
        match rng.below(4) {
            0 => {
                let version = format!("registry.example/images/maker:{}", 1 + rng.below(3));
                line(|| format!("admin: config {name} gets image {version}"));
                self.configs[at]["data"]["image"] = json!(version);
                self.mend(store, at);
            }
            1 => {
                line(|| format!("admin: breaks config {name}"));
                store.update(Kind::Config, &name, |config| config["data"]["timeout"] = json!("soon"));
            }
            2 => {
                line(|| format!("admin: deletes config {name}"));
                store.remove(Kind::Config, &name);
            }
            _ => self.mend(store, at),
        }
    }

    /// A config is again as it should be.
    fn mend(&self, store: &mut Store, at: usize) {
        let right = &self.configs[at];
        let name = crate::store::name_of(right);
        if store.update(Kind::Config, &name, |config| config["data"] = right["data"].clone()).is_none() {
            line(|| format!("admin: creates config {name}"));
            store.create(Kind::Config, right.clone());
        }
    }

    /// Everything that only a person can put right is put right.
    pub fn repair(&self, store: &mut Store) {
        (0..self.configs.len()).for_each(|at| self.mend(store, at));
        for name in NODES {
            if store.get(Kind::Node, &ObjectName::new("", *name)).is_none() {
                store.create(Kind::Node, node(name));
            }
        }
        self.discard(store);
    }

    /// Admins delete volumes that were refused.
    pub fn discard(&self, store: &mut Store) {
        for (name, volume) in People::volumes(store) {
            if !annotation(&volume, names::QUARANTINE).is_empty() && !is_deleting(&volume) {
                line(|| format!("admin: deletes volume {}, which was refused", name.name));
                store.delete(Kind::Volume, &name);
            }
        }
    }

    /// All claims are deleted.
    pub fn leave(&self, store: &mut Store) {
        for (name, _) in People::claims(store) {
            store.delete(Kind::Claim, &name);
        }
    }
}

//! The PV controller of Kubernetes. It uses its own caches, which lag, and makes one write at a time. Each write is
//! guarded by the version in its cache.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use crate::PROVISIONER;
use crate::store::{Kind, Store, annotation, name_of, text, uid};
use crate::trace::{count, line};

/// The PV controller.
#[derive(Debug, Default)]
pub struct PvController {
    claims: BTreeMap<ObjectName, Rc<Value>>,
    volumes: BTreeMap<ObjectName, Rc<Value>>,
    cache: [usize; 2],
    /// The objects to reconcile.
    pub todo: BTreeSet<(Kind, ObjectName)>,
    /// The claims whose phase it set to Lost.
    pub lost: u64,
}

impl PvController {
    /// Returns whether its watch of a kind has a change to show.
    pub fn is_behind(&self, store: &Store, kind: Kind) -> bool {
        self.cache[kind as usize] < store.log(kind).len()
    }

    /// Shows one more change of a kind.
    pub fn show_next(&mut self, store: &Store, kind: Kind) {
        let change = &store.log(kind)[self.cache[kind as usize]];
        self.cache[kind as usize] += 1;
        let cache = if kind == Kind::Claim { &mut self.claims } else { &mut self.volumes };
        match change.gone {
            true => {
                cache.remove(&change.name);
            }
            false => {
                cache.insert(change.name.clone(), change.object.clone());
            }
        }
        self.todo.insert((kind, change.name.clone()));
        match kind {
            Kind::Claim => {
                let volume = text(&change.object, "/spec/volumeName");
                if !volume.is_empty() {
                    self.todo.insert((Kind::Volume, ObjectName::new("", volume)));
                }
            }
            _ => {
                let claim = &change.object["spec"]["claimRef"];
                self.todo.insert((Kind::Claim, ObjectName::new(text(claim, "/namespace"), text(claim, "/name"))));
            }
        }
    }

    /// Queues all known objects, as its periodic resync does.
    pub fn resync(&mut self) {
        self.todo.extend(self.claims.keys().map(|name| (Kind::Claim, name.clone())));
        self.todo.extend(self.volumes.keys().map(|name| (Kind::Volume, name.clone())));
    }

    /// Reconciles one object.
    pub fn sync(&mut self, store: &mut Store, kind: Kind, name: &ObjectName) {
        match kind {
            Kind::Claim => self.claim(store, name),
            _ => self.volume(store, name),
        }
    }

    /// Makes a write that is valid only for the version in the cache.
    fn write(&mut self, store: &mut Store, kind: Kind, cached: &Value, change: impl FnOnce(&mut Value)) {
        let name = name_of(cached);
        let current = store.get(kind, &name);
        if current.is_none_or(|current| current["metadata"]["resourceVersion"] != cached["metadata"]["resourceVersion"])
        {
            // The conflicting change is on its way to the cache.
            count("conflicts of the PV controller");
            return;
        }
        if let Some(written) = store.update(kind, &name, change)
            && *written != *cached
        {
            line(|| format!("PV controller: writes {kind:?} {name}"));
            let cache = if kind == Kind::Claim { &mut self.claims } else { &mut self.volumes };
            if cache.contains_key(&name) {
                cache.insert(name.clone(), written);
            }
            self.todo.insert((kind, name));
        }
    }

    fn claim(&mut self, store: &mut Store, name: &ObjectName) {
        let Some(claim) = self.claims.get(name).cloned() else { return };
        let wanted = text(&claim, "/spec/volumeName");
        let complete = !annotation(&claim, names::BIND_COMPLETED).is_empty();
        if wanted.is_empty() {
            if complete {
                return self.lose(store, &claim);
            }
            match self.find(store, &claim) {
                Some(volume) => self.bind(store, &volume, &claim),
                None => self.provision(store, &claim),
            }
            return;
        }
        let volume = self.volumes.get(&ObjectName::new("", wanted)).cloned();
        let Some(volume) = volume else {
            if complete {
                self.lose(store, &claim);
            }
            return;
        };
        let reference = &volume["spec"]["claimRef"];
        let right = text(reference, "/uid") == uid(&claim) || (!complete && is_for(reference, &claim));
        if reference.is_null() || right {
            self.bind(store, &volume, &claim);
        } else if complete {
            self.lose(store, &claim);
        }
    }

    fn lose(&mut self, store: &mut Store, claim: &Value) {
        if text(claim, "/status/phase") != "Lost" {
            line(|| format!("PV controller: calls claim {} Lost", name_of(claim)));
            self.lost += 1;
            count("claims that were Lost for a moment");
            self.write(store, Kind::Claim, claim, |claim| claim["status"]["phase"] = json!("Lost"));
        }
    }

    /// Returns the volume that it would bind to a claim.
    fn find(&self, store: &Store, claim: &Value) -> Option<Rc<Value>> {
        let class = text(claim, "/spec/storageClassName");
        let object = store.get(Kind::Class, &ObjectName::new("", class));
        let delayed = object.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
            && annotation(claim, names::SELECTED_NODE).is_empty();
        let fits = |volume: &Value| {
            text(volume, "/spec/storageClassName") == class
                && volume["metadata"]["deletionTimestamp"].is_null()
                && volume["spec"]["capacity"]["storage"] == claim["spec"]["resources"]["requests"]["storage"]
        };
        let volumes = || self.volumes.values().filter(|volume| fits(volume));
        let reserved = volumes().find(|volume| {
            let reference = &volume["spec"]["claimRef"];
            !reference.is_null() && is_for(reference, claim)
        });
        let free = || {
            volumes()
                .find(|volume| volume["spec"]["claimRef"].is_null() && text(volume, "/status/phase") == "Available")
        };
        // No volume here has a label for a selector.
        let chooses = !delayed && claim["spec"]["selector"].is_null();
        reserved.or_else(|| if chooses { free() } else { None }).cloned()
    }

    /// Asks an external provisioner for a volume.
    fn provision(&mut self, store: &mut Store, claim: &Value) {
        let class = store.get(Kind::Class, &ObjectName::new("", text(claim, "/spec/storageClassName")));
        let Some(class) = class.cloned() else { return };
        let delayed = class["volumeBindingMode"] == "WaitForFirstConsumer";
        if delayed && annotation(claim, names::SELECTED_NODE).is_empty() {
            return;
        }
        let provisioner = text(&class, "/provisioner").to_owned();
        self.write(store, Kind::Claim, claim, |claim| {
            claim["metadata"]["annotations"][names::STORAGE_PROVISIONER] = json!(provisioner);
        });
    }

    /// Makes the four writes of a binding, each after the one before.
    fn bind(&mut self, store: &mut Store, volume: &Rc<Value>, claim: &Rc<Value>) {
        let reference = &volume["spec"]["claimRef"];
        let claim_name = name_of(claim);
        if uid(claim) != text(reference, "/uid") {
            let (claim_uid, unreserved) = (uid(claim).to_owned(), reference.is_null());
            return self.write(store, Kind::Volume, volume, |volume| {
                volume["spec"]["claimRef"] = json!({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim_name.namespace, "name": claim_name.name, "uid": claim_uid,
                });
                if unreserved {
                    volume["metadata"]["annotations"][names::BOUND_BY_CONTROLLER] = json!("yes");
                }
            });
        }
        if text(volume, "/status/phase") != "Bound" {
            return self.write(store, Kind::Volume, volume, |volume| volume["status"]["phase"] = json!("Bound"));
        }
        let volume_name = text(volume, "/metadata/name").to_owned();
        if text(claim, "/spec/volumeName") != volume_name || annotation(claim, names::BIND_COMPLETED).is_empty() {
            return self.write(store, Kind::Claim, claim, |claim| {
                if text(claim, "/spec/volumeName").is_empty() {
                    claim["spec"]["volumeName"] = json!(volume_name);
                    claim["metadata"]["annotations"][names::BOUND_BY_CONTROLLER] = json!("yes");
                }
                claim["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
            });
        }
        let capacity = volume["spec"]["capacity"].clone();
        self.write(store, Kind::Claim, claim, |claim| {
            claim["status"]["phase"] = json!("Bound");
            claim["status"]["capacity"] = capacity;
        });
    }

    fn volume(&mut self, store: &mut Store, name: &ObjectName) {
        let Some(volume) = self.volumes.get(name).cloned() else { return };
        let reference = &volume["spec"]["claimRef"];
        let phase = text(&volume, "/status/phase").to_owned();
        let set = |this: &mut Self, store: &mut Store, to: &str| {
            if phase != to {
                this.write(store, Kind::Volume, &volume, |volume| volume["status"]["phase"] = json!(to));
            }
        };
        if reference.is_null() || text(reference, "/uid").is_empty() {
            return set(self, store, "Available");
        }
        let claim_name = ObjectName::new(text(reference, "/namespace"), text(reference, "/name"));
        // The controller reads objects that its cache does not have.
        let mut claim = self.claims.get(&claim_name).cloned();
        if claim.as_ref().is_none_or(|claim| uid(claim) != text(reference, "/uid")) {
            claim = store.get(Kind::Claim, &claim_name).cloned();
        }
        let claim = claim.filter(|claim| uid(claim) == text(reference, "/uid"));
        let Some(claim) = claim else {
            if !matches!(phase.as_str(), "Released" | "Failed") {
                return set(self, store, "Released");
            }
            return self.reclaim(store, &volume);
        };
        match text(&claim, "/spec/volumeName") {
            "" => {
                if !annotation(&volume, names::BOUND_BY_CONTROLLER).is_empty() {
                    self.todo.insert((Kind::Claim, claim_name));
                }
            }
            bound if bound == name.name => set(self, store, "Bound"),
            _ => {
                let provisioned = !annotation(&volume, names::PROVISIONED_BY).is_empty();
                if provisioned && text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
                    if !matches!(phase.as_str(), "Released" | "Failed") {
                        return set(self, store, "Released");
                    }
                    return self.reclaim(store, &volume);
                }
                let by_controller = !annotation(&volume, names::BOUND_BY_CONTROLLER).is_empty();
                self.write(store, Kind::Volume, &volume, |volume| {
                    match by_controller {
                        true => volume["spec"]["claimRef"] = Value::Null,
                        false => volume["spec"]["claimRef"]["uid"] = Value::Null,
                    }
                    volume["status"]["phase"] = json!("Available");
                });
            }
        }
    }

    /// Reclaims a released volume: one of an external provisioner is left to it; for others no deleter exists here.
    fn reclaim(&mut self, store: &mut Store, volume: &Rc<Value>) {
        let deletes = text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
        let external = annotation(volume, names::PROVISIONED_BY).starts_with(PROVISIONER);
        if deletes && !external && text(volume, "/status/phase") != "Failed" {
            count("volumes that failed in-tree");
            self.write(store, Kind::Volume, volume, |volume| volume["status"]["phase"] = json!("Failed"));
        }
    }
}

/// Returns whether a reference names a claim, with its UID or without one.
fn is_for(reference: &Value, claim: &Value) -> bool {
    let name = ObjectName::new(text(reference, "/namespace"), text(reference, "/name"));
    name == name_of(claim) && matches!(text(reference, "/uid"), id if id.is_empty() || id == uid(claim))
}

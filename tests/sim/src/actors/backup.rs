//! Backup tools: a claim and its volume are lost while the storage stays, and both are restored as they were saved.

use std::collections::BTreeMap;
use std::rc::Rc;

use flex_contract::names;
use flex_core::model::record::is_record;
use flex_core::model::volume::adoption_mark;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{Actors, OTHERS};
use crate::records;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, finalizers, is_deleting, label, text, uid};
use crate::trace::{count, line};
use crate::world::{CLAIM_PROTECTION, StorageKey, World, has_condition};

/// A claim and its volume as they were saved.
#[derive(Clone, Debug)]
pub struct Lost {
    claim: Value,
    volume: Value,
    storage_key: StorageKey,
    order: usize,
}

/// Returns an object without the fields that the API server drops when it is created again.
pub(super) fn saved(object: &Value) -> Value {
    let mut saved = object.clone();
    saved["status"] = json!({ "phase": "Pending" });
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        saved["metadata"].as_object_mut().map(|metadata| metadata.remove(key));
    }
    saved
}

/// Returns whether a volume has provenance, and not its own mark.
pub fn is_restored(volume: &Value) -> bool {
    let provenance = annotation(volume, names::PROVENANCE);
    !provenance.is_empty() && text(volume, "/status/reason") != adoption_mark(provenance, uid(volume))
}

impl Actors {
    /// Loses a claim with its volume, of which a backup exists, with or without the fields that Kubernetes had written
    /// on both.
    pub(super) fn lose(&mut self, store: &mut Store, world: &World, rng: &mut Rng) {
        let quiet = |object: &Value| {
            // Without its claim and its volume, a record would have their storage deleted.
            let is_recorded = records::needed_by(store, uid(object)).is_some();
            !is_deleting(object) && !records::is_held(object) && !is_recorded && finalizers(object).all(|f| f != OTHERS)
        };
        let whole = |claim: &Value| {
            let volume = store.get(Kind::Volume, &ObjectName::new("", text(claim, "/spec/volumeName")))?;
            let marked = text(volume, "/status/reason").starts_with("Adopted-");
            let of_it = |id: &str| id == annotation(volume, names::VOLUME_ID);
            let runs = |job: &Value| of_it(label(job, names::LABEL_VOLUME_ID)) && !has_condition(job, "Complete");
            let busy = store.all(Kind::Job).any(|(_, job)| runs(job));
            let plain = text(claim, "/spec/volumeAttributesClassName").is_empty()
                && text(claim, "/status/currentVolumeAttributesClassName").is_empty()
                && finalizers(claim).all(|finalizer| finalizer == CLAIM_PROTECTION);
            let bound = text(claim, "/status/phase") == "Bound";
            let location = world.made.get(uid(volume)).cloned()?;
            let is_there = bound && marked && plain && !busy && quiet(volume) && world.backend.contains(&location);
            is_there.then(|| (volume.clone(), location))
        };
        let candidates: Vec<_> = Actors::claims(store)
            .into_iter()
            .filter(|(_, claim)| quiet(claim))
            .filter(|(name, _)| self.backups.iter().all(|backup| crate::store::name_of(backup) != *name))
            .filter_map(|(name, claim)| whole(&claim).map(|(volume, location)| (name, claim, volume, location)))
            .collect();
        if candidates.is_empty() {
            return;
        }
        let (name, claim, volume, location) = rng.pick(&candidates).clone();
        let (mut new_claim, mut new_volume) = (saved(&claim), saved(&volume));
        // Without its claimRef any claim could take the volume for a moment, which may not be short enough.
        new_volume["spec"]["claimRef"].as_object_mut().map(|of| of.remove("uid"));
        // Some tools restore the status, too. The version decides, so that histories of earlier seeds stay as they are.
        if store.version().is_multiple_of(2) {
            new_volume["status"]["reason"] = volume["status"]["reason"].clone();
        }
        if rng.permille(500) {
            for key in [names::BIND_COMPLETED, names::BOUND_BY_CONTROLLER] {
                new_claim["metadata"]["annotations"].as_object_mut().map(|annotations| annotations.remove(key));
            }
        }
        line(|| format!("mishap: loses claim {name} and its volume"));
        store.remove(Kind::Claim, &name);
        store.remove(Kind::Volume, &crate::store::name_of(&volume));
        self.lost.push(Lost { claim: new_claim, volume: new_volume, storage_key: location, order: rng.below(3) });
    }

    /// Restores a record of a run from a backup, with all its annotations: under its own name if that is free, or else
    /// under another. Most people do so after they have lost the claims.
    pub(super) fn copy_record(store: &mut Store, rng: &mut Rng) {
        let mut last: BTreeMap<&str, &Rc<Value>> = BTreeMap::new();
        for change in store.log(Kind::Revision).iter().filter(|change| is_record(&change.name.name)) {
            if records::is_armed(&change.object) {
                last.insert(uid(&change.object), &change.object);
            }
        }
        let mut saved_records: Vec<Rc<Value>> = last.into_values().cloned().collect();
        let is_lost = |record: &Value| records::claims(record).all(|of| records::claim(store, uid(of)).is_none());
        if rng.permille(700) && saved_records.iter().any(|record| is_lost(record)) {
            saved_records.retain(|record| is_lost(record));
        }
        if saved_records.is_empty() {
            return;
        }
        let record = rng.pick(&saved_records).clone();
        let name = crate::store::name_of(&record);
        let mut copy = saved(&record);
        copy["status"] = Value::Null;
        if store.get(Kind::Revision, &name).is_some() {
            copy["metadata"]["name"] = json!(format!("{}-{}", name.name, store.new_uid("copy")));
        }
        copy["metadata"].as_object_mut().map(|metadata| metadata.remove("deletionTimestamp"));
        if let Some(created) = store.create(Kind::Revision, copy) {
            line(|| format!("backup: restores record {} as {}", name.name, crate::store::name_of(&created).name));
            count("records copied");
        }
    }

    /// Restores lost objects, once Kubernetes' own controllers know of the loss: the claim before its volume, after it,
    /// or much later.
    pub fn restore_lost(&mut self, store: &mut Store, world: &mut World) {
        for Lost { claim, volume, storage_key: location, order } in std::mem::take(&mut self.lost) {
            line(|| format!("backup: restores volume {} from a backup", crate::store::name_of(&volume).name));
            count("volumes restored");
            if order == 0 {
                store.create(Kind::Claim, claim.clone());
            }
            if let Some(created) = store.create(Kind::Volume, volume) {
                world.made.insert(uid(&created).to_owned(), location.clone());
                world.restored.insert(uid(&created).to_owned(), location);
            }
            match order {
                1 => drop(store.create(Kind::Claim, claim)),
                2 => self.backups.push(claim),
                _ => {}
            }
        }
    }

    /// Returns whether a lost object is not restored yet.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Restores the rest of a half-restored pair, and vouches for the volume. If another claim has taken its part, the
    /// rest is deleted, with its storage.
    pub(super) fn vouch(&mut self, store: &mut Store, world: &mut World) {
        for claim in std::mem::take(&mut self.backups) {
            // A claim whose volume was deleted meanwhile waits for it, as it should.
            let volume = text(&claim, "/spec/volumeName");
            let taken = store.all(Kind::Claim).any(|(_, other)| text(other, "/spec/volumeName") == volume);
            if !taken && store.get(Kind::Volume, &ObjectName::new("", volume)).is_some() {
                store.create(Kind::Claim, claim);
            }
        }
        // Without its claimRef any claim can take a volume until it is reserved.
        for (name, claim) in Actors::claims(store) {
            let volume = store.get(Kind::Volume, &ObjectName::new("", text(&claim, "/spec/volumeName")));
            let of = |volume: &std::rc::Rc<Value>| text(volume, "/spec/claimRef/uid").to_owned();
            let restored = volume.filter(|volume| world.restored.contains_key(uid(volume))).map(of);
            if restored.is_some_and(|of| {
                !of.is_empty() && of != uid(&claim) && store.all(Kind::Claim).any(|(_, c)| uid(c) == of)
            }) {
                line(|| format!("admin: deletes claim {name}, whose volume another claim has taken"));
                store.remove(Kind::Claim, &name);
            }
        }
        // A claim whose restored volume was deleted has nothing to wait for either.
        let locations: Vec<_> = world.restored.values().map(|(id, _)| names::pv_name(id)).collect();
        for (name, claim) in Actors::claims(store) {
            let volume = text(&claim, "/spec/volumeName");
            let is_gone = store.get(Kind::Volume, &ObjectName::new("", volume)).is_none();
            if is_gone && locations.iter().any(|location| location == volume) {
                line(|| format!("admin: deletes claim {name}, whose volume was deleted"));
                store.remove(Kind::Claim, &name);
            }
        }
        for (name, volume) in Actors::volumes(store) {
            let Some(location) = world.restored.get(uid(&volume)).cloned() else { continue };
            let of = annotation(&volume, names::JOB_CLAIM).parse::<ObjectName>().ok();
            // Kubernetes binds it to the claim for which it is reserved, if the volume suits it.
            let wants = |claim: &Value| {
                if is_deleting(claim) {
                    return false;
                }
                let (spec, asked) = (&volume["spec"], &claim["spec"]);
                let fits = asked["storageClassName"] == spec["storageClassName"]
                    && asked["resources"]["requests"]["storage"] == spec["capacity"]["storage"];
                match text(claim, "/spec/volumeName") {
                    // A claim with an attempt gets a volume of its own.
                    "" => {
                        let begun = annotation(claim, names::CLAIM_UID) == uid(claim);
                        fits && !begun && Some(crate::store::name_of(claim)) == of
                    }
                    named => named == name.name,
                }
            };
            if is_deleting(&volume) || !store.all(Kind::Claim).any(|(_, claim)| wants(claim)) {
                line(|| format!("admin: deletes volume {}, which has no claim or was deleted", name.name));
                let named: Vec<_> = store
                    .all(Kind::Claim)
                    .filter(|(_, claim)| text(claim, "/spec/volumeName") == name.name)
                    .map(|(name, _)| name.clone())
                    .collect();
                named.iter().for_each(|claim| store.remove(Kind::Claim, claim));
                store.remove(Kind::Volume, &name);
                world.backend.remove(&location);
                continue;
            }
            // The volume would be deleted at once, or its restored claim would be Lost: the PV controller has bound it to
            // a claim that is gone.
            let of_gone = text(&volume, "/spec/claimRef/uid");
            if !of_gone.is_empty() && !store.all(Kind::Claim).any(|(_, claim)| uid(claim) == of_gone) {
                store.update(Kind::Volume, &name, |volume| {
                    volume["spec"]["claimRef"].as_object_mut().map(|of| of.remove("uid"));
                });
            }
            if is_restored(&volume) {
                line(|| format!("admin: vouches for volume {}", name.name));
                let reference = of.as_ref().map(|of| json!({ "namespace": of.namespace, "name": of.name }));
                if let Some(reference) = reference.filter(|_| volume["spec"]["claimRef"].is_null()) {
                    store.update(Kind::Volume, &name, |volume| volume["spec"]["claimRef"] = reference);
                }
                let adoption_mark = adoption_mark(annotation(&volume, names::PROVENANCE), uid(&volume));
                store.update(Kind::Volume, &name, |volume| volume["status"]["reason"] = json!(adoption_mark));
            }
        }
    }
}

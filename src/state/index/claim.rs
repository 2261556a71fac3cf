//! Claims, and the copies that are made of them.

use std::sync::Arc;

use flex_contract::request::Operation;

use super::{Change, Index, WorkItem, drop_from, within};
use crate::config::classes::ClassLookup;
use crate::config::record::hash_of;
use crate::model::claim::Claim;
use crate::model::data_source::DataSource;
use crate::object::ObjectName;
use crate::volume::{expand, modify};

impl Index {
    /// Returns a claim by its name.
    pub fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.claims.get(name).cloned()
    }

    /// Returns a claim by its UID, or by a volume id of its runs.
    pub fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.claim(self.claim_by_id.get(id)?)
    }

    /// Returns all claims.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }

    pub(super) fn claim_keys(&self, id: &str) -> Option<WorkItem> {
        self.claim_by_id.get(id).cloned().map(WorkItem::Claim)
    }

    /// Applies a change of a claim.
    pub fn change_claim(&mut self, change: Change<Claim>) -> Vec<WorkItem> {
        let is_another = |claim: &Claim| self.claims.get(&claim.name).is_some_and(|before| before.uid != claim.uid);
        match change {
            // A claim with another UID has the same name. No watch will report the deletion of the old one.
            Change::Apply(claim) if is_another(&claim) => {
                let mut keys = self.change_claim(Change::Delete(claim.name.clone()));
                keys.extend(self.change_claim(Change::Apply(claim)));
                keys
            }
            Change::Apply(claim) => {
                let keys = self.metadata_keys(&claim);
                let claim = claim.kept(keys);
                let name = claim.name.clone();
                self.unseen_writes.shows(&WorkItem::Claim(name.clone()), &claim.resource_version);
                let before = self.claims.get(&name).cloned();
                let mut keys = Vec::from_iter(self.capacity_keys_of_claim(before.as_deref(), &claim));
                if let Some(before) = before {
                    self.forget_claim(&before);
                }
                if self.has_begun(&claim) {
                    self.settle(&claim.uid);
                    self.quota_waiters.remove(&WorkItem::Claim(name.clone()));
                }
                if claim.deleting || claim.is_bound() {
                    keys.extend(self.leave_batches(Operation::Provision, &claim.id()));
                    keys.extend(self.stop_waiting_for_quota(&WorkItem::Claim(name.clone())));
                    keys.extend(self.dequeue(&WorkItem::Claim(name.clone())));
                    claim.ids().for_each(|id| drop(self.removed.remove(&id)));
                }
                let ids: Vec<_> = claim.ids().collect();
                let volumes: Vec<_> = ids.iter().flat_map(|id| self.volume_keys(id)).collect();
                self.claim_by_id.extend(ids.into_iter().map(|id| (id, name.clone())));
                // A bound claim without the finalizer concerns its volume only when it is terminating or requests more.
                let was_held = self.claims.get(&name).is_some_and(|before| before.has_finalizer());
                let quiet = claim.is_bound() && !claim.has_finalizer() && !claim.deleting && !was_held;
                let grows = self.wants_more(&claim);
                // A restored volume may be reserved for the claim by name alone.
                let named = claim.volume_name.as_ref().and_then(|volume| self.volumes.get(volume));
                let by_name = named.filter(|volume| volume.claim_ref.as_ref().is_none_or(|of| of.uid.is_empty()));
                keys.extend(by_name.map(|volume| WorkItem::Volume(volume.name.clone())));
                keys.extend(self.copy_keys(&name));
                keys.extend(claim.original().cloned().map(WorkItem::Claim));
                if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
                    self.copies.entry(source.clone()).or_default().insert(name.clone());
                }
                let before = self.claims.insert(name.clone(), Arc::new(claim));
                let now = self.claims[&name].clone();
                before.iter().chain([&now]).for_each(|claim| self.count_claim(claim));
                if before.is_some_and(|before| self.has_charge(&before) && !self.has_charge(&now)) {
                    keys.extend(now.class.as_deref().map(|class| self.wake_for_quota(class)).unwrap_or_default());
                }
                keys.extend(self.on_stamp(&now));
                keys.extend(self.on_pool_request(&now, false));
                keys.extend(self.snapshots.concerned_by_claim(&self.claims[&name]));
                keys.push(WorkItem::Claim(name));
                if !quiet || grows {
                    keys.extend(volumes);
                }
                keys
            }
            Change::Delete(name) => {
                let Some(claim) = self.claims.remove(&name) else { return Vec::new() };
                self.unseen_writes.gone(&WorkItem::Claim(name.clone()));
                self.forget_claim(&claim);
                let batches = self.leave_batches(Operation::Provision, &claim.id());
                claim.ids().for_each(|id| drop(self.removed.remove(&id)));
                claim.ids().for_each(|id| self.unstarted.forget(&id));
                let mut keys: Vec<_> = claim.ids().flat_map(|id| self.volume_keys(&id)).collect();
                keys.extend(self.dequeue(&WorkItem::Claim(name.clone())));
                keys.extend(batches);
                keys.extend(self.copy_keys(&name));
                self.settle(&claim.uid);
                self.count_claim(&claim);
                self.quota_waiters.remove(&WorkItem::Claim(name.clone()));
                keys.extend(self.on_pool_request(&claim, true));
                keys.extend(claim.class.as_deref().and_then(|class| self.pool_of(class)));
                keys.extend(claim.class.as_deref().map(|class| self.wake_for_quota(class)).unwrap_or_default());
                keys.extend(self.snapshots.concerned_by_claim(&claim));
                keys.extend(claim.original().cloned().map(WorkItem::Claim));
                keys.push(WorkItem::Claim(name));
                keys
            }
            Change::Retain(all) => {
                self.retain(all, |index| index.claims.keys().cloned().collect(), Index::change_claim)
            }
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.claims.keys(), &namespace), Index::change_claim)
            }
        }
    }

    /// Returns the keys of a claim's labels and annotations that an image may get. The configs of its class and of its
    /// attempt name them.
    pub fn metadata_keys(&self, claim: &Claim) -> Vec<String> {
        let Some(class) = claim.class.as_deref().filter(|_| !claim.is_bound()) else { return Vec::new() };
        let current = match self.classes.lookup(class) {
            ClassLookup::Ours(class) => class.recipe.as_ref().ok(),
            ClassLookup::Foreign | ClassLookup::Unknown => None,
        };
        let stamped = claim.own_stamp().and_then(|stamp| self.recipes.get(hash_of(&stamp.config)?));
        let stamped = stamped.filter(|recipe| recipe.class == class);
        let mut keys: Vec<_> =
            current.into_iter().chain(stamped).flat_map(|recipe| recipe.claim_metadata.iter().cloned()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// Checks whether the size or the attributes of a claim's volume need a decision.
    pub(super) fn wants_more(&self, claim: &Claim) -> bool {
        let volume = claim.volume_name.as_ref().and_then(|name| self.volumes.get(name));
        volume.is_some_and(|volume| expand::concerns(volume, claim) || modify::concerns(volume, claim))
    }

    fn forget_claim(&mut self, claim: &Claim) {
        for id in claim.ids() {
            self.claim_by_id.remove(&id);
        }
        if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
            drop_from(&mut self.copies, source, &claim.name);
        }
    }

    /// Returns the claims that wait for the claim or VolumeSnapshot with this name as their data source.
    pub(super) fn copy_keys(&self, original: &ObjectName) -> Vec<WorkItem> {
        let copies = self.copies.get(original).into_iter().flatten();
        let waits = |copy: &&ObjectName| self.claims.get(*copy).is_some_and(|copy| !copy.is_bound());
        copies.filter(waits).cloned().map(WorkItem::Claim).collect()
    }
}

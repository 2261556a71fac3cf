//! Changes of claims and volumes.

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_core::model::claim::{Claim, is_stand_in_name};
use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;

use super::wake::{Freed, VolumeNews};
use super::{Index, WatchChange, WorkItem, within};
use crate::state::quota::has_begun;
use crate::state::records::Shown;
use crate::state::sync_probes::is_probe;
use crate::state::watch_change::Changed;

impl Index {
    /// Applies a change of a claim.
    pub fn change_claim(&mut self, change: WatchChange<Claim>) -> Vec<WorkItem> {
        let claims = &self.facts.cache.claims;
        let is_another = |claim: &Claim| claims.get(&claim.name).is_some_and(|before| before.uid != claim.uid);
        match change {
            // A claim with another UID has the same name. No watch will report the deletion of the old one.
            WatchChange::Apply(claim) if is_another(&claim) => {
                self.facts
                    .cache
                    .claims
                    .get(&claim.name)
                    .iter()
                    .for_each(|before| self.facts.cache.volumes.note_claim_deleted(before));
                let mut items = self.remove_real_claim(&claim.name, Shown::Replaced);
                items.extend(self.change_claim(WatchChange::Apply(claim)));
                items
            }
            WatchChange::Apply(claim) => {
                let mut items = if claim.is_stand_in() { Vec::new() } else { self.remove_stand_in(&claim.uid) };
                let keys = self.metadata_keys(&claim);
                let changed = self.facts.cache.claims.apply(claim.kept(keys));
                items.extend(self.on_claim(&changed));
                items
            }
            WatchChange::Delete(name) => {
                if let Some(claim) = claims.get(&name) {
                    self.facts.cache.volumes.note_claim_deleted(&claim);
                }
                self.remove_real_claim(&name, Shown::Watched)
            }
            WatchChange::Retain(all) => {
                let missing = all.missing(self.listed_claims());
                self.remove_missing(missing, |index, name| index.remove_real_claim(name, Shown::Missed))
            }
            WatchChange::RetainIn(namespace, all) => {
                let missing = all.missing(within(self.listed_claims(), &namespace));
                self.remove_missing(missing, |index, name| index.remove_real_claim(name, Shown::Missed))
            }
        }
    }

    /// Removes a claim from the cache. A list without the claim proves nothing to its volumes: they ask the API.
    pub(super) fn remove_claim(&mut self, name: &ObjectName) -> Vec<WorkItem> {
        match self.facts.cache.claims.remove(name) {
            Some(changed) => self.on_claim(&changed),
            None => Vec::new(),
        }
    }

    fn on_claim(&mut self, changed: &Changed<Claim>) -> Vec<WorkItem> {
        let (claim, facts) = (changed.last(), &self.facts);
        let item = WorkItem::Claim(claim.name.clone());
        let mut freed = Freed::default();
        let version = changed.now.as_ref().map(|claim| claim.resource_version.as_str());
        self.unseen_writes.shows(&item, version);
        self.slots.outages_mut().on_claim(changed);
        if changed.now.as_ref().is_none_or(|now| has_begun(now, facts)) {
            self.quota_waiters.remove(&item);
        }
        if changed.now.as_ref().is_none_or(|now| now.terminating || now.is_bound()) {
            freed.left = self.batches.leave(Operation::Provision, &claim.uid, self.slots.expectations_mut());
            self.batches.forget_refusal(&claim.uid);
            freed.waited_for = self.quota_waiters.remove(&item);
            freed.turn = self.slots.stop_waiting_for_slot(&item);
            self.removed_jobs.forget(&claim.uid);
        }
        if changed.now.is_none() && self.records.stand_in(&claim.uid).is_none() {
            self.unstarted.forget(&claim.uid);
        }
        freed.quota = self.quota.on_claim(changed, facts);
        let ready = self.pools.on_claim(changed, facts);
        let mut items = match &changed.now {
            Some(now) => self.woken_by_claim(changed.before.as_deref(), now, &freed),
            None => self.woken_by_gone_claim(claim, &ready, &freed),
        };
        if claim.is_stand_in() {
            items.extend(self.change_left(changed));
        }
        items
    }

    /// Returns the keys of a claim's labels and annotations that an image may get. The configs of its class and of its
    /// attempt name them.
    pub fn metadata_keys(&self, claim: &Claim) -> Vec<String> {
        let Some(class) = claim.class.as_deref().filter(|_| !claim.is_bound()) else { return Vec::new() };
        let current = self.facts.configs.recipe_of(class);
        let stamped = claim.own_stamp().and_then(|stamp| self.revisions.recipe(&stamp.recipe_version));
        let stamped = stamped.filter(|recipe| recipe.class == class);
        let mut keys: Vec<_> =
            current.into_iter().chain(stamped).flat_map(|recipe| recipe.claim_metadata.iter().cloned()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// Applies a change of a volume.
    pub fn change_volume(&mut self, change: WatchChange<Volume>) -> Vec<WorkItem> {
        match change {
            WatchChange::Apply(volume) if is_probe(&volume, &self.facts) => {
                let synced = self.sync_probes.on_probe(&volume, self.facts.now());
                self.woken_by_probe(&synced)
            }
            WatchChange::Apply(volume) => {
                let changed = self.facts.cache.volumes.apply(volume);
                self.on_volume(&changed)
            }
            WatchChange::Delete(name) => match self.facts.cache.volumes.remove(&name.name) {
                Some(changed) => self.on_volume(&changed),
                None => {
                    self.sync_probes.forget_probe(&name.name);
                    Vec::new()
                }
            },
            WatchChange::Retain(all) => {
                let missing = all.missing_unscoped(
                    self.facts.cache.volumes.names().chain(self.sync_probes.probes().map(String::as_str)),
                );
                self.remove_missing(missing, |index, name| index.change_volume(WatchChange::Delete(name.clone())))
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    fn on_volume(&mut self, changed: &Changed<Volume>) -> Vec<WorkItem> {
        let (volume, facts) = (changed.last(), &self.facts);
        let item = WorkItem::Volume(volume.name.clone());
        let mut freed = Freed::default();
        let version = changed.now.as_ref().map(|volume| volume.resource_version.as_str());
        self.unseen_writes.shows(&item, version);
        self.slots.outages_mut().on_volume(changed);
        self.unmarked.on_volume(changed);
        let probe_due = self.sync_probes.on_volume(changed, facts.now());
        freed.quota.extend(self.quota.on_volume(changed, facts));
        if changed.now.is_none() {
            self.quota_waiters.remove(&item);
            if let Some(id) = volume.volume_id() {
                self.batches.forget_refusal(id);
                self.deletions.forget(id);
                freed.left = self.batches.leave(Operation::Delete, id, self.slots.expectations_mut());
            }
            freed.turn = self.slots.stop_waiting_for_slot(&item);
        }
        let pool = self.pools.on_volume(changed, facts);
        if let Some(uid) = changed.now.as_ref().filter(|_| pool.left).and_then(|now| now.claim_uid.as_ref()) {
            self.quota.settle(uid, facts);
        }
        let news = VolumeNews { probe_due, pool };
        match &changed.now {
            Some(now) => self.woken_by_volume(changed.before.as_deref(), now, &news, &freed),
            None => {
                let mut items = self.woken_by_gone_volume(volume, &news, &freed);
                // The id of a pooled volume is not the UID of the claim that has it.
                let was_used = [VolumePhase::Bound, VolumePhase::Released].contains(&volume.phase);
                let of = [volume.claim_ref_uid(), volume.volume_id()].into_iter().flatten();
                for uid in of.filter(|_| was_used && volume.reclaim_policy != ReclaimPolicy::Delete) {
                    self.records.note_kept(uid);
                    items.extend(self.sync_stand_in(uid));
                }
                items
            }
        }
    }
}

/// Stand-ins for claims that are gone while a record names them.
impl Index {
    /// Makes, updates or removes the stand-in for a claim.
    pub(super) fn sync_stand_in(&mut self, uid: &str) -> Vec<WorkItem> {
        let cached = self.facts.cache.claims.by_id(uid).filter(|claim| claim.uid == uid);
        let (cached, is_real) = match cached {
            Some(claim) if claim.is_stand_in() => (Some(claim), false),
            real => (None, real.is_some()),
        };
        let wanted = if is_real { None } else { self.records.stand_in(uid) };
        match (wanted, cached) {
            (Some(wanted), Some(cached)) if is_alike(&cached, &wanted) => {
                let shown = WorkItem::Claim(wanted.name.clone());
                self.unseen_writes.shows(&shown, Some(&wanted.resource_version));
                self.facts.cache.claims.apply(Claim { resource_version: wanted.resource_version, ..(*cached).clone() });
                Vec::new()
            }
            (Some(wanted), _) => self.change_claim(WatchChange::Apply(wanted)),
            (None, Some(cached)) => self.remove_claim(&cached.name),
            (None, None) => Vec::new(),
        }
    }

    /// Removes the stand-in for a claim that exists after all.
    pub(super) fn remove_stand_in(&mut self, uid: &str) -> Vec<WorkItem> {
        match self.facts.cache.claims.by_id(uid).filter(|claim| claim.uid == uid && claim.is_stand_in()) {
            Some(stand_in) => self.remove_claim(&stand_in.name),
            None => Vec::new(),
        }
    }

    /// Keeps a claim that is about to be removed, and makes its stand-in afterwards.
    pub(super) fn remove_real_claim(&mut self, name: &ObjectName, shown: Shown) -> Vec<WorkItem> {
        let Some(claim) = self.facts.cache.claims.get(name).filter(|claim| !claim.is_stand_in()) else {
            return self.remove_claim(name);
        };
        self.records.note_end(&claim, shown);
        let mut items = self.remove_claim(name);
        items.extend(self.sync_stand_in(&claim.uid));
        items
    }

    /// Returns the names of claims that a list must show: not those of stand-ins.
    pub(super) fn listed_claims(&self) -> impl Iterator<Item = &ObjectName> {
        self.facts.cache.claims.names().filter(|name| !is_stand_in_name(name))
    }
}

/// Checks whether two states of a stand-in differ in nothing but the version of the record, or in what the cache does not keep.
fn is_alike(cached: &Claim, wanted: &Claim) -> bool {
    let key = |claim: &Claim| {
        let names = (claim.record.clone(), claim.stamp.clone(), claim.abandoned, claim.retry);
        (names, claim.last_failure.clone(), claim.failed_attempts.clone(), claim.nodes_with_storage.clone())
    };
    key(cached) == key(wanted)
}

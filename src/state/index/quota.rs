//! Quota: the usage of each class, reservations, and the items that wait for quota.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use flex_contract::names;
use flex_contract::request::Operation;

use super::{Index, WorkItem};
use crate::claim::quota::{ClassUsage, class_quota_error, growth_quota_error, namespace_quota_error, quota_error};
use crate::config::Recipe;
use crate::config::classes::ClassLookup;
use crate::model::claim::Claim;
use crate::model::claim::WRITE_OUTCOME_AFTER;
use crate::model::volume::Volume;
use crate::run::failure::LastFailure;
use crate::run::view::Job;

/// An object that counts against a quota. Claims are named by their UIDs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ChargeKey {
    /// A volume.
    Volume(String),
    /// A claim whose attempts have begun and that has no volume yet.
    Claim(String),
    /// A reservation of a claim that the watches do not show yet.
    Pending(String),
}

/// The usage by one object.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    class: String,
    namespace: String,
    bytes: u64,
}

/// A reservation for a claim by a stamp whose write may have failed.
#[derive(Clone, Debug)]
pub(super) struct PendingCharge {
    charge: Charge,
    /// The resourceVersion of the claim for which the stamp is written. The stamp cannot be on a later version.
    version: Option<u64>,
    /// The time when the stamp was written.
    since: Duration,
}

impl PendingCharge {
    /// Checks by the observed claim whether no stamp can have been written any more. The claim has no usage of its own.
    fn has_lapsed(&self, claim: &Claim) -> bool {
        let version = claim.resource_version.parse().ok();
        self.version.is_some() && version > self.version
    }
}

/// The usage, updated with each change, because quotas are checked often and there may be many volumes.
#[derive(Debug, Default)]
pub(super) struct QuotaLedger {
    charges: HashMap<ChargeKey, Charge>,
    usage: HashMap<String, ClassUsage>,
}

impl QuotaLedger {
    fn set(&mut self, unit: ChargeKey, charge: Option<Charge>) {
        if let Some(before) = self.charges.remove(&unit)
            && let Some(usage) = self.usage.get_mut(&before.class)
        {
            usage.subtract(&before.namespace, before.bytes);
            if usage.all.volumes == 0 {
                self.usage.remove(&before.class);
            }
        }
        if let Some(charge) = charge {
            self.usage.entry(charge.class.clone()).or_default().add(&charge.namespace, charge.bytes);
            self.charges.insert(unit, charge);
        }
    }
}

impl Index {
    /// Returns the reason why no quota allows a claim to begin; `None` if all do.
    pub fn quota_error(&self, claim: &Claim, recipe: &Recipe) -> Option<String> {
        if !recipe.has_quota() || self.has_charge(claim) {
            return None;
        }
        self.quota_error_of(claim, recipe, &self.usage_in(&recipe.class, &claim.name.namespace, &claim.uid, ""))
    }

    /// Returns the reason why no quota allows a claim's volume, with this usage by others. A pooled volume has no
    /// namespace.
    fn quota_error_of(&self, claim: &Claim, recipe: &Recipe, usage: &ClassUsage) -> Option<String> {
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        match self.is_pool_request(claim) {
            true => class_quota_error(recipe, usage, bytes),
            false => quota_error(recipe, usage, &claim.name.namespace, bytes),
        }
    }

    /// Checks whether the quota of a claim's namespace does not allow an existing volume, which already counts for the
    /// class.
    pub(super) fn namespace_is_full(&self, claim: &Claim, volume: &Volume, recipe: &Recipe) -> bool {
        let namespace = &claim.name.namespace;
        let bytes = volume.size.as_ref().copied().unwrap_or_default();
        let usage = || self.usage_in(&recipe.class, namespace, &claim.uid, &volume.name);
        recipe.has_quota() && namespace_quota_error(recipe, &usage(), namespace, bytes).is_some()
    }

    /// Returns the reason why no quota allows another size of a volume; `None` if all do. The number of volumes stays
    /// the same.
    pub fn growth_quota_error(&self, volume: &Volume, claim: &Claim, bytes: u64, recipe: &Recipe) -> Option<String> {
        if !recipe.has_quota() {
            return None;
        }
        let namespace = &claim.name.namespace;
        growth_quota_error(recipe, &self.usage_in(&volume.class, namespace, "", &volume.name), namespace, bytes)
    }

    /// Returns the usage of a class.
    pub(super) fn usage(&self, class: &str) -> ClassUsage {
        self.ledger.usage.get(class).cloned().unwrap_or_default()
    }

    /// Returns the usage of a class, in all and in one namespace. Leaves out one claim with its volumes, and one
    /// volume.
    fn usage_in(&self, class: &str, namespace: &str, but_claim: &str, but_volume: &str) -> ClassUsage {
        let mut taken = ClassUsage::default();
        if let Some(of) = self.ledger.usage.get(class) {
            let own = of.namespaces.get_key_value(namespace).map(|(name, usage)| (name.clone(), *usage));
            taken = ClassUsage { all: of.all, namespaces: own.into_iter().collect() };
        }
        let volumes = self.volumes_by_claim.get(but_claim).into_iter().flatten().map(String::as_str);
        let of_claim = |name: &str| {
            let volume = self.volumes.get(name);
            volume.is_some_and(|volume| volume.claim_uuid.as_deref() == Some(but_claim))
        };
        let volumes: BTreeSet<&str> = volumes.filter(|name| of_claim(name)).chain([but_volume]).collect();
        let mut without: Vec<ChargeKey> = volumes.into_iter().map(|name| ChargeKey::Volume(name.to_owned())).collect();
        without.extend([ChargeKey::Claim(but_claim.to_owned()), ChargeKey::Pending(but_claim.to_owned())]);
        for charge in
            without.iter().filter_map(|unit| self.ledger.charges.get(unit)).filter(|charge| charge.class == class)
        {
            taken.subtract(&charge.namespace, charge.bytes);
        }
        taken
    }

    /// Counts an object again that has changed, or that another object may count now.
    fn count(&mut self, unit: ChargeKey) {
        let charge = match &unit {
            ChargeKey::Volume(name) => self.volumes.get(name).and_then(|volume| self.charge_of_volume(volume)),
            ChargeKey::Claim(uid) => self.claim_by_id(uid).and_then(|claim| self.charge_of_claim(&claim)),
            ChargeKey::Pending(uid) => self.charge_of_pending(uid),
        };
        self.ledger.set(unit, charge);
    }

    /// Counts a claim, its volumes, and its reservation.
    pub(super) fn count_claim(&mut self, claim: &Claim) {
        let volumes = claim.ids().filter_map(|id| self.volumes_by_claim.get(&id)).flatten();
        let volumes: BTreeSet<String> = volumes.cloned().collect();
        volumes.into_iter().for_each(|name| self.count(ChargeKey::Volume(name)));
        self.count(ChargeKey::Claim(claim.uid.clone()));
        self.count(ChargeKey::Pending(claim.uid.clone()));
    }

    /// Counts a volume, and the claims to which it may belong.
    pub(super) fn count_volume(&mut self, volume: &Volume) {
        self.count(ChargeKey::Volume(volume.name.clone()));
        let reference = volume.claim_ref.as_ref().map(|reference| reference.uid.as_str()).filter(|uid| !uid.is_empty());
        let ids: BTreeSet<&str> =
            volume.id().into_iter().chain(volume.claim_uuid.as_deref()).chain(reference).collect();
        for id in ids {
            let uid = self.claim_by_id(id).map_or_else(|| id.to_owned(), |claim| claim.uid.clone());
            self.count(ChargeKey::Claim(uid.clone()));
            self.count(ChargeKey::Pending(uid));
        }
    }

    fn charge_of_volume(&self, volume: &Volume) -> Option<Charge> {
        let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
        // Until a volume is adopted, it is reserved in another namespace.
        let claim = volume.claim_uuid.as_ref().and_then(|uid| self.claim_by_id.get(uid));
        let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.clone());
        let (class, namespace) = (volume.class.clone(), namespace.unwrap_or_default());
        volume.belongs_to(&self.identity).then(|| Charge { class, namespace, bytes: self.bytes_of(volume) })
    }

    /// Checks whether a claim has usage by its stamp or by a volume that does not fit. Such a claim may not count by
    /// its own fields.
    pub(super) fn has_charge(&self, claim: &Claim) -> bool {
        let has_any = || claim.ids().any(|id| self.volumes_by_claim.contains_key(&id));
        self.has_begun(claim) || claim.own_stamp().is_some() && has_any()
    }

    /// Checks whether a claim is stamped and has not given up. Until its next attempt, which may be far off, others may
    /// use its quota.
    pub(super) fn has_begun(&self, claim: &Claim) -> bool {
        let Some(stamp) = claim.own_stamp() else { return false };
        let of_attempt = |failure: &&LastFailure| {
            failure.operation == Operation::Provision && failure.attempt == stamp.attempt && !claim.is_bound()
        };
        let retries = || match self.classes.lookup(claim.class.as_deref()?) {
            ClassLookup::Ours(class) => class.recipe.as_ref().ok().map(|recipe| recipe.retries),
            _ => None,
        };
        let failure = claim.last_failure.as_ref().filter(of_attempt);
        !failure.is_some_and(|failure| failure.gives_up(retries().unwrap_or(u32::MAX)))
    }

    /// Returns the usage of a claim that has begun and has no volume yet.
    fn charge_of_claim(&self, claim: &Claim) -> Option<Charge> {
        let class = claim.class.clone()?;
        // The claim may be visible as bound before its volume is visible.
        let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.id()));
        let begun = own && self.has_charge(claim);
        let counted = [claim.uid.clone(), claim.id()].iter().any(|id| self.has_volume(id, &class));
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        (begun && !counted).then(|| Charge { class, namespace: claim.name.namespace.clone(), bytes })
    }

    /// Returns the usage of a reservation, if its claim exists. A try that began before the claim was deleted may
    /// reserve something after that.
    fn charge_of_pending(&self, uid: &str) -> Option<Charge> {
        let counts = |claim: &Claim| claim.uid == uid && !self.has_charge(claim);
        let promised =
            self.pending_charges.get(uid).filter(|_| self.claim_by_id(uid).is_some_and(|claim| counts(&claim)));
        promised.map(|promise| &promise.charge).filter(|charge| !self.has_volume(uid, &charge.class)).cloned()
    }

    /// Checks whether a volume of a class counts that has this id, or claims to have it.
    fn has_volume(&self, id: &str, class: &str) -> bool {
        let volumes = self.volumes_by_claim.get(id).into_iter().flatten().filter_map(|name| self.volumes.get(name));
        let mut volumes = volumes.filter(|volume| volume.class == class && volume.belongs_to(&self.identity));
        volumes.any(|volume| volume.id() == Some(id) || volume.claim_uuid.as_deref() == Some(id))
    }

    /// Returns the size of a volume, or its new size during an expansion.
    pub(super) fn bytes_of(&self, volume: &Volume) -> u64 {
        let runs = volume.id().and_then(|id| self.jobs_by_id.get(id)).into_iter().flatten();
        let runs = runs.filter_map(|name| self.jobs.get(name)).filter(|job| is_growth(job) && !has_failed(job));
        let runs = runs.filter(|job| job.volume.as_ref() == Some(&volume.name)).filter_map(|job| job.size);
        let size = volume.size.as_ref().copied().unwrap_or_default();
        runs.chain(self.growing.get(&volume.name).copied()).fold(size, u64::max)
    }

    /// Reserves quota for a claim that is about to be stamped. Returns whether the reservation is new: an earlier stamp
    /// may exist that no watch has shown yet.
    pub fn charge(&mut self, claim: &Claim, class: &str) -> bool {
        self.quota_waiters.remove(&WorkItem::Claim(claim.name.clone()));
        if self.has_begun(claim) {
            return false;
        }
        let (class, namespace) = (class.to_owned(), claim.name.namespace.clone());
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        let (version, since) = (claim.resource_version.parse().ok(), self.clock.passed());
        let promise = PendingCharge { charge: Charge { class, namespace, bytes }, version, since };
        let first = self.pending_charges.insert(claim.uid.clone(), promise).is_none();
        self.count(ChargeKey::Pending(claim.uid.clone()));
        first
    }

    /// Reserves quota of the namespace for a claim that is about to get a pooled volume.
    pub(super) fn charge_without_stamp(&mut self, claim: &Claim, class: &str) {
        self.charge(claim, class);
        if let Some(promise) = self.pending_charges.get_mut(&claim.uid) {
            promise.version = None;
        }
    }

    /// Checks whether a claim has a reservation whose stamp is not visible. Reservations expire, because no write takes
    /// that long.
    pub fn has_pending_charge(&self, uid: &str) -> bool {
        self.pending_charges.get(uid).is_some_and(|promise| !self.is_expired(promise))
    }

    fn is_expired(&self, promise: &PendingCharge) -> bool {
        self.clock.since(promise.since) > WRITE_OUTCOME_AFTER
    }

    /// Drops the reservation of a claim if it has expired.
    pub fn drop_expired_charge(&mut self, uid: &str) {
        if self.pending_charges.get(uid).is_some_and(|promise| self.is_expired(promise)) {
            self.settle(uid);
        }
    }

    /// Applies the observed claim to its reservation, which may have lapsed. Returns the items that have quota by that.
    pub(super) fn on_stamp(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let lapsed = |promise: &PendingCharge| !self.has_begun(claim) && promise.has_lapsed(claim);
        match self.pending_charges.get(&claim.uid).is_some_and(lapsed) {
            true => self.refund(claim),
            false => Vec::new(),
        }
    }

    /// Cancels the reservation of a claim that was not stamped.
    pub fn refund(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let promise = self.pending_charges.remove(&claim.uid);
        self.count(ChargeKey::Pending(claim.uid.clone()));
        promise.map(|promise| self.wake_for_quota(&promise.charge.class)).unwrap_or_default()
    }

    /// Reserves the new size of a volume that is about to be expanded.
    pub fn charge_growth(&mut self, volume: &str, bytes: u64) {
        self.quota_waiters.remove(&WorkItem::Volume(volume.to_owned()));
        self.growing.insert(volume.to_owned(), bytes);
        self.count(ChargeKey::Volume(volume.to_owned()));
    }

    /// Cancels the reservation of a new size.
    pub fn refund_growth(&mut self, volume: &Volume) -> Vec<WorkItem> {
        let promise = self.growing.remove(&volume.name);
        self.count(ChargeKey::Volume(volume.name.clone()));
        promise.map(|_| self.wake_for_quota(&volume.class)).unwrap_or_default()
    }

    /// Records that a claim or volume reached a quota. It is requeued when there is quota for it.
    pub fn wait_for_quota(&mut self, key: WorkItem, class: &str) {
        self.quota_waiters.add(key, class);
    }

    /// Removes a claim that waits for something else from those that wait for quota. Returns the items that may use its
    /// quota.
    pub fn stop_waiting_for_quota(&mut self, key: &WorkItem) -> Vec<WorkItem> {
        self.quota_waiters.remove(key).map(|class| self.wake_for_quota(&class)).unwrap_or_default()
    }

    /// Settles the reservation of a claim that is known to be stamped, or to be gone.
    pub(super) fn settle(&mut self, uid: &str) {
        self.pending_charges.remove(uid);
        self.count(ChargeKey::Pending(uid.to_owned()));
    }

    /// Returns the items that have quota after usage of a class was freed, in the order of their arrival.
    pub(super) fn wake_for_quota(&self, class: &str) -> Vec<WorkItem> {
        let all = || self.quota_waiters.of(class).cloned().collect();
        let ClassLookup::Ours(found) = self.classes.lookup(class) else { return all() };
        let Ok(recipe) = &found.recipe else { return all() };
        let mut waiting = self.quota_waiters.of(class).peekable();
        if waiting.peek().is_none() {
            return Vec::new();
        }
        let mut usage = self.usage(class);
        let mut woken = Vec::new();
        for key in waiting {
            // Only the volume's own decision knows by how much it expands.
            if let WorkItem::Claim(name) = key {
                let Some(claim) = self.claims.get(name) else { continue };
                let bytes = claim.size.as_ref().copied().unwrap_or_default();
                // The claim may have a reservation by a stamp whose write may have failed. That reservation does not
                // count against the claim itself.
                let own = self
                    .ledger
                    .charges
                    .get(&ChargeKey::Pending(claim.uid.clone()))
                    .filter(|charge| charge.class == class);
                // Most items wait for one more volume, while no further volume is allowed.
                if own.is_none() && recipe.quota.volumes.is_some_and(|most| usage.all.volumes >= most) {
                    continue;
                }
                own.into_iter().for_each(|charge| usage.subtract(&charge.namespace, charge.bytes));
                if self.quota_error_of(claim, recipe, &usage).is_some() {
                    own.into_iter().for_each(|charge| usage.add(&charge.namespace, charge.bytes));
                    continue;
                }
                usage.add(&name.namespace, bytes);
            }
            woken.push(key.clone());
        }
        woken
    }

    /// Applies a new volume, or a new size of a volume, to the usage.
    pub(super) fn on_volume_size(&mut self, volume: &Volume, before: Option<&Volume>) -> Vec<WorkItem> {
        let has = |bytes: &u64| volume.size.as_ref().is_ok_and(|size| size >= bytes);
        if self.growing.get(&volume.name).is_some_and(has) {
            self.growing.remove(&volume.name);
        }
        before.into_iter().for_each(|before| self.count_volume(before));
        self.count_volume(volume);
        match before.is_some_and(|before| before.size != volume.size || before.class != volume.class) {
            true => self.wake_for_quota(&volume.class),
            false => Vec::new(),
        }
    }

    /// Applies an expand run that has appeared, ended or vanished. The reservation follows its Job.
    pub(super) fn on_growth(&mut self, job: &Job, gone: bool) -> Vec<WorkItem> {
        let (true, Some(volume)) = (is_growth(job), &job.volume) else { return Vec::new() };
        let class = self.volumes.get(volume).map(|volume| volume.class.clone());
        let complete = job.complete && !gone;
        if !complete {
            self.growing.remove(volume);
        }
        self.count(ChargeKey::Volume(volume.clone()));
        match class.filter(|_| gone || has_failed(job)) {
            Some(class) => self.wake_for_quota(&class),
            None => Vec::new(),
        }
    }
}

fn is_growth(job: &Job) -> bool {
    job.run_labels.operation == crate::volume::expand::CAPABILITY
}

fn has_failed(job: &Job) -> bool {
    job.is_over && !job.complete
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;

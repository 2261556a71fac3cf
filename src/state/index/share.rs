//! Quota: the usage of each class, reservations, and the items that wait for quota.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use contract::names;
use contract::request::Operation;

use super::{Index, WorkItem};
use crate::claim::quota::{Taken, class_refusal, growth_refusal, namespace_refusal, refusal};
use crate::config::Recipe;
use crate::config::classes::ClassLookup;
use crate::model::claim::Claim;
use crate::model::claim::WRITE_OUTCOME_AFTER;
use crate::model::volume::Volume;
use crate::run::failure::LastFailure;
use crate::run::view::Job;

/// An object that counts against a quota. Claims are named by their UIDs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Unit {
    /// A volume.
    Volume(String),
    /// A claim whose attempts have begun and that has no volume yet.
    Claim(String),
    /// A reservation of a claim that the watches do not show yet.
    Promise(String),
}

/// The usage by one object.
#[derive(Clone, Debug)]
pub(super) struct Part {
    class: String,
    namespace: String,
    bytes: u64,
}

/// A reservation for a claim by a stamp whose write may have failed.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    part: Part,
    /// The resourceVersion of the claim for which the stamp is written. The stamp cannot be on a later version.
    version: Option<u64>,
    /// The time when the stamp was written.
    since: Duration,
}

impl Promise {
    /// Checks by the observed claim whether no stamp can have been written any more. The claim has no usage of its own.
    fn has_lapsed(&self, claim: &Claim) -> bool {
        let version = claim.resource_version.parse().ok();
        self.version.is_some() && version > self.version
    }
}

/// The usage, updated with each change, because quotas are checked often and there may be many volumes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    parts: HashMap<Unit, Part>,
    taken: HashMap<String, Taken>,
}

impl Tally {
    fn set(&mut self, unit: Unit, part: Option<Part>) {
        if let Some(before) = self.parts.remove(&unit)
            && let Some(taken) = self.taken.get_mut(&before.class)
        {
            taken.take(&before.namespace, before.bytes);
            if taken.all.volumes == 0 {
                self.taken.remove(&before.class);
            }
        }
        if let Some(part) = part {
            self.taken.entry(part.class.clone()).or_default().add(&part.namespace, part.bytes);
            self.parts.insert(unit, part);
        }
    }
}

impl Index {
    /// Returns the reason why no quota allows a claim to begin; `None` if all do.
    pub fn claim_is_refused(&self, claim: &Claim, recipe: &Recipe) -> Option<String> {
        if !recipe.is_shared_out() || self.holds_a_part(claim) {
            return None;
        }
        self.refusal_of(claim, recipe, &self.taken_in(&recipe.class, &claim.name.namespace, &claim.uid, ""))
    }

    /// Returns the reason why no quota allows a claim's volume, with this usage by others. A pooled volume has no
    /// namespace.
    fn refusal_of(&self, claim: &Claim, recipe: &Recipe, taken: &Taken) -> Option<String> {
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        match self.is_request(claim) {
            true => class_refusal(recipe, taken, bytes),
            false => refusal(recipe, taken, &claim.name.namespace, bytes),
        }
    }

    /// Checks whether the quota of a claim's namespace does not allow an existing volume, which already counts for the
    /// class.
    pub(super) fn namespace_is_full(&self, claim: &Claim, volume: &Volume, recipe: &Recipe) -> bool {
        let namespace = &claim.name.namespace;
        let bytes = volume.size.as_ref().copied().unwrap_or_default();
        let taken = || self.taken_in(&recipe.class, namespace, &claim.uid, &volume.name);
        recipe.is_shared_out() && namespace_refusal(recipe, &taken(), namespace, bytes).is_some()
    }

    /// Returns the reason why no quota allows another size of a volume; `None` if all do. The number of volumes stays
    /// the same.
    pub fn growth_is_refused(&self, volume: &Volume, claim: &Claim, bytes: u64, recipe: &Recipe) -> Option<String> {
        if !recipe.is_shared_out() {
            return None;
        }
        let namespace = &claim.name.namespace;
        growth_refusal(recipe, &self.taken_in(&volume.class, namespace, "", &volume.name), namespace, bytes)
    }

    /// Returns the usage of a class.
    pub(super) fn taken(&self, class: &str) -> Taken {
        self.tally.taken.get(class).cloned().unwrap_or_default()
    }

    /// Returns the usage of a class, in all and in one namespace. Leaves out one claim with its volumes, and one
    /// volume.
    fn taken_in(&self, class: &str, namespace: &str, but_claim: &str, but_volume: &str) -> Taken {
        let mut taken = Taken::default();
        if let Some(of) = self.tally.taken.get(class) {
            let own = of.namespaces.get_key_value(namespace).map(|(name, usage)| (name.clone(), *usage));
            taken = Taken { all: of.all, namespaces: own.into_iter().collect() };
        }
        let volumes = self.volumes_by_claim.get(but_claim).into_iter().flatten().map(String::as_str);
        let of_claim = |name: &str| {
            let volume = self.volumes.get(name);
            volume.is_some_and(|volume| volume.claim_uuid.as_deref() == Some(but_claim))
        };
        let volumes: BTreeSet<&str> = volumes.filter(|name| of_claim(name)).chain([but_volume]).collect();
        let mut without: Vec<Unit> = volumes.into_iter().map(|name| Unit::Volume(name.to_owned())).collect();
        without.extend([Unit::Claim(but_claim.to_owned()), Unit::Promise(but_claim.to_owned())]);
        for part in without.iter().filter_map(|unit| self.tally.parts.get(unit)).filter(|part| part.class == class) {
            taken.take(&part.namespace, part.bytes);
        }
        taken
    }

    /// Counts an object again that has changed, or that another object may count now.
    fn count(&mut self, unit: Unit) {
        let part = match &unit {
            Unit::Volume(name) => self.volumes.get(name).and_then(|volume| self.part_of_volume(volume)),
            Unit::Claim(uid) => self.claim_by_id(uid).and_then(|claim| self.part_of_claim(&claim)),
            Unit::Promise(uid) => self.part_of_promise(uid),
        };
        self.tally.set(unit, part);
    }

    /// Counts a claim, its volumes, and its reservation.
    pub(super) fn count_claim(&mut self, claim: &Claim) {
        let volumes = claim.ids().filter_map(|id| self.volumes_by_claim.get(&id)).flatten();
        let volumes: BTreeSet<String> = volumes.cloned().collect();
        volumes.into_iter().for_each(|name| self.count(Unit::Volume(name)));
        self.count(Unit::Claim(claim.uid.clone()));
        self.count(Unit::Promise(claim.uid.clone()));
    }

    /// Counts a volume, and the claims to which it may belong.
    pub(super) fn count_volume(&mut self, volume: &Volume) {
        self.count(Unit::Volume(volume.name.clone()));
        let reference = volume.claim_ref.as_ref().map(|reference| reference.uid.as_str()).filter(|uid| !uid.is_empty());
        let ids: BTreeSet<&str> =
            volume.id().into_iter().chain(volume.claim_uuid.as_deref()).chain(reference).collect();
        for id in ids {
            let uid = self.claim_by_id(id).map_or_else(|| id.to_owned(), |claim| claim.uid.clone());
            self.count(Unit::Claim(uid.clone()));
            self.count(Unit::Promise(uid));
        }
    }

    fn part_of_volume(&self, volume: &Volume) -> Option<Part> {
        let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
        // Until a volume is adopted, it is reserved in another namespace.
        let claim = volume.claim_uuid.as_ref().and_then(|uid| self.claim_by_id.get(uid));
        let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.clone());
        let (class, namespace) = (volume.class.clone(), namespace.unwrap_or_default());
        volume.is_of(&self.identity).then(|| Part { class, namespace, bytes: self.bytes_of(volume) })
    }

    /// Checks whether a claim has usage by its stamp or by a volume that does not fit. Such a claim may not count by
    /// its own fields.
    pub(super) fn holds_a_part(&self, claim: &Claim) -> bool {
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
    fn part_of_claim(&self, claim: &Claim) -> Option<Part> {
        let class = claim.class.clone()?;
        // The claim may be visible as bound before its volume is visible.
        let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.id()));
        let begun = own && self.holds_a_part(claim);
        let counted = [claim.uid.clone(), claim.id()].iter().any(|id| self.has_volume(id, &class));
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        (begun && !counted).then(|| Part { class, namespace: claim.name.namespace.clone(), bytes })
    }

    /// Returns the usage of a reservation, if its claim exists. A try that began before the claim was deleted may
    /// reserve something after that.
    fn part_of_promise(&self, uid: &str) -> Option<Part> {
        let counts = |claim: &Claim| claim.uid == uid && !self.holds_a_part(claim);
        let promised = self.promised.get(uid).filter(|_| self.claim_by_id(uid).is_some_and(|claim| counts(&claim)));
        promised.map(|promise| &promise.part).filter(|part| !self.has_volume(uid, &part.class)).cloned()
    }

    /// Checks whether a volume of a class counts that has this id, or claims to have it.
    fn has_volume(&self, id: &str, class: &str) -> bool {
        let volumes = self.volumes_by_claim.get(id).into_iter().flatten().filter_map(|name| self.volumes.get(name));
        let mut volumes = volumes.filter(|volume| volume.class == class && volume.is_of(&self.identity));
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
    pub fn promise(&mut self, claim: &Claim, class: &str) -> bool {
        self.waits_for_room.remove(&WorkItem::Claim(claim.name.clone()));
        if self.has_begun(claim) {
            return false;
        }
        let (class, namespace) = (class.to_owned(), claim.name.namespace.clone());
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        let (version, since) = (claim.resource_version.parse().ok(), self.clock.passed());
        let promise = Promise { part: Part { class, namespace, bytes }, version, since };
        let first = self.promised.insert(claim.uid.clone(), promise).is_none();
        self.count(Unit::Promise(claim.uid.clone()));
        first
    }

    /// Reserves quota of the namespace for a claim that is about to get a pooled volume.
    pub(super) fn promise_without_stamp(&mut self, claim: &Claim, class: &str) {
        self.promise(claim, class);
        if let Some(promise) = self.promised.get_mut(&claim.uid) {
            promise.version = None;
        }
    }

    /// Checks whether a claim has a reservation whose stamp is not visible. Reservations expire, because no write takes
    /// that long.
    pub fn is_promised(&mut self, uid: &str) -> bool {
        let old = |promise: &Promise| self.clock.since(promise.since) > WRITE_OUTCOME_AFTER;
        if self.promised.get(uid).is_some_and(old) {
            self.kept_promise(uid);
        }
        self.promised.contains_key(uid)
    }

    /// Applies the observed claim to its reservation, which may have lapsed. Returns the items that have quota by that.
    pub(super) fn see_promise_to(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let lapsed = |promise: &Promise| !self.has_begun(claim) && promise.has_lapsed(claim);
        match self.promised.get(&claim.uid).is_some_and(lapsed) {
            true => self.take_back(claim),
            false => Vec::new(),
        }
    }

    /// Cancels the reservation of a claim that was not stamped.
    pub fn take_back(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let promise = self.promised.remove(&claim.uid);
        self.count(Unit::Promise(claim.uid.clone()));
        promise.map(|promise| self.room_in(&promise.part.class)).unwrap_or_default()
    }

    /// Reserves the new size of a volume that is about to be expanded.
    pub fn promise_growth(&mut self, volume: &str, bytes: u64) {
        self.waits_for_room.remove(&WorkItem::Volume(volume.to_owned()));
        self.growing.insert(volume.to_owned(), bytes);
        self.count(Unit::Volume(volume.to_owned()));
    }

    /// Cancels the reservation of a new size.
    pub fn take_back_growth(&mut self, volume: &Volume) -> Vec<WorkItem> {
        let promise = self.growing.remove(&volume.name);
        self.count(Unit::Volume(volume.name.clone()));
        promise.map(|_| self.room_in(&volume.class)).unwrap_or_default()
    }

    /// Records that a claim or volume reached a quota. It is requeued when there is quota for it.
    pub fn wait_for_room(&mut self, key: WorkItem, class: &str) {
        self.waits_for_room.add(key, class);
    }

    /// Removes a claim that waits for something else from those that wait for quota. Returns the items that may use its
    /// quota.
    pub fn leave_room(&mut self, key: &WorkItem) -> Vec<WorkItem> {
        self.waits_for_room.remove(key).map(|class| self.room_in(&class)).unwrap_or_default()
    }

    /// Settles the reservation of a claim that is known to be stamped, or to be gone.
    pub(super) fn kept_promise(&mut self, uid: &str) {
        self.promised.remove(uid);
        self.count(Unit::Promise(uid.to_owned()));
    }

    /// Returns the items that have quota after usage of a class was freed, in the order of their arrival.
    pub(super) fn room_in(&self, class: &str) -> Vec<WorkItem> {
        let all = || self.waits_for_room.of(class).cloned().collect();
        let ClassLookup::Ours(found) = self.classes.lookup(class) else { return all() };
        let Ok(recipe) = &found.recipe else { return all() };
        let mut waiting = self.waits_for_room.of(class).peekable();
        if waiting.peek().is_none() {
            return Vec::new();
        }
        let mut taken = self.taken(class);
        let mut woken = Vec::new();
        for key in waiting {
            // Only the volume's own decision knows by how much it expands.
            if let WorkItem::Claim(name) = key {
                let Some(claim) = self.claims.get(name) else { continue };
                let bytes = claim.size.as_ref().copied().unwrap_or_default();
                // The claim may have a reservation by a stamp whose write may have failed. That reservation does not
                // count against the claim itself.
                let own = self.tally.parts.get(&Unit::Promise(claim.uid.clone())).filter(|part| part.class == class);
                // Most items wait for one more volume, while no further volume is allowed.
                if own.is_none() && recipe.share.volumes.is_some_and(|most| taken.all.volumes >= most) {
                    continue;
                }
                own.into_iter().for_each(|part| taken.take(&part.namespace, part.bytes));
                if self.refusal_of(claim, recipe, &taken).is_some() {
                    own.into_iter().for_each(|part| taken.add(&part.namespace, part.bytes));
                    continue;
                }
                taken.add(&name.namespace, bytes);
            }
            woken.push(key.clone());
        }
        woken
    }

    /// Applies a new volume, or a new size of a volume, to the usage.
    pub(super) fn see_share_of(&mut self, volume: &Volume, before: Option<&Volume>) -> Vec<WorkItem> {
        let has = |bytes: &u64| volume.size.as_ref().is_ok_and(|size| size >= bytes);
        if self.growing.get(&volume.name).is_some_and(has) {
            self.growing.remove(&volume.name);
        }
        before.into_iter().for_each(|before| self.count_volume(before));
        self.count_volume(volume);
        match before.is_some_and(|before| before.size != volume.size || before.class != volume.class) {
            true => self.room_in(&volume.class),
            false => Vec::new(),
        }
    }

    /// Applies an expand run that has appeared, ended or vanished. The reservation follows its Job.
    pub(super) fn see_growth(&mut self, job: &Job, gone: bool) -> Vec<WorkItem> {
        let (true, Some(volume)) = (is_growth(job), &job.volume) else { return Vec::new() };
        let class = self.volumes.get(volume).map(|volume| volume.class.clone());
        let complete = job.complete && !gone;
        if !complete {
            self.growing.remove(volume);
        }
        self.count(Unit::Volume(volume.clone()));
        match class.filter(|_| gone || has_failed(job)) {
            Some(class) => self.room_in(&class),
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
#[path = "share_tests.rs"]
mod tests;

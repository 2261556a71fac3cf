//! What is taken of a class, who was promised a part of it, and who waits for one.

use std::collections::HashSet;

use contract::names;

use super::{Index, Key};
use crate::claim::Claim;
use crate::claim::quota::{Taken, growth_refusal, refusal};
use crate::config::Recipe;
use crate::config::classes::Lookup;
use crate::object::ObjectName;
use crate::run::view::Job;
use crate::volume::Volume;

/// A part of a class that was given away, and that the watches do not show yet.
#[derive(Debug)]
pub(super) struct Promise {
    class: String,
    namespace: String,
    bytes: u64,
}

impl Index {
    /// Why the class has no room for a claim to begin with; none if it has.
    pub fn claim_is_refused(&self, claim: &Claim, recipe: &Recipe) -> Option<String> {
        if !recipe.is_shared_out() || claim.own_stamp().is_some() {
            return None;
        }
        let taken = self.taken(&recipe.class, &claim.uid, "");
        refusal(recipe, &taken, &claim.name.namespace, claim.size.as_ref().copied().unwrap_or_default())
    }

    /// Why the class has no room for a volume of another size; none if it has. The number of volumes stays the same.
    pub fn growth_is_refused(&self, volume: &Volume, claim: &Claim, bytes: u64, recipe: &Recipe) -> Option<String> {
        if !recipe.is_shared_out() {
            return None;
        }
        growth_refusal(recipe, &self.taken(&volume.class, "", &volume.name), &claim.name.namespace, bytes)
    }

    /// What is taken of a class, without one claim and one volume.
    fn taken(&self, class: &str, but_claim: &str, but_volume: &str) -> Taken {
        let mut taken = Taken::default();
        let mut counted: HashSet<&str> = HashSet::new();
        for volume in self.volumes.values().filter(|volume| volume.class == class && volume.is_of(&self.identity)) {
            counted.extend(volume.id());
            counted.extend(volume.claim_uuid.as_deref());
            if volume.name == but_volume || volume.claim_uuid.as_deref() == Some(but_claim) {
                continue;
            }
            let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
            // Until it is adopted, it is reserved in another namespace.
            let claim = volume.claim_uuid.as_ref().and_then(|uid| self.claim_by_id.get(uid));
            let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.as_str());
            taken.add(namespace.unwrap_or_default(), self.bytes_of(volume));
        }
        for claim in self.claims.values().filter(|claim| claim.class.as_deref() == Some(class)) {
            // It may be seen to be bound before its volume is seen.
            let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.id()));
            let begun = claim.own_stamp().is_some() && own && claim.uid != but_claim;
            if begun && !counted.contains(claim.uid.as_str()) && !counted.contains(claim.id().as_str()) {
                taken.add(&claim.name.namespace, claim.size.as_ref().copied().unwrap_or_default());
            }
        }
        let promises = self.promised.iter().filter(|(uid, promise)| promise.class == class && *uid != but_claim);
        for (_, promise) in promises.filter(|(uid, _)| !counted.contains(uid.as_str())) {
            taken.add(&promise.namespace, promise.bytes);
        }
        taken
    }

    /// The size of a volume, or the one that it is being given.
    fn bytes_of(&self, volume: &Volume) -> u64 {
        let runs = volume.id().and_then(|id| self.jobs_by_id.get(id)).into_iter().flatten();
        let runs = runs.filter_map(|name| self.jobs.get(name)).filter(|job| is_growth(job) && !has_failed(job));
        let runs = runs.filter(|job| job.volume.as_ref() == Some(&volume.name)).filter_map(|job| job.size);
        let size = volume.size.as_ref().copied().unwrap_or_default();
        runs.chain(self.growing.get(&volume.name).copied()).fold(size, u64::max)
    }

    /// A claim is about to be stamped: from now on it counts. Says whether it did not before: an earlier stamp may stand
    /// that no watch has shown yet.
    pub fn promise(&mut self, claim: &Claim, class: &str) -> bool {
        self.no_longer_waits(&Key::Claim(claim.name.clone()));
        if claim.own_stamp().is_some() {
            return false;
        }
        let (class, namespace) = (class.to_owned(), claim.name.namespace.clone());
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        self.promised.insert(claim.uid.clone(), Promise { class, namespace, bytes }).is_none()
    }

    /// It was not stamped after all.
    pub fn take_back(&mut self, claim: &Claim) -> Vec<Key> {
        match self.promised.remove(&claim.uid) {
            Some(promise) => self.room_in(&promise.class),
            None => Vec::new(),
        }
    }

    /// A volume is about to be given this size: from now on it counts.
    pub fn promise_growth(&mut self, volume: &str, bytes: u64) {
        self.no_longer_waits(&Key::Volume(volume.to_owned()));
        self.growing.insert(volume.to_owned(), bytes);
    }

    /// It is not given this size after all.
    pub fn take_back_growth(&mut self, volume: &Volume) -> Vec<Key> {
        match self.growing.remove(&volume.name) {
            Some(_) => self.room_in(&volume.class),
            None => Vec::new(),
        }
    }

    /// A claim or volume hit a limit: it is looked at again when there is room for it.
    pub fn wait_for_room(&mut self, key: Key, class: &str) {
        if !self.waits_for_room.iter().any(|(waiting, _)| *waiting == key) {
            self.waits_for_room.push((key, class.to_owned()));
        }
    }

    /// A claim makes no use of the room that there is for it, because it waits for something else: others may have it.
    pub fn leave_room(&mut self, key: &Key) -> Vec<Key> {
        match self.waits_for_room.iter().position(|(waiting, _)| waiting == key) {
            Some(at) => {
                let (_, class) = self.waits_for_room.remove(at);
                self.room_in(&class)
            }
            None => Vec::new(),
        }
    }

    pub(super) fn no_longer_waits(&mut self, key: &Key) {
        self.waits_for_room.retain(|(waiting, _)| waiting != key);
    }

    /// A claim is known to be stamped, or to be gone.
    pub(super) fn kept_promise(&mut self, uid: &str) {
        self.promised.remove(uid);
    }

    /// Something of a class was given back: those who have room now, in the order in which they came.
    pub(super) fn room_in(&self, class: &str) -> Vec<Key> {
        let waiting: Vec<Key> =
            self.waits_for_room.iter().filter(|(_, of)| of == class).map(|(key, _)| key.clone()).collect();
        let classes = self.classes.clone();
        let Lookup::Ours(found) = classes.lookup(class) else { return waiting };
        let (Ok(recipe), false) = (&found.recipe, waiting.is_empty()) else { return waiting };
        let mut taken = self.taken(class, "", "");
        let mut woken = Vec::new();
        for key in waiting {
            // How much a volume would grow is its own to say.
            if let Key::Claim(name) = &key {
                let Some(claim) = self.claims.get(name) else { continue };
                let bytes = claim.size.as_ref().copied().unwrap_or_default();
                if refusal(recipe, &taken, &name.namespace, bytes).is_some() {
                    continue;
                }
                taken.add(&name.namespace, bytes);
            }
            woken.push(key);
        }
        woken
    }

    /// A volume has come, or has another size.
    pub(super) fn see_share_of(&mut self, volume: &Volume, before: Option<&Volume>) -> Vec<Key> {
        let has = |bytes: &u64| volume.size.as_ref().is_ok_and(|size| size >= bytes);
        if self.growing.get(&volume.name).is_some_and(has) {
            self.growing.remove(&volume.name);
        }
        match before.is_some_and(|before| before.size != volume.size || before.class != volume.class) {
            true => self.room_in(&volume.class),
            false => Vec::new(),
        }
    }

    /// A run that should make a volume larger has come, ended or gone: the promise is what its Job says.
    pub(super) fn see_growth(&mut self, job: &Job, gone: bool) -> Vec<Key> {
        let (true, Some(volume)) = (is_growth(job), &job.volume) else { return Vec::new() };
        let class = self.volumes.get(volume).map(|volume| volume.class.clone());
        let complete = job.complete && !gone;
        if !complete {
            self.growing.remove(volume);
        }
        match class.filter(|_| gone || has_failed(job)) {
            Some(class) => self.room_in(&class),
            None => Vec::new(),
        }
    }

    /// Provision runs that go on for claims of a namespace.
    pub(super) fn runs_in_namespace(&self, class: &str, namespace: &str) -> usize {
        let class = crate::object::label_value(class);
        let in_namespace =
            |claim: &Option<ObjectName>| claim.as_ref().is_some_and(|claim| claim.namespace == namespace);
        let seen = self.jobs.values().filter(|job| {
            !job.over && job.marks.class == class && job.marks.operation == "provision" && in_namespace(&job.claim)
        });
        let expected = self.expected.values().filter(|expected| expected.class == class);
        let expected =
            expected.filter(|e| e.claim.namespace == namespace && self.clock.since(e.since) < super::EXPECTED);
        seen.filter(|job| !self.is_lost(job)).count() + expected.count()
    }
}

fn is_growth(job: &Job) -> bool {
    job.marks.operation == crate::volume::expand::CAPABILITY
}

fn has_failed(job: &Job) -> bool {
    job.over && !job.complete
}

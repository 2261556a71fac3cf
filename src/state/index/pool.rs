//! Pools: ready volumes, pool requests, and assigned volumes.
//!
//! All of it follows from the API, except for recent writes that no watch has shown yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;

use super::fair_queue::FreeSlots;
use super::{EXPECTATION_TIMEOUT, Index, WorkItem, drop_from};
use crate::config::Recipe;
use crate::config::classes::{Class, ClassLookup};
use crate::config::pool::Pool;
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::node::Node;
use crate::object::{ObjectName, hash};
use crate::pool::{Observed, PoolRequest, PooledVolume};

/// The time after which a write that no watch has shown has failed. It is long, so that a slow watch does not lead to
/// too many volumes.
const POOL_EXPECTATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// The state of pools.
#[derive(Debug, Default)]
pub(super) struct Pools {
    /// Ready volumes that are not assigned, by class: size and name.
    pooled: HashMap<String, BTreeSet<(u64, String)>>,
    /// Drained volumes that are about to be deleted, by class.
    drained: HashMap<String, BTreeSet<String>>,
    /// Pool requests, by class.
    requests: HashMap<String, BTreeSet<ObjectName>>,
    /// Requests that no watch has shown yet: class, size, and the time of the write.
    expected: BTreeMap<ObjectName, (String, u64, Duration)>,
    /// Volumes that have become ready, or have ceased to be, before the watch shows it: class, size, and the time.
    made: BTreeMap<String, (String, u64, Duration)>,
    /// Drained volumes that the watch does not show as such yet, and the time.
    drained_unseen: BTreeMap<String, Duration>,
    /// Volumes that were assigned to claims and that the watch does not show as such yet, by the claims' UIDs.
    assigned: BTreeMap<String, String>,
}

/// The data from which the decision about a pool borrows.
#[derive(Debug)]
pub struct PoolObservation {
    /// The present recipe of the class, which fills the pool.
    pub recipe: Option<Arc<Recipe>>,
    pooled: Vec<PooledVolume>,
    requests: Vec<PoolRequest>,
    claims_blocked_by_pool: usize,
    has_waiting_claims: bool,
    volumes_free: Option<u64>,
    bytes_free: Option<u64>,
}

impl PoolObservation {
    /// Returns the observation for the decision.
    pub fn observed(&self) -> Observed<'_> {
        Observed {
            pool: self.recipe.as_ref().and_then(|recipe| recipe.pool.as_ref()),
            pooled: &self.pooled,
            requests: &self.requests,
            claims_blocked_by_pool: self.claims_blocked_by_pool,
            has_waiting_claims: self.has_waiting_claims,
            volumes_free: self.volumes_free,
            bytes_free: self.bytes_free,
        }
    }

    /// Checks whether the pool gives way to claims that wait for quota or for a slot.
    pub fn waits_for_claims(&self) -> bool {
        self.has_waiting_claims && self.recipe.as_ref().is_some_and(|recipe| recipe.pool.is_some())
    }
}

impl Pools {
    /// Returns the requests for a class that no watch has shown yet, with their sizes.
    fn expected_of(&self, class: &str, now: Duration) -> impl Iterator<Item = (&ObjectName, u64)> {
        let of_class = self.expected.iter().filter(move |(_, (of, ..))| of == class);
        of_class
            .filter(move |(_, (.., since))| now.saturating_sub(*since) < EXPECTATION_TIMEOUT)
            .map(|(name, (_, size, _))| (name, *size))
    }

    /// Returns the volumes of a class that are ready before the watch shows it, with their sizes.
    fn made_of(&self, class: &str, now: Duration) -> impl Iterator<Item = (&String, u64)> {
        let of_class = self.made.iter().filter(move |(name, (of, ..))| of == class && self.is_made(name, now));
        of_class.map(|(name, (_, size, _))| (name, *size))
    }

    /// Checks whether the volume is ready before the watch shows it.
    fn is_made(&self, volume: &str, now: Duration) -> bool {
        self.made.get(volume).is_some_and(|(.., since)| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT)
    }

    /// Checks whether the volume is drained before the watch shows it.
    fn is_drained_unseen(&self, volume: &str, now: Duration) -> bool {
        let since = self.drained_unseen.get(volume);
        since.is_some_and(|since| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT)
    }

    /// Forgets the writes that no watch has shown in time. They do not count any more.
    fn drop_expired(&mut self, now: Duration) {
        self.expected.retain(|_, (.., since)| now.saturating_sub(*since) < EXPECTATION_TIMEOUT);
        self.made.retain(|_, (.., since)| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT);
        self.drained_unseen.retain(|_, since| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT);
    }
}

/// Checks whether a claim counts against the pool's slots, by its name alone, because the claim may be gone.
pub(super) fn is_pool_request_name(name: &ObjectName, namespace: &str) -> bool {
    name.namespace == namespace && name.name.starts_with(names::POOL_REQUEST_PREFIX)
}

/// Returns the position of a ready volume among those of its class. It is sorted by the requested size, which may be
/// less than the real size.
fn entry(volume: &Volume) -> Option<(u64, String)> {
    Some((volume.pool_size?, volume.name.clone()))
}

/// Returns the work item of a class's pool, which creates the requests.
fn pool_key(class: &str) -> WorkItem {
    WorkItem::Pool(class.to_owned())
}

impl Index {
    /// Checks whether a claim is a pool request.
    pub fn is_pool_request(&self, claim: &Claim) -> bool {
        claim.is_pool_request(&self.identity.namespace)
    }

    /// Returns all pools that are configured, or of which volumes are left.
    pub(super) fn pool_keys(&self) -> Vec<WorkItem> {
        let kept = self.classes.iter().filter(|class| class.recipe.as_ref().is_ok_and(|recipe| recipe.pool.is_some()));
        let remaining = self.pools.pooled.keys().chain(self.pools.requests.keys());
        let all: BTreeSet<&String> = kept.map(|class| &class.name).chain(remaining).collect();
        all.into_iter().map(|class| pool_key(class)).collect()
    }

    /// Applies a change of a volume.
    pub(super) fn on_pool_volume(&mut self, before: Option<&Volume>, now: Option<&Volume>) -> Vec<WorkItem> {
        let mut keys = Vec::new();
        if let Some(volume) = before.or(now).filter(|_| now.is_none_or(Volume::is_adopted)) {
            self.pools.made.remove(&volume.name);
        }
        for volume in before.into_iter().filter(|volume| volume.pool.is_some() || volume.is_drained()) {
            entry(volume).iter().for_each(|entry| drop_from(&mut self.pools.pooled, &volume.class, entry));
            drop_from(&mut self.pools.drained, &volume.class, &volume.name);
            keys.push(pool_key(&volume.class));
        }
        for volume in now.into_iter().filter(|volume| volume.belongs_to(&self.identity)) {
            // A retained volume frees no quota.
            if volume.is_drained() && volume.reclaim_policy == "Delete" {
                self.pools.drained.entry(volume.class.clone()).or_default().insert(volume.name.clone());
                keys.push(pool_key(&volume.class));
            }
            if volume.pool_kind().is_none() {
                continue;
            }
            keys.push(pool_key(&volume.class));
            let is_given = self.pools.assigned.values().any(|name| *name == volume.name);
            if let Some(entry) = entry(volume).filter(|_| !is_given) {
                self.pools.pooled.entry(volume.class.clone()).or_default().insert(entry);
                if before.is_none_or(|before| before.pool_kind().is_none()) {
                    keys.extend(self.claims_waiting_for(volume));
                }
            }
        }
        if let Some(before) = before.filter(|_| now.is_none_or(|now| now.pool_kind().is_none())) {
            self.pools.drained_unseen.remove(&before.name);
        }
        // The watch shows that the volume is assigned to a claim. Its reservation becomes its usage.
        let gone = |name: &str| now.is_none_or(|now| now.name == name && now.pool_kind().is_none());
        if let Some(name) = before.or(now).map(|volume| volume.name.clone()).filter(|name| gone(name)) {
            self.pools.assigned.retain(|_, given| *given != name);
        }
        if let (Some(before), Some(now)) = (before, now)
            && before.pool_kind().is_some()
            && now.pool_kind().is_none()
        {
            now.claim_uuid.iter().for_each(|uid| self.settle(uid));
            keys.extend(self.wake_for_quota(&now.class));
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// Returns the claims that wait longest for a slot or for quota and could use this volume. There are as many as
    /// volumes of its size, because all but one may get another volume.
    fn claims_waiting_for(&self, volume: &Volume) -> Vec<WorkItem> {
        let queue = self.fair_queue.dispatch(&volume.class, &FreeSlots::for_all(), self.clock.passed());
        let room = self.quota_waiters.of(&volume.class);
        let size = volume.pool_size.as_ref();
        let wants = |claim: &Claim| {
            let has_none = !self.pools.assigned.contains_key(&claim.uid);
            self.can_use_pool(claim) && has_none && claim.size.as_ref().ok() == size && self.satisfies(volume, claim)
        };
        let is_wanted = |key: &&WorkItem| match key {
            WorkItem::Claim(name) => self.claims.get(name).is_some_and(|claim| wants(claim)),
            _ => false,
        };
        let like = self
            .pooled_volumes_of(&volume.class)
            .filter(|other| other.pool_size.as_ref() == size && self.is_settled(other));
        queue.chain(room).filter(is_wanted).take(like.count()).cloned().collect()
    }

    /// Checks whether a claim may get a pooled volume. No attempt has begun for it, and it needs no particular volume.
    fn can_use_pool(&self, claim: &Claim) -> bool {
        let any = claim.data_source.is_none() && !claim.has_selector;
        any && claim.own_stamp().is_none() && !self.is_pool_request(claim)
    }

    /// Applies a change of a claim. When a request is gone, its volume is ready.
    pub(super) fn on_pool_request(&mut self, claim: &Claim, gone: bool) -> Vec<WorkItem> {
        // An assigned volume remains the claim's as long as the claim exists and has begun nothing else.
        if gone || claim.own_stamp().is_some() || claim.is_bound() || claim.deleting {
            self.forget_assigned_to(&claim.uid);
        }
        let Some(class) = claim.class.as_ref().filter(|_| self.is_pool_request(claim)) else { return Vec::new() };
        self.pools.expected.remove(&claim.name);
        let mut keys = vec![pool_key(class)];
        match gone {
            false => {
                self.pools.requests.entry(class.clone()).or_default().insert(claim.name.clone());
            }
            true => {
                drop_from(&mut self.pools.requests, class, &claim.name);
                let made = claim.ids().filter_map(|id| self.volumes.get(&names::pv_name(&id)));
                keys.extend(
                    made.filter(|volume| volume.pool_kind().is_some())
                        .flat_map(|volume| self.claims_waiting_for(volume)),
                );
            }
        }
        keys
    }

    /// Returns the pooled volume that a claim may get at once, if there is one. It is already assigned to the claim, or
    /// can be [assigned](Index::assign) next.
    pub fn pooled_volume_for(&self, claim: &Claim, class: &Class, recipe: &Recipe) -> Option<Arc<Volume>> {
        let pool = recipe.pool.as_ref()?;
        if !self.can_use_pool(claim) {
            return None;
        }
        if let Some(name) = self.pools.assigned.get(&claim.uid) {
            return self.volume(name);
        }
        let size = claim.size.as_ref().ok().copied();
        let volumes = self.pooled_volumes_of(&recipe.class).filter(|volume| volume.pool_size == size);
        let mut volumes = volumes.filter(|volume| self.is_assignable(volume, pool, class));
        let found = volumes.find(|volume| self.satisfies(volume, claim))?;
        let refused = self.namespace_is_full(claim, found, recipe);
        (!refused).then(|| found.clone())
    }

    /// Returns the ready volumes of a class that are not assigned, the smallest first.
    fn pooled_volumes_of(&self, class: &str) -> impl Iterator<Item = &Arc<Volume>> {
        let locations = self.pools.pooled.get(class).into_iter().flatten();
        locations.filter_map(|(_, name)| self.volumes.get(name))
    }

    /// Checks whether a claim could use the volume. It is like those that the class makes now, and in an allowed
    /// topology.
    fn is_assignable(&self, volume: &Volume, pool: &Pool, class: &Class) -> bool {
        self.matches_class(volume, pool) && self.is_reachable(volume, class) && self.is_settled(volume)
    }

    /// Checks whether the request of a volume is gone, so that nothing can happen to the request any more.
    fn is_settled(&self, volume: &Volume) -> bool {
        volume.id().is_some_and(|id| !self.claim_by_id.contains_key(id))
    }

    fn matches_class(&self, volume: &Volume, pool: &Pool) -> bool {
        let large = volume.size.as_ref().is_ok_and(|size| Some(*size) >= volume.pool_size);
        let untouched = large && !volume.deleting && !volume.abandoned && volume.reclaim_policy == "Delete";
        volume.pool_kind() == Some(&pool.kind) && untouched && volume.quarantine.is_none()
    }

    /// Checks whether a node reaches the volume that answers and that the class allows.
    fn is_reachable(&self, volume: &Volume, class: &Class) -> bool {
        let Some(selector) = &volume.affinity else { return true };
        let serves = |node: &Node| node.reachable && class.allowed.allows(&node.labels);
        self.nodes.values().any(|node| affinity::matches(selector, &node.labels) && serves(node))
    }

    /// Checks whether the volume has what the claim requests, on the selected node.
    fn satisfies(&self, volume: &Volume, claim: &Claim) -> bool {
        let modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
        let node = claim.selected_node.as_ref().map(|name| self.nodes.get(name));
        let reached = match (&volume.affinity, node) {
            (None, _) | (_, None) => true,
            (Some(_), Some(None)) => false,
            (Some(selector), Some(Some(node))) => affinity::matches(selector, &node.labels),
        };
        modes && reached && volume.volume_mode == claim.volume_mode && claim.attributes_class.is_none()
    }

    /// Assigns a volume to a claim. Until the watch shows it, no other claim may get the volume. Returns whether the
    /// assignment was possible.
    pub fn assign(&mut self, claim: &Claim, volume: &Volume) -> bool {
        let Some(entry) = entry(volume) else { return false };
        let is_its = self.pools.assigned.get(&claim.uid) == Some(&volume.name);
        if !is_its && !self.pools.pooled.get(&volume.class).is_some_and(|locations| locations.contains(&entry)) {
            return false;
        }
        drop_from(&mut self.pools.pooled, &volume.class, &entry);
        self.pools.assigned.insert(claim.uid.clone(), volume.name.clone());
        self.charge_without_stamp(claim, &volume.class);
        true
    }

    /// Cancels an assignment. Returns the items that may use the volume now.
    pub fn unassign(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let mut keys = self.refund(claim);
        keys.extend(self.forget_assigned_to(&claim.uid));
        keys
    }

    /// Forgets the assignment to a claim that failed or is not visible. By the cache, the volume is ready.
    fn forget_assigned_to(&mut self, uid: &str) -> Option<WorkItem> {
        let name = self.pools.assigned.remove(uid)?;
        let volume = self.volumes.get(&name).filter(|volume| volume.pool_kind().is_some())?;
        self.pools.pooled.entry(volume.class.clone()).or_default().insert(entry(volume)?);
        Some(pool_key(&volume.class))
    }

    /// Records that the volume of a request is ready. The watch may show this after the request is gone.
    pub fn expect_pooled(&mut self, volume: &Volume) {
        let is_seen = self.volumes.get(&volume.name).is_some_and(|observed| observed.pool_kind().is_some());
        if let Some((size, name)) = entry(volume).filter(|_| !is_seen && volume.pool_kind().is_some()) {
            let since = self.clock.passed();
            self.pools.drop_expired(since);
            self.pools.made.insert(name, (volume.class.clone(), size, since));
        }
    }

    /// Records that a volume is drained, before the watch shows it.
    pub fn expect_drained(&mut self, volume: &str) {
        let since = self.clock.passed();
        self.pools.drop_expired(since);
        self.pools.drained_unseen.insert(volume.to_owned(), since);
    }

    /// Forgets all assignments, because another replica leads now.
    pub(super) fn forget_assigned(&mut self) {
        self.pools.expected.clear();
        self.pools.made.clear();
        self.pools.drained_unseen.clear();
        let claims: Vec<_> = self.pools.assigned.keys().cloned().collect();
        claims.iter().for_each(|uid| drop(self.forget_assigned_to(uid)));
    }

    /// Observes the pool of a class. Returns `None` while nobody knows the pool of the class.
    pub fn observe_pool(&self, class: &str) -> Option<PoolObservation> {
        let classes = self.classes.clone();
        let (found, recipe) = match classes.lookup(class) {
            ClassLookup::Ours(found) => (Some(found), Some(found.recipe.as_ref().ok()?.clone())),
            ClassLookup::Foreign | ClassLookup::Unknown => (None, None),
        };
        let pool = recipe.as_ref().and_then(|recipe| recipe.pool.as_ref());
        let now = self.clock.passed();
        let observed = self.pooled_volumes_of(class).filter(|volume| !self.pools.is_drained_unseen(&volume.name, now));
        // Until its request is gone, a volume belongs to the request.
        let pooled = observed.filter(|volume| self.is_settled(volume)).map(|volume| PooledVolume {
            name: volume.name.clone(),
            size: volume.pool_size.unwrap_or_default(),
            right: pool.is_some_and(|pool| self.matches_class(volume, pool)),
            usable: found.is_some_and(|found| self.is_reachable(volume, found)),
        });
        let (pooled, requests) = (pooled.collect(), self.requests_of(class));
        let kept_out = recipe.as_ref().map_or(0, |recipe| self.claims_blocked_by_pool(recipe));
        let coming = self.pools.drained.get(class).map_or(0, BTreeSet::len);
        let taken = self.usage(class).all;
        let share = recipe.as_ref().map(|recipe| recipe.quota).unwrap_or_default();
        let remaining =
            |most: u64, taken: u128| u64::try_from(u128::from(most).saturating_sub(taken)).unwrap_or(u64::MAX);
        let has_waiting_claims = kept_out > 0 || self.has_waiting_claims(class);
        Some(PoolObservation {
            pooled,
            requests,
            claims_blocked_by_pool: kept_out.saturating_sub(coming),
            has_waiting_claims,
            volumes_free: share.volumes.map(|most| most.saturating_sub(taken.volumes)),
            bytes_free: share.bytes.map(|most| remaining(most, taken.bytes)),
            recipe,
        })
    }

    fn requests_of(&self, class: &str) -> Vec<PoolRequest> {
        let observed = self.pools.requests.get(class).into_iter().flatten().filter_map(|name| self.claims.get(name));
        // The result of a request may be known before its deletion is visible.
        let now = self.clock.passed();
        let observed = observed.filter(|claim| !self.pools.is_made(&names::pv_name(&claim.id()), now));
        let leaves =
            |claim: &Claim| self.volumes.get(&names::pv_name(&claim.id())).is_some_and(|v| v.pool_kind().is_some());
        let observed = observed.filter(|claim| !claim.deleting || leaves(claim)).map(|claim| PoolRequest {
            name: claim.name.clone(),
            size: claim.size.as_ref().copied().unwrap_or_default(),
            begun: self.has_charge(claim),
            has_volume: claim.deleting,
        });
        let expected = self.pools.expected_of(class, now).map(|(name, size)| PoolRequest {
            name: name.clone(),
            size,
            begun: false,
            has_volume: false,
        });
        let made = self.pools.made_of(class, now).map(|(name, size)| PoolRequest {
            name: ObjectName::new("", name),
            size,
            begun: true,
            has_volume: true,
        });
        observed.chain(expected).chain(made).collect()
    }

    /// Returns the work item of a class's pool, if it has one: there may be quota for it.
    pub(super) fn pool_of(&self, class: &str) -> Option<WorkItem> {
        match self.classes.lookup(class) {
            ClassLookup::Ours(found) if found.recipe.as_ref().is_ok_and(|recipe| recipe.pool.is_some()) => {
                Some(pool_key(class))
            }
            _ => None,
        }
    }

    /// Counts the claims that wait for quota and would have it without the pool.
    fn claims_blocked_by_pool(&self, recipe: &Recipe) -> usize {
        if !recipe.has_quota() {
            return 0;
        }
        let class = recipe.class.as_str();
        let mut taken = self.usage(class);
        self.pooled_volumes_of(class).for_each(|volume| taken.subtract("", self.bytes_of(volume)));
        let claims = self.quota_waiters.of(class).filter_map(|key| match key {
            WorkItem::Claim(name) => self.claims.get(name),
            _ => None,
        });
        let mut kept_out = 0;
        for claim in claims.filter(|claim| !self.is_pool_request(claim) && !self.has_charge(claim) && !claim.is_bound())
        {
            let bytes = claim.size.as_ref().copied().unwrap_or_default();
            if crate::claim::quota::quota_error(recipe, &taken, &claim.name.namespace, bytes).is_none() {
                taken.add(&claim.name.namespace, bytes);
                kept_out += 1;
            }
        }
        kept_out
    }

    /// Checks whether a claim of a class waits for a slot.
    fn has_waiting_claims(&self, class: &str) -> bool {
        self.fair_queue.has_claims(class, self.clock.passed())
    }

    /// Returns the names of requests that are about to be created.
    pub fn expect_pool_requests(&mut self, class: &str, size: u64, count: usize) -> Vec<ObjectName> {
        let prefix = format!("{}{}-", names::POOL_REQUEST_PREFIX, hash(format!("{class}/{size}").as_bytes()));
        let name = |n: usize| ObjectName::new(&self.identity.namespace, format!("{prefix}{n}"));
        let since = self.clock.passed();
        self.pools.drop_expired(since);
        let free = |name: &ObjectName| !self.claims.contains_key(name) && !self.pools.expected.contains_key(name);
        let names: Vec<_> = (0..).map(name).filter(free).take(count).collect();
        let expected = names.iter().map(|name| (name.clone(), (class.to_owned(), size, since)));
        self.pools.expected.extend(expected);
        names
    }

    /// Records that a request was not created.
    pub fn forget_pool_request(&mut self, name: &ObjectName) {
        self.pools.expected.remove(name);
    }

    /// Checks whether a request was created that no watch has shown yet.
    pub fn expects_pool_request(&self, class: &str) -> bool {
        self.pools.expected_of(class, self.clock.passed()).next().is_some()
    }

    /// Counts the ready volumes of each class with a pool, by size.
    pub fn pooled_counts(&self) -> BTreeMap<(String, u64), usize> {
        let kept = self.classes.iter().filter_map(|class| Some((class, class.recipe.as_ref().ok()?.pool.as_ref()?)));
        let none = kept.flat_map(|(class, pool)| pool.sizes.keys().map(|size| ((class.name.clone(), *size), 0)));
        let mut counts: BTreeMap<_, _> = none.collect();
        for (class, locations) in &self.pools.pooled {
            locations.iter().for_each(|(size, _)| *counts.entry((class.clone(), *size)).or_default() += 1);
        }
        counts
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;

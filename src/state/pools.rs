//! Pools: ready volumes, pool requests, and assigned volumes.
//!
//! All of it follows from the API, except for recent writes that no watch has shown yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_core::config::Recipe;
use flex_core::config::classes::Class;
use flex_core::config::pool::Pool;
use flex_core::model::affinity;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::{ObjectName, hash};
use flex_core::pool::{Observed, PoolRequest, PooledVolume};
use flex_core::run::node::Node;

use crate::state::cache::Cache;
use crate::state::expectations::EXPECTATION_TIMEOUT;
use crate::state::facts::Facts;
use crate::state::quota::has_charge;
use crate::state::watch_change::{Changed, drop_from};

/// The time after which a write that no watch has shown has failed. It is long, so that a slow watch does not lead to
/// too many volumes.
const POOL_EXPECTATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// A write for a pool that no watch has shown yet.
#[derive(Debug)]
struct Unseen {
    class: String,
    size: u64,
    since: Duration,
}

/// The state of pools.
#[derive(Debug, Default)]
pub struct Pools {
    /// Ready volumes that are not assigned, by class: size and name.
    pooled: HashMap<String, BTreeSet<ReadyVolume>>,
    /// Drained volumes that are about to be deleted, by class.
    drained: HashMap<String, BTreeSet<String>>,
    /// Pool requests, by class.
    requests: HashMap<String, BTreeSet<ObjectName>>,
    /// Requests that no watch has shown yet.
    expected: BTreeMap<ObjectName, Unseen>,
    /// Volumes that have become ready, or have ceased to be, before the watch shows it.
    made: BTreeMap<String, Unseen>,
    /// Drained volumes that the watch does not show as such yet, and the time.
    drained_unseen: BTreeMap<String, Duration>,
    /// Volumes that were assigned to claims and that the watch does not show as such yet, by the claims' UIDs.
    assigned: BTreeMap<String, String>,
}

/// The effect of a change of a volume on pools.
#[derive(Debug, Default)]
pub struct PoolChange {
    /// The classes whose pools change.
    pub classes: Vec<String>,
    /// The volume has become ready.
    pub ready: bool,
    /// The volume has left the pool, because a claim has it or it is drained.
    pub left: bool,
}

/// Nobody knows the pool of a class at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPool {
    /// The time after which the pool is known at the latest, if no event reports it before.
    pub known_after: Option<Duration>,
}

/// The data from which the decision about a pool borrows.
#[derive(Debug)]
pub struct PoolObservation {
    /// The present recipe of the class, which fills the pool.
    pub recipe: Option<Arc<Recipe>>,
    pub(super) pooled: Vec<PooledVolume>,
    pub(super) requests: Vec<PoolRequest>,
    pub(super) claims_blocked_by_pool: usize,
    pub(super) has_waiting_claims: bool,
    pub(super) volumes_free: Option<u64>,
    pub(super) bytes_free: Option<u64>,
}

impl PoolObservation {
    /// Returns the names of the ready volumes.
    #[cfg(test)]
    pub fn pooled_names(&self) -> Vec<&str> {
        self.pooled.iter().map(|pooled| pooled.name.as_str()).collect()
    }

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

/// A ready volume, by its position among those of its class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReadyVolume {
    /// The requested size, in bytes.
    size: u64,
    name: String,
}

/// Returns the position of a ready volume among those of its class. It is sorted by the requested size, which may be
/// less than the real size.
fn entry(volume: &Volume) -> Option<ReadyVolume> {
    Some(ReadyVolume { size: volume.pool_size?, name: volume.name.clone() })
}

/// Changes of the cache.
impl Pools {
    /// Applies a change of a volume.
    pub fn on_volume(&mut self, volume: &Changed<Volume>, facts: &Facts) -> PoolChange {
        let (before, now) = (volume.before.as_deref(), volume.now.as_deref());
        let mut change = PoolChange::default();
        let name = volume.last().name.clone();
        if now.is_none_or(Volume::is_adopted) {
            self.made.remove(&name);
        }
        for volume in before.into_iter().filter(|volume| volume.pool.is_some() || volume.is_drained()) {
            entry(volume).iter().for_each(|entry| drop_from(&mut self.pooled, &volume.class, entry));
            drop_from(&mut self.drained, &volume.class, &volume.name);
            change.classes.push(volume.class.clone());
        }
        for volume in now.into_iter().filter(|volume| volume.belongs_to(&facts.identity)) {
            // A retained volume frees no quota.
            if volume.is_drained() && volume.reclaim_policy == ReclaimPolicy::Delete {
                self.drained.entry(volume.class.clone()).or_default().insert(volume.name.clone());
                change.classes.push(volume.class.clone());
            }
            if volume.pool_hash().is_none() {
                continue;
            }
            change.classes.push(volume.class.clone());
            let is_assigned = self.assigned.values().any(|name| *name == volume.name);
            if let Some(entry) = entry(volume).filter(|_| !is_assigned) {
                self.pooled.entry(volume.class.clone()).or_default().insert(entry);
                change.ready = before.is_none_or(|before| before.pool_hash().is_none());
            }
        }
        let was_pooled = before.is_some_and(|before| before.pool_hash().is_some());
        if now.is_none_or(|now| now.pool_hash().is_none()) {
            if before.is_some() {
                self.drained_unseen.remove(&name);
            }
            // The watch shows that the volume is assigned to a claim. Its reservation becomes its usage.
            self.assigned.retain(|_, assigned| *assigned != name);
            change.left = was_pooled && now.is_some();
        }
        change
    }

    /// Applies a change of a claim. An assigned volume remains the claim's as long as the claim exists and has begun
    /// nothing else. Returns the volumes that are ready because their request is gone.
    pub fn on_claim(&mut self, claim: &Changed<Claim>, facts: &Facts) -> Vec<Arc<Volume>> {
        let (gone, claim) = (claim.now.is_none(), claim.last());
        if gone || claim.own_stamp().is_some() || claim.is_bound() || claim.terminating {
            self.forget_assigned_to(&claim.uid, &facts.cache);
        }
        let Some(class) = claim.class.as_ref().filter(|_| facts.is_pool_request(claim)) else { return Vec::new() };
        self.expected.remove(&claim.name);
        if !gone {
            self.requests.entry(class.clone()).or_default().insert(claim.name.clone());
            return Vec::new();
        }
        drop_from(&mut self.requests, class, &claim.name);
        let made = facts.cache.volumes.get(&names::pv_name(&claim.uid));
        made.filter(|volume| volume.pool_hash().is_some()).into_iter().collect()
    }
}

/// Assignment.
impl Pools {
    /// Returns the pooled volume that is assigned to a claim.
    pub fn assigned_to(&self, claim: &Claim) -> Option<&String> {
        self.assigned.get(&claim.uid)
    }

    /// Returns a pooled volume that fits a claim, and that nobody has.
    pub fn find(&self, claim: &Claim, class: &Class, recipe: &Recipe, facts: &Facts) -> Option<Arc<Volume>> {
        let (pool, size) = (recipe.pool.as_ref()?, claim.size.as_ref().ok().copied());
        let volumes = self.ready_of(&recipe.class, &facts.cache).filter(|volume| volume.pool_size == size);
        let mut volumes = volumes.filter(|volume| is_assignable(volume, pool, class, &facts.cache));
        volumes.find(|volume| satisfies(volume, claim, &facts.cache))
    }

    /// Returns the ready volumes of a class that are not assigned, the smallest first.
    pub fn ready_of(&self, class: &str, cache: &Cache) -> impl Iterator<Item = Arc<Volume>> {
        let entries = self.pooled.get(class).into_iter().flatten();
        entries.filter_map(|ready| cache.volumes.get(&ready.name))
    }

    /// Checks whether a volume that becomes ready is of use for a claim, which has none.
    pub fn is_wanted_by(&self, volume: &Volume, claim: &Claim, facts: &Facts) -> bool {
        let has_none = self.assigned_to(claim).is_none();
        let size = volume.pool_size.as_ref();
        can_use_pool(claim, facts)
            && has_none
            && claim.size.as_ref().ok() == size
            && satisfies(volume, claim, &facts.cache)
    }

    /// Counts the ready volumes of a volume's class that have its size and whose requests are gone.
    pub fn count_like(&self, volume: &Volume, cache: &Cache) -> usize {
        let like = self.ready_of(&volume.class, cache).filter(|other| other.pool_size == volume.pool_size);
        like.filter(|other| is_settled(other, cache)).count()
    }

    /// Assigns a volume to a claim. Until the watch shows it, no other claim may get the volume. Returns whether the
    /// assignment was possible.
    pub fn assign(&mut self, claim: &Claim, volume: &Volume) -> bool {
        let Some(entry) = entry(volume) else { return false };
        let is_its = self.assigned.get(&claim.uid) == Some(&volume.name);
        if !is_its && !self.pooled.get(&volume.class).is_some_and(|entries| entries.contains(&entry)) {
            return false;
        }
        drop_from(&mut self.pooled, &volume.class, &entry);
        self.assigned.insert(claim.uid.clone(), volume.name.clone());
        true
    }

    /// Forgets the assignment to a claim that failed or is not visible. By the cache, the volume is ready. Returns the
    /// class whose pool has it again.
    pub fn forget_assigned_to(&mut self, uid: &str, cache: &Cache) -> Option<String> {
        let name = self.assigned.remove(uid)?;
        let volume = cache.volumes.get(&name).filter(|volume| volume.pool_hash().is_some())?;
        self.pooled.entry(volume.class.clone()).or_default().insert(entry(&volume)?);
        Some(volume.class.clone())
    }

    /// Forgets all recent writes, because another replica leads now.
    pub fn forget_writes(&mut self, cache: &Cache) {
        self.expected.clear();
        self.made.clear();
        self.drained_unseen.clear();
        let claims: Vec<_> = self.assigned.keys().cloned().collect();
        claims.iter().for_each(|uid| drop(self.forget_assigned_to(uid, cache)));
    }
}

/// Writes that no watch has shown yet.
impl Pools {
    /// Records that the volume of a request is ready. The watch may show this after the request is gone.
    pub fn expect_pooled(&mut self, volume: &Volume, cache: &Cache, now: Duration) {
        self.drop_expired(now);
        let is_seen = cache.volumes.get(&volume.name).is_some_and(|observed| observed.pool_hash().is_some());
        if let Some(ReadyVolume { size, name }) = entry(volume).filter(|_| !is_seen && volume.pool_hash().is_some()) {
            self.made.insert(name, Unseen { class: volume.class.clone(), size, since: now });
        }
    }

    /// Records that a volume is drained, before the watch shows it.
    pub fn expect_drained(&mut self, volume: &str, now: Duration) {
        self.drop_expired(now);
        self.drained_unseen.insert(volume.to_owned(), now);
    }

    /// Returns the names of requests that are about to be created.
    pub fn expect_requests(&mut self, class: &str, size: u64, count: usize, facts: &Facts) -> Vec<ObjectName> {
        self.drop_expired(facts.now());
        let prefix = format!("{}{}-", names::POOL_REQUEST_PREFIX, hash(format!("{class}/{size}").as_bytes()));
        let name = |n: usize| ObjectName::new(&facts.identity.namespace, format!("{prefix}{n}"));
        let is_free = |name: &ObjectName| facts.cache.claims.get(name).is_none() && !self.expected.contains_key(name);
        let names: Vec<_> = (0..).map(name).filter(is_free).take(count).collect();
        for name in &names {
            self.expected.insert(name.clone(), Unseen { class: class.to_owned(), size, since: facts.now() });
        }
        names
    }

    /// Records that a request was not created.
    pub fn forget_request(&mut self, name: &ObjectName) {
        self.expected.remove(name);
    }

    /// Checks whether a request was created that no watch has shown yet.
    pub fn expects_request(&self, class: &str, now: Duration) -> bool {
        self.expected_of(class, now).next().is_some()
    }

    fn expected_of(&self, class: &str, now: Duration) -> impl Iterator<Item = (&ObjectName, u64)> {
        let of_class = self.expected.iter().filter(move |(_, unseen)| unseen.class == class);
        let of_class = of_class.filter(move |(_, unseen)| now.saturating_sub(unseen.since) < EXPECTATION_TIMEOUT);
        of_class.map(|(name, unseen)| (name, unseen.size))
    }

    fn made_of(&self, class: &str, now: Duration) -> impl Iterator<Item = (&String, u64)> {
        let of_class = self.made.iter().filter(move |(name, unseen)| unseen.class == class && self.is_made(name, now));
        of_class.map(|(name, unseen)| (name, unseen.size))
    }

    fn is_made(&self, volume: &str, now: Duration) -> bool {
        self.made.get(volume).is_some_and(|unseen| now.saturating_sub(unseen.since) < POOL_EXPECTATION_TIMEOUT)
    }

    fn is_drained_unseen(&self, volume: &str, now: Duration) -> bool {
        let since = self.drained_unseen.get(volume);
        since.is_some_and(|since| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT)
    }

    /// Forgets the writes that no watch has shown in time. They do not count any more.
    fn drop_expired(&mut self, now: Duration) {
        self.expected.retain(|_, unseen| now.saturating_sub(unseen.since) < EXPECTATION_TIMEOUT);
        self.made.retain(|_, unseen| now.saturating_sub(unseen.since) < POOL_EXPECTATION_TIMEOUT);
        self.drained_unseen.retain(|_, since| now.saturating_sub(*since) < POOL_EXPECTATION_TIMEOUT);
    }
}

/// The stock.
impl Pools {
    /// Returns the classes of all pools that are configured, or of which volumes or requests are left.
    pub fn classes<'a>(&'a self, facts: &'a Facts) -> BTreeSet<&'a String> {
        let kept = facts.configs.classes().iter();
        let kept = kept.filter(|class| class.recipe.as_ref().is_ok_and(|recipe| recipe.pool.is_some()));
        let remaining = self.pooled.keys().chain(self.requests.keys());
        kept.map(|class| &class.name).chain(remaining).collect()
    }

    /// Returns the ready volumes of a class, for the decision. Until its request is gone, a volume belongs to the
    /// request. `served` is the class, if a config serves it.
    pub fn stock(&self, class: &str, served: Option<&Class>, facts: &Facts) -> Vec<PooledVolume> {
        let pool = served.and_then(|class| class.recipe.as_ref().ok()?.pool.as_ref());
        let ready = self.ready_of(class, &facts.cache);
        let ready = ready.filter(|volume| !self.is_drained_unseen(&volume.name, facts.now()));
        let stock = ready.filter(|volume| is_settled(volume, &facts.cache)).map(|volume| PooledVolume {
            name: volume.name.clone(),
            size: volume.pool_size.unwrap_or_default(),
            right: pool.is_some_and(|pool| matches_class(&volume, pool)),
            usable: served.is_some_and(|found| is_reachable(&volume, found, &facts.cache)),
        });
        stock.collect()
    }

    /// Returns the requests of a class, for the decision.
    pub fn requests_of(&self, class: &str, facts: &Facts) -> Vec<PoolRequest> {
        let (cache, now) = (&facts.cache, facts.now());
        let observed = self.requests.get(class).into_iter().flatten().filter_map(|name| cache.claims.get(name));
        // The result of a request may be known before its deletion is visible.
        let observed = observed.filter(|claim| !self.is_made(&names::pv_name(&claim.volume_id()), now));
        let leaves = |claim: &Claim| {
            let volume = cache.volumes.get(&names::pv_name(&claim.volume_id()));
            volume.is_some_and(|volume| volume.pool_hash().is_some())
        };
        let observed = observed.filter(|claim| !claim.terminating || leaves(claim)).map(|claim| PoolRequest {
            name: claim.name.clone(),
            size: claim.size.as_ref().copied().unwrap_or_default(),
            begun: has_charge(&claim, facts),
            has_volume: claim.terminating,
        });
        let expected = self.expected_of(class, now).map(|(name, size)| PoolRequest {
            name: name.clone(),
            size,
            begun: false,
            has_volume: false,
        });
        let made = self.made_of(class, now).map(|(name, size)| PoolRequest {
            name: ObjectName::new("", name),
            size,
            begun: true,
            has_volume: true,
        });
        observed.chain(expected).chain(made).collect()
    }

    /// Counts the drained volumes of a class that are about to be deleted.
    pub fn count_drained(&self, class: &str) -> usize {
        self.drained.get(class).map_or(0, BTreeSet::len)
    }

    /// Counts the ready volumes of each class with a pool, by size.
    pub fn counts(&self, facts: &Facts) -> BTreeMap<(String, u64), usize> {
        let classes = facts.configs.classes().iter();
        let kept = classes.filter_map(|class| Some((class, class.recipe.as_ref().ok()?.pool.as_ref()?)));
        let none = kept.flat_map(|(class, pool)| pool.sizes.keys().map(|size| ((class.name.clone(), *size), 0)));
        let mut counts: BTreeMap<_, _> = none.collect();
        for (class, entries) in &self.pooled {
            entries.iter().for_each(|ready| *counts.entry((class.clone(), ready.size)).or_default() += 1);
        }
        counts
    }
}

/// Checks whether a claim may get a pooled volume. No attempt has begun for it, and it needs no particular volume.
pub fn can_use_pool(claim: &Claim, facts: &Facts) -> bool {
    let any = claim.data_source.is_none() && !claim.has_selector;
    any && claim.own_stamp().is_none() && !facts.is_pool_request(claim)
}

/// Checks whether a claim could use the volume. It is like those that the class makes now, and in an allowed topology.
fn is_assignable(volume: &Volume, pool: &Pool, class: &Class, cache: &Cache) -> bool {
    matches_class(volume, pool) && is_reachable(volume, class, cache) && is_settled(volume, cache)
}

/// Checks whether the request of a volume is gone, so that nothing can happen to the request any more.
fn is_settled(volume: &Volume, cache: &Cache) -> bool {
    volume.volume_id().is_some_and(|id| cache.claims.name_of(id).is_none())
}

fn matches_class(volume: &Volume, pool: &Pool) -> bool {
    let large = volume.size.as_ref().is_ok_and(|size| Some(*size) >= volume.pool_size);
    let untouched = large && !volume.terminating && !volume.abandoned && volume.reclaim_policy == ReclaimPolicy::Delete;
    volume.pool_hash() == Some(&pool.hash) && untouched && volume.quarantine.is_none()
}

/// Checks whether a node reaches the volume that answers and that the class allows.
fn is_reachable(volume: &Volume, class: &Class, cache: &Cache) -> bool {
    let Some(selector) = &volume.affinity else { return true };
    let serves = |node: &Node| node.reachable && class.allowed.allows(&node.labels);
    cache.nodes.all().any(|node| affinity::matches(selector, &node.labels) && serves(node))
}

/// Checks whether the volume has what the claim requests, on the selected node.
fn satisfies(volume: &Volume, claim: &Claim, cache: &Cache) -> bool {
    let modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
    let node = claim.selected_node.as_ref().map(|name| cache.nodes.get(name));
    let reached = match (&volume.affinity, node) {
        (None, _) | (_, None) => true,
        (Some(_), Some(None)) => false,
        (Some(selector), Some(Some(node))) => affinity::matches(selector, &node.labels),
    };
    modes && reached && volume.volume_mode == claim.volume_mode && claim.attributes_class.is_none()
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;

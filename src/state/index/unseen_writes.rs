//! Writes of this process that no watch has shown yet.
//!
//! A reconcile that uses the state before the process's own last write decides the same again, and its write is
//! refused. So the item waits for the event of that write, which arrives in a moment.

use std::collections::HashMap;
use std::time::Duration;

use super::{Index, WorkItem};

/// The time after which a watch that does not show a write is slow. Its other objects may be old too, so that the API
/// decides.
pub const CACHE_LAG_MAX: Duration = Duration::from_secs(2);

/// The version of an object that a write has ended. A watch shows only that the object is gone.
const ENDED: u64 = u64::MAX;

/// The written versions of claims and volumes, with the time.
#[derive(Debug, Default)]
pub(super) struct UnseenWrites(HashMap<WorkItem, (u64, Duration)>);

impl UnseenWrites {
    /// Records that a watch shows this version.
    pub fn shows(&mut self, key: &WorkItem, resource_version: &str) {
        let Some((written, _)) = self.0.get(key) else { return };
        if resource_version.parse().is_ok_and(|shown: u64| shown >= *written) {
            self.0.remove(key);
        }
    }

    /// Records that the object is gone.
    pub fn gone(&mut self, key: &WorkItem) {
        self.0.remove(key);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all writes, because another term begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Index {
    /// Records a write of a claim or volume. The cache is stale until the watch shows the write.
    pub fn record_write(&mut self, key: WorkItem, resource_version: &str) {
        resource_version.parse().into_iter().for_each(|version| self.await_version(key.clone(), version));
    }

    /// Records a write that ended a claim or volume. The cache is stale until the watch shows that it is gone.
    pub fn ended(&mut self, key: WorkItem) {
        self.await_version(key, ENDED);
    }

    fn await_version(&mut self, key: WorkItem, written: u64) {
        let kept = match &key {
            WorkItem::Claim(name) => self.claims.get(name).map(|claim| &claim.resource_version),
            WorkItem::Volume(name) => self.volumes.get(name).map(|volume| &volume.resource_version),
            _ => None,
        };
        let Some(kept) = kept.and_then(|version| version.parse::<u64>().ok()) else { return };
        let now = self.clock.passed();
        self.unseen_writes.0.retain(|_, (_, at)| now.saturating_sub(*at) < CACHE_LAG_MAX);
        if kept < written {
            self.unseen_writes.0.insert(key, (written, now));
        }
    }

    /// Checks whether the cache of a claim or volume is older than this process's own write. Then its event requeues
    /// it.
    pub fn is_stale(&self, key: &WorkItem) -> bool {
        let now = self.clock.passed();
        let awaited = |key: &WorkItem| {
            self.unseen_writes.0.get(key).is_some_and(|(_, at)| now.saturating_sub(*at) < CACHE_LAG_MAX)
        };
        if self.unseen_writes.0.is_empty() {
            return false;
        }
        let is_other_awaited = || match key {
            WorkItem::Claim(name) => {
                let mut ids = self.claims.get(name).into_iter().flat_map(|claim| claim.ids());
                ids.any(|id| self.volume_keys(&id).iter().any(awaited))
            }
            WorkItem::Volume(name) => {
                let claim = self.volumes.get(name).and_then(|volume| volume.claim_ref.as_ref());
                claim.and_then(|claim| self.claim_keys(&claim.uid)).is_some_and(|key| awaited(&key))
            }
            _ => false,
        };
        awaited(key) || is_other_awaited()
    }
}

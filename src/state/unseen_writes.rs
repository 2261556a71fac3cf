//! Writes of this process that no watch has shown yet.
//!
//! A reconcile that uses the state before the process's own last write decides the same again, and its write is
//! refused. So the item waits for the event of that write, which arrives in a moment.

use std::collections::HashMap;
use std::time::Duration;

use crate::state::cache::Cache;
use crate::state::work_item::WorkItem;

/// The time after which a watch that does not show a write is slow. Its other objects may be old too, so that the API
/// decides.
pub const CACHE_LAG_MAX: Duration = Duration::from_secs(2);

/// The version of an object that a write has ended. A watch shows only that the object is gone.
const ENDED: u64 = u64::MAX;

/// The written versions of claims and volumes, with the time.
#[derive(Debug, Default)]
pub struct UnseenWrites(HashMap<WorkItem, (u64, Duration)>);

impl UnseenWrites {
    /// Records a write of a claim or volume. The cache is stale until the watch shows the write.
    pub fn record(&mut self, item: WorkItem, resource_version: &str, cache: &Cache, now: Duration) {
        if let Ok(version) = resource_version.parse() {
            self.await_version(item, version, cache, now);
        }
    }

    /// Records a write that ended a claim or volume. The cache is stale until the watch shows that it is gone.
    pub fn record_end(&mut self, item: WorkItem, cache: &Cache, now: Duration) {
        self.await_version(item, ENDED, cache, now);
    }

    fn await_version(&mut self, item: WorkItem, written: u64, cache: &Cache, now: Duration) {
        let kept = match &item {
            WorkItem::Claim(name) => cache.claims.get(name).map(|claim| claim.resource_version.clone()),
            WorkItem::Volume(name) => cache.volumes.get(name).map(|volume| volume.resource_version.clone()),
            _ => None,
        };
        let Some(kept) = kept.and_then(|version| version.parse::<u64>().ok()) else { return };
        self.0.retain(|_, (_, at)| now.saturating_sub(*at) < CACHE_LAG_MAX);
        if kept < written {
            self.0.insert(item, (written, now));
        }
    }

    /// Records that a watch shows this version; `None` if it shows that the object is gone.
    pub fn shows(&mut self, item: &WorkItem, resource_version: Option<&str>) {
        let Some((written, _)) = self.0.get(item) else { return };
        if resource_version.is_none_or(|version| version.parse().is_ok_and(|shown: u64| shown >= *written)) {
            self.0.remove(item);
        }
    }

    /// Checks whether the cache of a claim or volume is older than this process's own write. Then its event requeues
    /// it.
    pub fn is_stale(&self, item: &WorkItem, cache: &Cache, now: Duration) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let awaited = |item: &WorkItem| self.0.get(item).is_some_and(|(_, at)| now.saturating_sub(*at) < CACHE_LAG_MAX);
        let is_other_awaited = || match item {
            WorkItem::Claim(name) => {
                let is_awaited = |volume: &str| awaited(&WorkItem::Volume(volume.to_owned()));
                let claim = cache.claims.get(name);
                claim.is_some_and(|claim| cache.volumes.names_of(&claim.uid).any(is_awaited))
            }
            WorkItem::Volume(name) => {
                let volume = cache.volumes.get(name);
                let claim = volume.and_then(|volume| cache.claims.name_of(volume.claim_ref_uid()?));
                claim.is_some_and(|claim| awaited(&WorkItem::Claim(claim.clone())))
            }
            _ => false,
        };
        awaited(item) || is_other_awaited()
    }

    /// Forgets all writes, because another term begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
#[path = "unseen_writes_tests.rs"]
mod tests;

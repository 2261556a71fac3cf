//! The stored versions of configs, with their ages.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flex_core::config::Recipe;
use flex_core::config::classes::Revision;
use flex_core::config::effective_config::hash_of;
use flex_core::object::ObjectName;

use crate::state::watch_change::{Listed, WatchChange, retain};

/// The time for which a version of a config is kept after an attempt began with it. Its stamp may not be visible yet.
pub const REVISION_TTL: Duration = Duration::from_secs(60);

/// The least age of a revision that is deleted, in seconds.
const MIN_AGE: i64 = 3600;

/// All revisions, by the hashes of their recipes.
#[derive(Debug, Default)]
pub struct Revisions {
    stored: BTreeMap<String, Revision>,
    /// Revisions that are about to be deleted.
    being_deleted: BTreeMap<String, Revision>,
    /// The time when a version was first seen, or when an attempt began with it.
    used: HashMap<String, Duration>,
    recipes: HashMap<String, Arc<Recipe>>,
}

impl Revisions {
    /// Returns the stored revisions with which attempts may begin.
    pub fn stored(&self) -> &BTreeMap<String, Revision> {
        &self.stored
    }

    /// Returns all revisions, also those that are about to be deleted.
    pub fn all(&self) -> impl Iterator<Item = &Revision> {
        self.stored.values().chain(self.being_deleted.values())
    }

    /// Returns the hashes of the stored recipes.
    pub fn hashes(&self) -> impl Iterator<Item = &str> {
        self.recipes.keys().map(String::as_str)
    }

    /// Returns the recipe of a version.
    pub fn recipe(&self, version: &str) -> Option<&Arc<Recipe>> {
        self.recipes.get(hash_of(version)?)
    }

    /// Records that an attempt begins with a version.
    pub fn note_use(&mut self, hash: &str, now: Duration) {
        self.used.insert(hash.to_owned(), now);
    }

    /// Returns the revisions that are not in use, and are neither young nor the newest of a config that exists or may be
    /// created again. `now` is in seconds since 1970.
    pub fn unused(&self, used: &HashSet<&str>, may_exist: impl Fn(&ObjectName) -> bool, now: i64) -> Vec<String> {
        let is_unused = |(hash, revision): &(&String, &Revision)| {
            let is_kept = may_exist(&revision.effective_config.config) && self.is_newest(revision);
            !used.contains(hash.as_str()) && now - revision.created > MIN_AGE && !is_kept
        };
        self.stored.iter().filter(is_unused).map(|(hash, _)| hash.clone()).collect()
    }

    /// Checks whether a revision is the newest of its config and class.
    fn is_newest(&self, revision: &Revision) -> bool {
        !self.stored.values().any(|other| {
            other.number > revision.number
                && other.effective_config.config == revision.effective_config.config
                && other.effective_config.class == revision.effective_config.class
        })
    }

    /// Begins the deletion of a revision, so that no attempt begins with it any more. Returns false if one may have
    /// begun that is not visible yet. If the revision stays, [`cancel_deletion`](Self::cancel_deletion) must follow.
    pub fn begin_deletion(&mut self, hash: &str, now: Duration) -> bool {
        if self.used.get(hash).is_some_and(|used| now.saturating_sub(*used) < REVISION_TTL) {
            return false;
        }
        let Some(revision) = self.stored.remove(hash) else { return false };
        self.recipes.remove(hash);
        self.being_deleted.insert(hash.to_owned(), revision);
        true
    }

    /// Cancels the deletion of a revision that was not deleted, or may not have been. The revision is used again,
    /// unless the watch says that it is gone. Returns whether the classes must be decided again.
    pub fn cancel_deletion(&mut self, hash: &str, now: Duration) -> bool {
        match self.being_deleted.remove(hash) {
            Some(revision) => self.change(WatchChange::Apply((hash.to_owned(), revision)), now),
            None => false,
        }
    }

    /// Forgets a revision whose deletion has begun and that is gone.
    pub fn forget(&mut self, hash: &str) {
        self.being_deleted.remove(hash);
    }

    /// Applies a change of a revision. Returns whether the classes must be decided again.
    pub fn change(&mut self, change: WatchChange<(String, Revision)>, now: Duration) -> bool {
        match change {
            // A list shows known revisions again.
            WatchChange::Apply((hash, revision)) if self.stored.get(&hash) == Some(&revision) => false,
            WatchChange::Apply((hash, revision)) => {
                if let Ok(recipe) = revision.effective_config.checked() {
                    self.recipes.insert(hash.clone(), recipe);
                }
                self.used.entry(hash.clone()).or_insert(now);
                self.stored.insert(hash, revision);
                true
            }
            WatchChange::Delete(name) => {
                let hash = hash_in(&name);
                self.being_deleted.remove(hash);
                self.stored.remove(hash);
                self.used.remove(hash);
                self.recipes.remove(hash);
                true
            }
            // Revisions are in one namespace only.
            WatchChange::Retain(Listed::AllCached) | WatchChange::RetainIn(_, Listed::AllCached) => false,
            WatchChange::Retain(Listed::Names(all)) | WatchChange::RetainIn(_, Listed::Names(all)) => {
                let kept: HashSet<&str> = all.iter().map(hash_in).collect();
                self.being_deleted.retain(|hash, _| kept.contains(hash.as_str()));
                self.used.retain(|hash, _| kept.contains(hash.as_str()));
                self.recipes.retain(|hash, _| kept.contains(hash.as_str()));
                retain(&mut self.stored, |hash| kept.contains(hash.as_str()))
            }
        }
    }
}

/// Returns the hash in the name of a ControllerRevision.
fn hash_in(name: &ObjectName) -> &str {
    name.name.rsplit('-').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_deleted_some_time_after_its_last_use() {
        let revision = Revision { number: 1, effective_config: Default::default(), created: 0 };
        let change = || WatchChange::Apply(("hash".to_owned(), revision.clone()));
        let unused = |revisions: &Revisions, used: &[&str]| {
            revisions.unused(&used.iter().copied().collect(), |_| false, MIN_AGE + 1)
        };
        let (used, later) = (Duration::from_secs(10), Duration::from_secs(10) + REVISION_TTL);
        let mut revisions = Revisions::default();
        assert!(revisions.change(change(), Duration::ZERO));
        assert!(!revisions.change(change(), Duration::ZERO), "a list shows it again");
        revisions.note_use("hash", used);
        assert!(!revisions.begin_deletion("hash", REVISION_TTL), "a stamp with it may be on its way");
        assert_eq!(unused(&revisions, &[]), ["hash"]);
        assert!(unused(&revisions, &["hash"]).is_empty());
        assert!(revisions.begin_deletion("hash", later) && !revisions.begin_deletion("hash", later));
        assert!(unused(&revisions, &[]).is_empty());
        assert!(revisions.cancel_deletion("hash", later), "it was not deleted");
        assert!(revisions.begin_deletion("hash", later));
        revisions.change(WatchChange::Delete(ObjectName::new("own", "flex-config-hash")), later);
        assert!(!revisions.cancel_deletion("hash", later), "the watch shows that it is gone");
    }
}

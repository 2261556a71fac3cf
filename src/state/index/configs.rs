//! Configs, classes and the versions that are kept of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Change, Index, Key, REPLACED, UNUSED};
use crate::capacity::segment::any_reports;
use crate::config::Recipe;
use crate::config::classes::{ClassObject, Classes, Config, Lookup, Revision, classes};
use crate::config::record::hash_of;
use crate::config::sidecar::{Drivers, Sidecars, drivers_stood_for};
use crate::object::ObjectName;
use crate::volume::Volume;

impl Index {
    /// The hashes of the recipes that are kept.
    pub fn recipe_hashes(&self) -> impl Iterator<Item = &str> {
        self.recipes.keys().map(String::as_str)
    }

    /// All classes and verdicts.
    pub fn classes(&self) -> Arc<Classes> {
        self.classes.clone()
    }

    /// A config by its name.
    pub fn config(&self, name: &ObjectName) -> Option<&Config> {
        self.configs.get(name)
    }

    /// The revision with a hash is kept.
    pub fn has_revision(&self, hash: &str) -> bool {
        self.revisions.contains_key(hash)
    }

    /// The recipe of a version, from its revision.
    pub fn recipe(&self, version: &str) -> Option<Arc<Recipe>> {
        self.recipes.get(hash_of(version)?).cloned()
    }

    /// Revisions that nothing refers to any more: no class, no claim under way.
    pub fn unused_revisions(&self, now: i64) -> Vec<String> {
        let mut used: HashSet<String> = HashSet::new();
        for class in self.classes.iter() {
            used.extend(class.recipe.as_ref().ok().map(|recipe| recipe.hash.clone()));
        }
        let stamps = self.claims.values().filter_map(|claim| claim.stamp.as_ref());
        used.extend(stamps.filter_map(|stamp| hash_of(&stamp.config)).map(str::to_owned));
        used.extend(self.jobs.values().filter_map(|job| hash_of(&job.config)).map(str::to_owned));
        let configs = &self.configs;
        self.revisions
            .iter()
            .filter(|(hash, revision)| {
                !used.contains(*hash) && now - revision.created > 3600 && !self.is_newest(revision, configs)
            })
            .map(|(hash, _)| hash.clone())
            .collect()
    }

    /// A revision is about to be deleted, and nothing begins with it any more. False if something may have begun with
    /// it that is not seen yet. Where it stays after all, [`give_back_revision`](Self::give_back_revision) follows.
    pub fn take_revision(&mut self, hash: &str) -> bool {
        if self.revisions_used.get(hash).is_some_and(|used| self.clock.since(*used) < UNUSED) {
            return false;
        }
        let Some(revision) = self.revisions.remove(hash) else { return false };
        self.recipes.remove(hash);
        self.taken_revisions.insert(hash.to_owned(), revision);
        true
    }

    /// A revision that was taken was not deleted, or nobody knows: it is used again, unless the watch says that it is
    /// gone.
    pub fn give_back_revision(&mut self, hash: &str) -> Vec<Key> {
        match self.taken_revisions.remove(hash) {
            Some(revision) => self.change_revision(Change::Apply((hash.to_owned(), revision))),
            None => Vec::new(),
        }
    }

    /// A revision that was taken is gone.
    pub fn forget_revision(&mut self, hash: &str) {
        self.taken_revisions.remove(hash);
    }

    /// The newest revision of a config that exists is kept even while nothing uses it.
    fn is_newest(&self, revision: &Revision, configs: &BTreeMap<ObjectName, Config>) -> bool {
        configs.contains_key(&revision.record.config)
            && !self.revisions.values().any(|other| {
                other.number > revision.number
                    && other.record.config == revision.record.config
                    && other.record.class == revision.record.class
            })
    }

    /// A provisioner ConfigMap changed.
    pub fn change_config(&mut self, change: Change<Config>) -> Vec<Key> {
        match change {
            Change::Apply(config) => {
                // Our own verdict on it is no change.
                let before = self.configs.insert(config.name.clone(), config.clone());
                if before.is_some_and(|before| Config { verdict: None, ..before } == Config { verdict: None, ..config })
                {
                    return Vec::new();
                }
            }
            Change::Delete(name) => {
                if self.configs.remove(&name).is_none() {
                    return Vec::new();
                }
            }
            Change::Retain(all) => {
                if !retain(&mut self.configs, |name| all.contains(name)) {
                    return Vec::new();
                }
            }
            Change::RetainIn(namespace, all) => {
                if !retain(&mut self.configs, |name| name.namespace != namespace || all.contains(name)) {
                    return Vec::new();
                }
            }
        }
        self.reclassify()
    }

    /// Classes whose StorageClass does not come back are served by their label. Says what is concerned,
    /// and for how long others are still waited for.
    pub fn serve_without_objects(&mut self) -> (Vec<Key>, Option<Duration>) {
        let clock = self.clock.clone();
        let before = self.objects_gone.len();
        self.objects_gone.retain(|_, since| clock.since(*since) < REPLACED);
        let keys = if self.objects_gone.len() < before { self.reclassify() } else { Vec::new() };
        let next = self.objects_gone.values().map(|since| REPLACED.saturating_sub(clock.since(*since))).min();
        (keys, next)
    }

    /// A StorageClass changed.
    pub fn change_class(&mut self, change: Change<ClassObject>) -> Vec<Key> {
        match change {
            Change::Apply(object) => {
                let before = self.objects.insert(object.name.clone(), object.clone());
                if before == Some(object) {
                    return Vec::new();
                }
            }
            Change::Delete(name) => {
                if self.objects.remove(&name.name).is_none() {
                    return Vec::new();
                }
                self.objects_gone.insert(name.name, self.clock.passed());
            }
            Change::Retain(all) => {
                let there = |name: &String| all.contains(&ObjectName::new("", name));
                let gone: Vec<_> = self.objects.keys().filter(|name| !there(name)).cloned().collect();
                if gone.is_empty() {
                    return Vec::new();
                }
                for name in gone {
                    self.objects.remove(&name);
                    self.objects_gone.insert(name, self.clock.passed());
                }
            }
            // In no namespace.
            Change::RetainIn(..) => return Vec::new(),
        }
        self.reclassify()
    }

    /// The drivers whose external provisioners have to be known.
    pub fn drivers_stood_for(&self) -> Drivers {
        drivers_stood_for(&self.identity, self.configs.values())
    }

    /// What is known of the external provisioners of drivers has changed, or not.
    pub fn change_sidecars(&mut self, sidecars: Sidecars) -> Vec<Key> {
        if self.sidecars == sidecars {
            return Vec::new();
        }
        self.sidecars = sidecars;
        self.reclassify()
    }

    /// A revision changed.
    pub fn change_revision(&mut self, change: Change<(String, Revision)>) -> Vec<Key> {
        match change {
            // A list shows again what is known.
            Change::Apply((hash, revision)) if self.revisions.get(&hash) == Some(&revision) => return Vec::new(),
            Change::Apply((hash, revision)) => {
                if let Ok(recipe) = revision.record.checked() {
                    self.recipes.insert(hash.clone(), recipe);
                }
                self.revisions_used.entry(hash.clone()).or_insert_with(|| self.clock.passed());
                self.revisions.insert(hash, revision);
            }
            Change::Delete(name) => {
                let hash = name.name.rsplit('-').next().unwrap_or_default();
                self.taken_revisions.remove(hash);
                self.revisions.remove(hash);
                self.revisions_used.remove(hash);
                self.recipes.remove(hash);
            }
            // They are in one namespace alone.
            Change::Retain(all) | Change::RetainIn(_, all) => {
                let kept: HashSet<&str> = all.iter().filter_map(|name| name.name.rsplit('-').next()).collect();
                self.taken_revisions.retain(|hash, _| kept.contains(hash.as_str()));
                self.revisions_used.retain(|hash, _| kept.contains(hash.as_str()));
                self.recipes.retain(|hash, _| kept.contains(hash.as_str()));
                if !retain(&mut self.revisions, |hash| kept.contains(hash.as_str())) {
                    return Vec::new();
                }
            }
        }
        self.reclassify()
    }

    /// A change that is a part of a list: the classes are decided anew with the [end](Self::end_list) of it, and not with
    /// each object.
    pub fn list(&mut self, change: impl FnOnce(&mut Index) -> Vec<Key>) -> Vec<Key> {
        self.listing = true;
        let keys = change(self);
        self.listing = false;
        keys
    }

    /// A list is at its end. Says whom that concerns.
    pub fn end_list(&mut self) -> Vec<Key> {
        if self.unclassified { self.reclassify() } else { Vec::new() }
    }

    /// Decides all classes anew; every claim that is under way or could be is concerned.
    pub(super) fn reclassify(&mut self) -> Vec<Key> {
        self.unclassified = self.listing;
        if self.listing {
            return Vec::new();
        }
        let (configs, objects) = (self.configs.values(), self.objects.values());
        let mut table = classes(&self.identity, configs, objects, &self.revisions, &self.sidecars);
        self.objects_gone.keys().for_each(|class| table.hold_back(class));
        table.warn_of_accounts(self.configs.values(), &self.accounts);
        self.classes = Arc::new(table);
        self.reports = any_reports(self.classes.iter());
        let concerned = self.claims.values().filter(|claim| {
            let ours =
                || claim.class.as_deref().is_some_and(|class| matches!(self.classes.lookup(class), Lookup::Ours(_)));
            let left = || claim.class.as_deref().is_some_and(|class| self.classes.left_to_another(class).is_some());
            claim.is_held() || (!claim.is_bound() && (ours() || left()))
        });
        let mut keys: Vec<Key> = concerned.map(|claim| Key::Claim(claim.name.clone())).collect();
        // Their storage may be held for what the config did not say before.
        let released =
            |volume: &&Arc<Volume>| volume.is_held() && matches!(volume.phase.as_str(), "Released" | "Failed");
        keys.extend(self.volumes.values().filter(released).map(|volume| Key::Volume(volume.name.clone())));
        let growing = self.claims.values().filter(|claim| self.wants_more(claim));
        keys.extend(growing.filter_map(|claim| claim.volume_name.clone()).map(Key::Volume));
        keys.extend(self.snapshots.waiting());
        keys.push(Key::Configs);
        keys.extend(self.capacity_keys());
        keys.extend(self.pool_keys());
        keys
    }
}

/// Keeps what is still there; tells whether something went.
fn retain<K: Ord, V>(all: &mut BTreeMap<K, V>, mut there: impl FnMut(&K) -> bool) -> bool {
    let before = all.len();
    all.retain(|name, _| there(name));
    all.len() < before
}

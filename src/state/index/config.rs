//! Configs, classes and their stored versions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{CLASS_REPLACE_GRACE, Change, Index, REVISION_TTL, WorkItem};
use crate::capacity::segment::any_has_capacity;
use crate::config::Recipe;
use crate::config::classes::{ClassLookup, ClassObject, Classes, Config, Revision, classes};
use crate::config::external_provisioner::{Drivers, ExternalProvisioners, replaced_drivers};
use crate::config::record::hash_of;
use crate::model::volume::Volume;
use crate::object::ObjectName;

impl Index {
    /// Returns the hashes of the stored recipes.
    pub fn recipe_hashes(&self) -> impl Iterator<Item = &str> {
        self.recipes.keys().map(String::as_str)
    }

    /// Returns all classes and verdicts.
    pub fn classes(&self) -> Arc<Classes> {
        self.classes.clone()
    }

    /// Returns a config by its name.
    pub fn config(&self, name: &ObjectName) -> Option<&Config> {
        self.configs.get(name)
    }

    /// Checks whether the revision with a hash is stored.
    pub fn has_revision(&self, hash: &str) -> bool {
        self.revisions.contains_key(hash)
    }

    /// Returns the recipe of a version, from its revision.
    pub fn recipe(&self, version: &str) -> Option<Arc<Recipe>> {
        self.recipes.get(hash_of(version)?).cloned()
    }

    /// Returns the revisions to which no class and no claim in progress refers any more.
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

    /// Begins the deletion of a revision, so that no attempt begins with it any more. Returns false if one may have
    /// begun that is not visible yet. If the revision stays,
    /// [`cancel_revision_deletion`](Self::cancel_revision_deletion) must follow.
    pub fn begin_revision_deletion(&mut self, hash: &str) -> bool {
        if self.revisions_used.get(hash).is_some_and(|used| self.clock.since(*used) < REVISION_TTL) {
            return false;
        }
        let Some(revision) = self.revisions.remove(hash) else { return false };
        self.recipes.remove(hash);
        self.revisions_being_deleted.insert(hash.to_owned(), revision);
        true
    }

    /// Cancels the deletion of a revision that was not deleted, or may not have been. The revision is used again,
    /// unless the watch says that it is gone.
    pub fn cancel_revision_deletion(&mut self, hash: &str) -> Vec<WorkItem> {
        match self.revisions_being_deleted.remove(hash) {
            Some(revision) => self.change_revision(Change::Apply((hash.to_owned(), revision))),
            None => Vec::new(),
        }
    }

    /// Forgets a revision whose deletion has begun and that is gone.
    pub fn forget_revision(&mut self, hash: &str) {
        self.revisions_being_deleted.remove(hash);
    }

    /// Checks whether a revision is the newest of an existing config. Such a revision is kept even while nothing uses
    /// it.
    fn is_newest(&self, revision: &Revision, configs: &BTreeMap<ObjectName, Config>) -> bool {
        configs.contains_key(&revision.record.config)
            && !self.revisions.values().any(|other| {
                other.number > revision.number
                    && other.record.config == revision.record.config
                    && other.record.class == revision.record.class
            })
    }

    /// Applies a change of a provisioner ConfigMap.
    pub fn change_config(&mut self, change: Change<Config>) -> Vec<WorkItem> {
        match change {
            Change::Apply(config) => {
                // The orchestrator's own verdict on the config is no change.
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

    /// Serves classes by their label if their StorageClass was not created again in time. Returns the work items to
    /// requeue, and the time for which others are still waited for.
    pub fn serve_without_objects(&mut self) -> (Vec<WorkItem>, Option<Duration>) {
        let clock = self.clock.clone();
        let before = self.objects_gone.len();
        self.objects_gone.retain(|_, since| clock.since(*since) < CLASS_REPLACE_GRACE);
        let keys = if self.objects_gone.len() < before { self.reclassify() } else { Vec::new() };
        let next =
            self.objects_gone.values().map(|since| CLASS_REPLACE_GRACE.saturating_sub(clock.since(*since))).min();
        (keys, next)
    }

    /// Applies a change of a StorageClass.
    pub fn change_class(&mut self, change: Change<ClassObject>) -> Vec<WorkItem> {
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
            // The kind has no namespace.
            Change::RetainIn(..) => return Vec::new(),
        }
        self.reclassify()
    }

    /// Returns the drivers whose external provisioners must be known.
    pub fn replaced_drivers(&self) -> Drivers {
        replaced_drivers(&self.identity, self.configs.values())
    }

    /// Applies the state of the drivers' external provisioners.
    pub fn change_external_provisioners(&mut self, external_provisioners: ExternalProvisioners) -> Vec<WorkItem> {
        if self.external_provisioners == external_provisioners {
            return Vec::new();
        }
        self.external_provisioners = external_provisioners;
        self.reclassify()
    }

    /// Applies a change of a revision.
    pub fn change_revision(&mut self, change: Change<(String, Revision)>) -> Vec<WorkItem> {
        match change {
            // A list shows known revisions again.
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
                self.revisions_being_deleted.remove(hash);
                self.revisions.remove(hash);
                self.revisions_used.remove(hash);
                self.recipes.remove(hash);
            }
            // Revisions are in one namespace only.
            Change::Retain(all) | Change::RetainIn(_, all) => {
                let kept: HashSet<&str> = all.iter().filter_map(|name| name.name.rsplit('-').next()).collect();
                self.revisions_being_deleted.retain(|hash, _| kept.contains(hash.as_str()));
                self.revisions_used.retain(|hash, _| kept.contains(hash.as_str()));
                self.recipes.retain(|hash, _| kept.contains(hash.as_str()));
                if !retain(&mut self.revisions, |hash| kept.contains(hash.as_str())) {
                    return Vec::new();
                }
            }
        }
        self.reclassify()
    }

    /// Applies a change that is a part of a list. The classes are decided again at the [end](Self::end_list) of the
    /// list, and not with each object.
    pub fn list(&mut self, change: impl FnOnce(&mut Index) -> Vec<WorkItem>) -> Vec<WorkItem> {
        self.listing = true;
        let keys = change(self);
        self.listing = false;
        keys
    }

    /// Ends a list. Returns the work items to requeue.
    pub fn end_list(&mut self) -> Vec<WorkItem> {
        if self.unclassified { self.reclassify() } else { Vec::new() }
    }

    /// Decides all classes again. Returns the claims that are in progress or could be.
    pub(super) fn reclassify(&mut self) -> Vec<WorkItem> {
        self.unclassified = self.listing;
        if self.listing {
            return Vec::new();
        }
        let (configs, objects) = (self.configs.values(), self.objects.values());
        let mut table = classes(&self.identity, configs, objects, &self.revisions, &self.external_provisioners);
        self.objects_gone.keys().for_each(|class| table.defer_class(class));
        table.warn_of_accounts(self.configs.values(), &self.accounts);
        self.classes = Arc::new(table);
        self.has_capacity_class = any_has_capacity(self.classes.iter());
        let concerned = self.claims.values().filter(|claim| {
            let ours = || {
                claim.class.as_deref().is_some_and(|class| matches!(self.classes.lookup(class), ClassLookup::Ours(_)))
            };
            let leftovers = || {
                claim.class.as_deref().is_some_and(|class| self.classes.left_to_external_provisioner(class).is_some())
            };
            claim.has_finalizer() || (!claim.is_bound() && (ours() || leftovers()))
        });
        let mut keys: Vec<WorkItem> = concerned.map(|claim| WorkItem::Claim(claim.name.clone())).collect();
        // The config may not have said before how their storage is deleted.
        let released =
            |volume: &&Arc<Volume>| volume.has_finalizer() && matches!(volume.phase.as_str(), "Released" | "Failed");
        keys.extend(self.volumes.values().filter(released).map(|volume| WorkItem::Volume(volume.name.clone())));
        let growing = self.claims.values().filter(|claim| self.wants_more(claim));
        keys.extend(growing.filter_map(|claim| claim.volume_name.clone()).map(WorkItem::Volume));
        keys.extend(self.snapshots.waiting());
        keys.push(WorkItem::Configs);
        keys.extend(self.capacity_keys());
        keys.extend(self.pool_keys());
        keys
    }
}

/// Keeps the entries that still exist. Returns whether any was removed.
fn retain<K: Ord, V>(all: &mut BTreeMap<K, V>, mut there: impl FnMut(&K) -> bool) -> bool {
    let before = all.len();
    all.retain(|name, _| there(name));
    all.len() < before
}

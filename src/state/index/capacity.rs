//! What the scheduler is told of room, and what concerns it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use contract::exit::Failure;

use super::{CAPACITY, Change, Index, Key};
use crate::capacity::{Driver, Published};
use crate::claim::Claim;
use crate::object::ObjectName;
use crate::run::view::{Job, Pod};

impl Index {
    /// What is published under a name.
    pub fn capacity(&self, name: &str) -> Option<Arc<Published>> {
        self.capacities.get(name).cloned()
    }

    /// What is published, by name.
    pub fn capacities(&self) -> BTreeMap<String, Arc<Published>> {
        self.capacities.clone()
    }

    /// The CSIDriver of the provisioner's name.
    pub fn driver(&self) -> Option<Arc<Driver>> {
        self.driver.clone()
    }

    /// Somebody is told, or is to be told, how much room there is.
    pub fn has_capacities(&self) -> bool {
        self.reports || !self.capacities.is_empty() || self.driver.is_some()
    }

    /// All capacity runs: Jobs, each with the pods that bear its mark.
    pub fn capacity_runs(&self) -> Vec<(Arc<Job>, Vec<Arc<Pod>>)> {
        let jobs = self.jobs.values().filter(|job| job.marks.operation == CAPACITY);
        jobs.map(|job| (job.clone(), self.pods_of(&job.marks.id))).collect()
    }

    /// The config of each class that has one.
    pub fn configs_of_classes(&self) -> HashMap<String, ObjectName> {
        let config = |class: &crate::config::classes::Class| {
            class.recipe.as_ref().ok().map(|recipe| (class.name.clone(), recipe.config.clone()))
        };
        self.classes.iter().filter_map(config).collect()
    }

    /// Something changed that can matter for how much room there is.
    pub(super) fn capacity_keys(&self) -> Option<Key> {
        self.has_capacities().then_some(Key::Capacity)
    }

    /// The same for a claim: that it found no room, or that it need not any more.
    pub(super) fn capacity_keys_of_claim(&self, before: Option<&Claim>, now: &Claim) -> Option<Key> {
        let full = |claim: &Claim| {
            let full = claim.last_failure.as_ref().is_some_and(|failure| failure.kind == Failure::NoRoom);
            full && !claim.is_bound()
        };
        (before.is_some_and(full) != full(now)).then(|| self.capacity_keys()).flatten()
    }

    /// What is published has changed.
    pub fn change_capacity(&mut self, change: Change<Published>) -> Vec<Key> {
        match change {
            Change::Apply(published) => {
                let attempt = |published: &Published| published.record.as_ref().map_or(0, |record| record.attempt);
                let before = self.capacities.get(&published.name);
                // The watch may show what we have written over since.
                if before.is_some_and(|before| before.uid == published.uid && attempt(before) > attempt(&published)) {
                    return Vec::new();
                }
                self.capacities.insert(published.name.clone(), Arc::new(published));
            }
            Change::Delete(name) => {
                self.capacities.remove(&name.name);
            }
            Change::Retain(all) | Change::RetainIn(_, all) => {
                let kept: HashSet<&str> = all.iter().map(|kept| kept.name.as_str()).collect();
                self.capacities.retain(|name, _| kept.contains(name.as_str()));
            }
        }
        vec![Key::Capacity]
    }

    /// The CSIDriver has changed.
    pub fn change_driver(&mut self, change: Change<Driver>) -> Vec<Key> {
        match change {
            Change::Apply(driver) => self.driver = Some(Arc::new(driver)),
            Change::Delete(_) => self.driver = None,
            Change::Retain(all) => {
                self.driver = self.driver.take().filter(|driver| all.contains(&ObjectName::new("", &driver.name)));
            }
            // In no namespace.
            Change::RetainIn(..) => return Vec::new(),
        }
        vec![Key::Capacity]
    }
}

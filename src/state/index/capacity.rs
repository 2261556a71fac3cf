//! Published capacities, and the changes that concern them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use flex_contract::exit::Failure;

use super::{CAPACITY, Change, Index, WorkItem};
use crate::capacity::{Driver, Published};
use crate::model::claim::Claim;
use crate::object::ObjectName;
use crate::run::view::{Job, Pod};

impl Index {
    /// Returns the published object with a name.
    pub fn capacity(&self, name: &str) -> Option<Arc<Published>> {
        self.capacities.get(name).cloned()
    }

    /// Returns all published objects, by name.
    pub fn capacities(&self) -> BTreeMap<String, Arc<Published>> {
        self.capacities.clone()
    }

    /// Returns the CSIDriver with the provisioner's name.
    pub fn driver(&self) -> Option<Arc<Driver>> {
        self.driver.clone()
    }

    /// Checks whether capacities are published, or must be.
    pub fn has_capacities(&self) -> bool {
        self.has_capacity_class || !self.capacities.is_empty() || self.driver.is_some()
    }

    /// Returns all capacity runs: the Jobs, each with its pods.
    pub fn capacity_runs(&self) -> Vec<(Arc<Job>, Vec<Arc<Pod>>)> {
        let jobs = self.jobs.values().filter(|job| job.run_labels.operation == CAPACITY);
        jobs.map(|job| (job.clone(), self.pods_of(&job.run_labels.id))).collect()
    }

    /// Returns the config of each class that has one.
    pub fn configs_of_classes(&self) -> HashMap<String, ObjectName> {
        let config = |class: &crate::config::classes::Class| {
            class.recipe.as_ref().ok().map(|recipe| (class.name.clone(), recipe.config.clone()))
        };
        self.classes.iter().filter_map(config).collect()
    }

    /// Returns the work item of capacities, if any are published. For changes that may affect them.
    pub(super) fn capacity_keys(&self) -> Option<WorkItem> {
        self.has_capacities().then_some(WorkItem::Capacity)
    }

    /// Returns the same for a claim that found no room, or that needs no room any more.
    pub(super) fn capacity_keys_of_claim(&self, before: Option<&Claim>, now: &Claim) -> Option<WorkItem> {
        let full = |claim: &Claim| {
            let full = claim.last_failure.as_ref().is_some_and(|failure| failure.kind == Failure::NoCapacity);
            full && !claim.is_bound()
        };
        (before.is_some_and(full) != full(now)).then(|| self.capacity_keys()).flatten()
    }

    /// Applies a change of a published object.
    pub fn change_capacity(&mut self, change: Change<Published>) -> Vec<WorkItem> {
        match change {
            Change::Apply(published) => {
                let attempt = |published: &Published| published.record.as_ref().map_or(0, |record| record.attempt);
                let before = self.capacities.get(&published.name);
                // The watch may show an older version than the orchestrator has written.
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
        vec![WorkItem::Capacity]
    }

    /// Applies a change of the CSIDriver.
    pub fn change_driver(&mut self, change: Change<Driver>) -> Vec<WorkItem> {
        match change {
            Change::Apply(driver) => self.driver = Some(Arc::new(driver)),
            Change::Delete(_) => self.driver = None,
            Change::Retain(all) => {
                self.driver = self.driver.take().filter(|driver| all.contains(&ObjectName::new("", &driver.name)));
            }
            // The kind has no namespace.
            Change::RetainIn(..) => return Vec::new(),
        }
        vec![WorkItem::Capacity]
    }
}

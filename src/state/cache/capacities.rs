//! Published capacities: the CSIStorageCapacities and the CSIDriver of the orchestrator.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flex_core::capacity::{Driver, Published};
use flex_core::object::ObjectName;

use crate::state::watch_change::Listed;

/// All published objects.
#[derive(Debug, Default)]
pub struct CapacityCache {
    published: BTreeMap<String, Arc<Published>>,
    driver: Option<Arc<Driver>>,
}

impl CapacityCache {
    /// Returns the published object with a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Published>> {
        self.published.get(name)
    }

    /// Returns all published objects, by name.
    pub fn all(&self) -> &BTreeMap<String, Arc<Published>> {
        &self.published
    }

    /// Returns the CSIDriver with the provisioner's name.
    pub fn driver(&self) -> Option<&Arc<Driver>> {
        self.driver.as_ref()
    }

    /// Checks whether anything is published.
    pub fn is_empty(&self) -> bool {
        self.published.is_empty() && self.driver.is_none()
    }

    /// Adds a published object, or its new state. Returns false for an older version than the orchestrator has written.
    pub fn apply(&mut self, published: Published) -> bool {
        let attempt = |published: &Published| published.record.as_ref().map_or(0, |record| record.attempt);
        let before = self.published.get(&published.name);
        if before.is_some_and(|before| before.uid == published.uid && attempt(before) > attempt(&published)) {
            return false;
        }
        self.published.insert(published.name.clone(), Arc::new(published));
        true
    }

    /// Removes a published object.
    pub fn remove(&mut self, name: &str) {
        self.published.remove(name);
    }

    /// Removes the objects that are not in a new list.
    pub fn retain(&mut self, all: &Listed) {
        let Listed::Names(all) = all else { return };
        let kept: HashSet<&str> = all.iter().map(|kept| kept.name.as_str()).collect();
        self.published.retain(|name, _| kept.contains(name.as_str()));
    }

    /// Sets the CSIDriver.
    pub fn set_driver(&mut self, driver: Option<Driver>) {
        self.driver = driver.map(Arc::new);
    }

    /// Removes the CSIDriver if it is not in a new list.
    pub fn retain_driver(&mut self, all: &Listed) {
        self.driver = self.driver.take().filter(|driver| all.contains(&ObjectName::new("", &driver.name)));
    }
}

//! The items that reached a quota, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};

use super::WorkItem;

/// The items that wait for quota, by class.
#[derive(Debug, Default)]
pub(super) struct QuotaWaiters {
    classes: BTreeMap<String, BTreeMap<u64, WorkItem>>,
    entries: HashMap<WorkItem, (String, u64)>,
    count: u64,
}

impl QuotaWaiters {
    /// Adds an item behind those that wait.
    pub fn add(&mut self, key: WorkItem, class: &str) {
        if self.entries.contains_key(&key) {
            return;
        }
        self.count += 1;
        self.classes.entry(class.to_owned()).or_default().insert(self.count, key.clone());
        self.entries.insert(key, (class.to_owned(), self.count));
    }

    /// Removes an item. Returns the class for which it waited.
    pub fn remove(&mut self, key: &WorkItem) -> Option<String> {
        let (class, number) = self.entries.remove(key)?;
        if let Some(waiting) = self.classes.get_mut(&class) {
            waiting.remove(&number);
            if waiting.is_empty() {
                self.classes.remove(&class);
            }
        }
        Some(class)
    }

    /// Returns the items that wait for quota of a class.
    pub fn of(&self, class: &str) -> impl Iterator<Item = &WorkItem> {
        self.classes.get(class).into_iter().flat_map(BTreeMap::values)
    }
}

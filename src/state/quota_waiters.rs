//! The items that reached a quota, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::claim::quota::quota_error;
use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::state::facts::Facts;
use crate::state::quota::{QuotaLedger, error_with, has_charge};
use crate::state::work_item::WorkItem;

/// The items that wait for quota, by class.
#[derive(Debug, Default)]
pub struct QuotaWaiters {
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

    /// Returns the items that have quota after usage of a class was freed, in the order of their arrival.
    pub fn admitted(&self, class: &str, quota: &QuotaLedger, facts: &Facts) -> Vec<WorkItem> {
        let Some(recipe) = facts.configs.recipe_of(class) else { return self.of(class).cloned().collect() };
        let mut waiting = self.of(class).peekable();
        if waiting.peek().is_none() {
            return Vec::new();
        }
        let mut usage = quota.usage(class);
        let mut admitted = Vec::new();
        for key in waiting {
            // Only the volume's own decision knows by how much it expands.
            if let WorkItem::Claim(name) = key {
                let Some(claim) = facts.cache.claims.get(name) else { continue };
                let bytes = claim.size.as_ref().copied().unwrap_or_default();
                // The claim may have a reservation by a stamp whose write may have failed. That reservation does not
                // count against the claim itself.
                let own = quota.reservation_of(&claim.uid).filter(|charge| charge.class == class);
                // Most items wait for one more volume, while no further volume is allowed.
                if own.is_none() && recipe.quota.volumes.is_some_and(|most| usage.all.volumes >= most) {
                    continue;
                }
                own.into_iter().for_each(|charge| usage.subtract(&charge.namespace, charge.bytes));
                if error_with(claim, recipe, &usage, facts).is_some() {
                    own.into_iter().for_each(|charge| usage.add(&charge.namespace, charge.bytes));
                    continue;
                }
                usage.add(&name.namespace, bytes);
            }
            admitted.push(key.clone());
        }
        admitted
    }

    /// Counts the claims that wait for quota and would have it if these pooled volumes did not exist.
    pub fn blocked_by_pool<'a>(
        &self,
        recipe: &Recipe,
        pooled: impl Iterator<Item = &'a Arc<Volume>>,
        quota: &QuotaLedger,
        facts: &Facts,
    ) -> usize {
        if !recipe.has_quota() {
            return 0;
        }
        let class = recipe.class.as_str();
        let mut usage = quota.usage(class);
        pooled.for_each(|volume| usage.subtract("", quota.bytes_of(volume, facts)));
        let claims = self.of(class).filter_map(|key| match key {
            WorkItem::Claim(name) => facts.cache.claims.get(name),
            _ => None,
        });
        let waits =
            |claim: &&Arc<Claim>| !facts.is_pool_request(claim) && !has_charge(claim, facts) && !claim.is_bound();
        let mut blocked = 0;
        for claim in claims.filter(waits) {
            let bytes = claim.size.as_ref().copied().unwrap_or_default();
            if quota_error(recipe, &usage, &claim.name.namespace, bytes).is_none() {
                usage.add(&claim.name.namespace, bytes);
                blocked += 1;
            }
        }
        blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_wait_in_the_order_of_their_arrival() {
        let mut waiters = QuotaWaiters::default();
        let [a, b] = ["a", "b"].map(|name| WorkItem::Volume(name.into()));
        waiters.add(b.clone(), "c");
        waiters.add(a.clone(), "c");
        waiters.add(b.clone(), "other");
        assert!(waiters.of("c").eq([&b, &a]), "an item waits once, and keeps its position");
        assert_eq!(waiters.remove(&b).as_deref(), Some("c"));
        assert_eq!(waiters.remove(&b), None);
        assert!(waiters.of("c").eq([&a]));
    }
}

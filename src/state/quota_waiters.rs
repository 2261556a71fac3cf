//! The items that reached a quota, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flex_core::claim::quota::quota_refusal;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;

use crate::state::facts::Facts;
use crate::state::quota::{QuotaLedger, error_with, has_charge};
use crate::state::work_item::WorkItem;

/// The items that wait for quota, by class.
#[derive(Debug, Default)]
pub struct QuotaWaiters {
    classes: BTreeMap<String, BTreeMap<u64, WorkItem>>,
    entries: HashMap<WorkItem, Position>,
    count: u64,
}

/// The position of an item that waits.
#[derive(Debug)]
struct Position {
    class: String,
    number: u64,
}

impl QuotaWaiters {
    /// Adds an item behind those that wait.
    pub fn add(&mut self, item: WorkItem, class: &str) {
        if self.entries.contains_key(&item) {
            return;
        }
        self.count += 1;
        self.classes.entry(class.to_owned()).or_default().insert(self.count, item.clone());
        self.entries.insert(item, Position { class: class.to_owned(), number: self.count });
    }

    /// Removes an item. Returns the class for which it waited.
    pub fn remove(&mut self, item: &WorkItem) -> Option<String> {
        let Position { class, number } = self.entries.remove(item)?;
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
        for item in waiting {
            // Only the volume's own decision knows by how much it expands.
            if let WorkItem::Claim(name) = item {
                let Some(claim) = facts.cache.claims.get(name) else { continue };
                let bytes = claim.size.as_ref().copied().unwrap_or_default();
                // The claim may be charged for a stamp whose write may have failed. That charge does not count against
                // the claim itself.
                let own = quota.reservation_of(&claim.uid).filter(|charge| charge.class == class);
                // Most items wait for one more volume, while no further volume is allowed.
                if own.is_none() && recipe.quota.volumes.is_some_and(|most| usage.all.volumes >= most) {
                    continue;
                }
                own.into_iter().for_each(|charge| usage.subtract(&charge.namespace, charge.bytes));
                if error_with(&claim, recipe, &usage, facts).is_some() {
                    own.into_iter().for_each(|charge| usage.add(&charge.namespace, charge.bytes));
                    continue;
                }
                usage.add(&name.namespace, bytes);
            }
            admitted.push(item.clone());
        }
        admitted
    }

    /// Counts the claims that wait for quota and would have it if these pooled volumes did not exist.
    pub fn blocked_by_pool(
        &self,
        recipe: &Recipe,
        pooled: impl Iterator<Item = Arc<Volume>>,
        quota: &QuotaLedger,
        facts: &Facts,
    ) -> usize {
        if !recipe.has_quota() {
            return 0;
        }
        let class = recipe.class.as_str();
        let mut usage = quota.usage(class);
        pooled.for_each(|volume| usage.subtract("", quota.bytes_of(&volume, facts)));
        let claims = self.of(class).filter_map(|item| match item {
            WorkItem::Claim(name) => facts.cache.claims.get(name),
            _ => None,
        });
        let waits =
            |claim: &Arc<Claim>| !facts.is_pool_request(claim) && !has_charge(claim, facts) && !claim.is_bound();
        let mut blocked = 0;
        for claim in claims.filter(waits) {
            let bytes = claim.size.as_ref().copied().unwrap_or_default();
            if quota_refusal(recipe, &usage, &claim.name.namespace, bytes).is_none() {
                usage.add(&claim.name.namespace, bytes);
                blocked += 1;
            }
        }
        blocked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::testing::{CLASS, claim, facts, serve, volume};

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

    #[test]
    fn only_as_many_items_are_admitted_as_have_quota() {
        let (_, mut facts) = facts();
        serve(&mut facts, &[("max-volumes", "2")]);
        let (mut waiters, mut quota) = (QuotaWaiters::default(), QuotaLedger::default());
        let claims = ["a", "b", "c"].map(|name| claim("t", name, false));
        let [a, b, c] = claims.clone().map(|claim| WorkItem::Claim(claim.name));
        for claim in &claims {
            facts.cache.claims.apply(claim.clone());
            waiters.add(WorkItem::Claim(claim.name.clone()), CLASS);
        }
        let pv = WorkItem::Volume("pv".into());
        waiters.add(pv.clone(), CLASS);
        let admitted = |waiters: &QuotaWaiters, quota: &QuotaLedger| waiters.admitted(CLASS, quota, &facts);
        assert_eq!(admitted(&waiters, &quota), [a.clone(), b.clone(), pv.clone()], "a volume decides for itself");
        quota.charge(&claims[2], CLASS, &facts);
        assert_eq!(admitted(&waiters, &quota), [a.clone(), c, pv.clone()], "a charge does not block its claim");
        waiters.remove(&a);
        quota.charge(&claims[0], CLASS, &facts);
        assert_eq!(admitted(&waiters, &quota).first(), Some(&WorkItem::Claim(claims[2].name.clone())));
        assert!(!admitted(&waiters, &quota).contains(&b), "the quota is used up");
        quota.refund(&claims[0].uid, &facts);
        assert!(admitted(&waiters, &quota).contains(&b));
    }

    #[test]
    fn claims_that_pooled_volumes_block_are_counted() {
        let (_, mut facts) = facts();
        let recipe = serve(&mut facts, &[("max-volumes", "2")]);
        let (mut waiters, mut quota) = (QuotaWaiters::default(), QuotaLedger::default());
        let pooled = ["x", "y"].map(|name| {
            let made = Volume { claim_ref: None, claim_uid: None, ..volume(&claim("t", name, false), "1Gi") };
            let changed = facts.cache.volumes.apply(made);
            quota.on_volume(&changed, &facts);
            changed.last().clone()
        });
        for name in ["a", "b", "c"] {
            facts.cache.claims.apply(claim("t", name, false));
            waiters.add(WorkItem::Claim(claim("t", name, false).name), CLASS);
        }
        let blocked = |by: &[Arc<Volume>]| waiters.blocked_by_pool(&recipe, by.iter().cloned(), &quota, &facts);
        assert_eq!((blocked(&[]), blocked(&pooled[..1]), blocked(&pooled)), (0, 1, 2));
    }

    proptest! {
        #[test]
        fn an_item_waits_once_in_its_first_class(operations in prop::collection::vec((0..5_u8, 0..2_usize, any::<bool>()), 0..40)) {
            let (mut waiters, mut model) = (QuotaWaiters::default(), Vec::<(WorkItem, &str)>::new());
            for (item, class, adds) in operations {
                let (key, class) = (WorkItem::Volume(item.to_string()), ["c", "d"][class]);
                let at = model.iter().position(|(waiting, _)| *waiting == key);
                match (adds, at) {
                    (true, at) => {
                        waiters.add(key.clone(), class);
                        if at.is_none() {
                            model.push((key, class));
                        }
                    }
                    (false, at) => {
                        let left = at.map(|at| model.remove(at).1);
                        let class = waiters.remove(&key);
                        prop_assert_eq!(class.as_deref(), left);
                    }
                }
                for class in ["c", "d"] {
                    let expected = model.iter().filter(|(_, of)| *of == class).map(|(key, _)| key);
                    prop_assert!(waiters.of(class).eq(expected));
                }
            }
        }
    }
}

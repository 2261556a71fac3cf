//! What attempts for claims that are gone may have left, by namespace and class.

use std::collections::{BTreeMap, BTreeSet};

use flex_core::claim::left;
use flex_core::limits;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;

use crate::state::facts::Facts;
use crate::state::watch_change::Changed;

/// A namespace and a class.
pub type Place = (String, String);

/// The stand-ins for claims that are gone.
#[derive(Debug)]
pub struct Left {
    /// The names of the stand-ins.
    by_place: BTreeMap<Place, BTreeSet<ObjectName>>,
    /// The number of those of one place with which no first attempt begins for others.
    most: usize,
}

impl Default for Left {
    fn default() -> Self {
        Left { by_place: BTreeMap::new(), most: limits::LEFT }
    }
}

/// Returns the namespace and the class of a claim.
pub fn place_of(claim: &Claim) -> Place {
    (claim.name.namespace.clone(), claim.class.clone().unwrap_or_default())
}

impl Left {
    /// Applies a change of a stand-in.
    pub fn on_stand_in(&mut self, changed: &Changed<Claim>) {
        if let Some(before) = &changed.before
            && let Some(stand_ins) = self.by_place.get_mut(&place_of(before))
        {
            stand_ins.remove(&before.name);
        }
        if let Some(now) = &changed.now {
            self.by_place.entry(place_of(now)).or_default().insert(now.name.clone());
        }
        self.by_place.retain(|_, stand_ins| !stand_ins.is_empty());
    }

    /// Sets the number of stand-ins with which no first attempt begins for others.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns the number of stand-ins with which no first attempt begins for others.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Counts what is left in a place; at most so much that no first attempt begins.
    pub fn count(&self, place: &Place, facts: &Facts) -> usize {
        let stand_ins = self.by_place.get(place).into_iter().flatten().filter_map(|name| facts.cache.claims.get(name));
        stand_ins.filter(|claim| counts(claim, facts)).take(self.most).count()
    }

    /// Returns the places where first attempts may have waited, and wait no more.
    pub fn open(&self, facts: &Facts) -> Vec<Place> {
        let many = self.by_place.iter().filter(|(_, stand_ins)| stand_ins.len() >= self.most);
        many.filter(|(place, _)| self.count(place, facts) < self.most).map(|(place, _)| place.clone()).collect()
    }
}

/// Checks whether a claim is gone, and what its attempts may have left counts.
pub fn counts(claim: &Claim, facts: &Facts) -> bool {
    let has_node = |node: &String| facts.cache.nodes.get(node).is_some_and(|node| node.reachable);
    left::counts(claim, has_node, |config| facts.configs.get(config).is_some())
}

//! What attempts for claims that are gone may have left. Too much of it keeps first attempts from beginning.

use std::sync::Arc;

use flex_core::claim::left;
use flex_core::model::claim::Claim;

use super::{Index, WorkItem};
use crate::state::left::{Place, counts, place_of};
use crate::state::watch_change::Changed;

impl Index {
    /// Says why no first attempt may begin for a claim: attempts for too many claims of its namespace and class that are gone may
    /// have left something.
    pub fn left_refusal(&self, claim: &Claim) -> Option<String> {
        let most = self.left.most();
        (self.left.count(&place_of(claim), &self.facts) >= most).then(|| left::refusal(claim, most))
    }

    /// Sets the number of claims of one namespace and class that are gone while no first attempt begins for others.
    pub fn set_most_left(&mut self, most: usize) {
        self.left.set_most(most);
    }

    /// Applies a change of a stand-in to what is left in its namespace and class. Returns the claims whose first attempt waited.
    pub(super) fn change_left(&mut self, changed: &Changed<Claim>) -> Vec<WorkItem> {
        self.left.on_stand_in(changed);
        let counted = |claim: &Option<Arc<Claim>>| claim.as_ref().is_some_and(|claim| counts(claim, &self.facts));
        let place = place_of(changed.last());
        let is_less = counted(&changed.before) && !counted(&changed.now);
        match is_less && self.left.count(&place, &self.facts) + 1 == self.left.most() {
            true => self.waiting_in(&place),
            false => Vec::new(),
        }
    }

    /// Returns the claims whose first attempt may have waited until less was left, after a change of nodes or configs.
    pub(super) fn with_less_left(&self) -> Vec<WorkItem> {
        self.left.open(&self.facts).iter().flat_map(|place| self.waiting_in(place)).collect()
    }

    /// Returns the claims of a namespace and class that wait for their first attempt.
    fn waiting_in(&self, place: &Place) -> Vec<WorkItem> {
        let waits = |claim: &&Arc<Claim>| {
            claim.own_stamp().is_none() && !claim.is_bound() && !claim.terminating && place_of(claim) == *place
        };
        self.facts.cache.claims.unsettled().filter(waits).map(|claim| WorkItem::Claim(claim.name.clone())).collect()
    }
}

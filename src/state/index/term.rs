//! The begin of a term as leader.

use super::Index;
use crate::state::queue::Checks;
use crate::state::work_item::WorkItem;

/// The work items of a term that begins: all that there are.
pub struct TermItems {
    /// The items that are about to change, and the tasks.
    pub items: Vec<WorkItem>,
    /// All other items. They are nearly always found as they should be.
    pub checks: Checks<WorkItem>,
}

impl Index {
    /// Begins a term as leader, and returns all work items. Forgets the state of an earlier term: open batches,
    /// the current sync probe, assignments that are not yet visible, and answers of the API about Jobs and claims.
    pub fn begin_term(&mut self) -> TermItems {
        self.batches.forget_open(self.slots.expectations_mut());
        self.sync_probes.give_up();
        self.unstarted.begin_term();
        self.answers.begin_term();
        self.pools.forget_writes(&self.facts.cache);
        self.unseen_writes.clear();
        self.unmarked.clear();
        self.facts.cache.volumes.forget_gone_claims();
        TermItems { items: self.unsettled_items(), checks: self.settled_items() }
    }
}

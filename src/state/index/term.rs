//! The begin of a term as leader.

use super::Index;
use crate::state::work_item::WorkItem;

impl Index {
    /// Begins a term as leader, and returns all work items. Forgets the state of an earlier term: open batches,
    /// the current sync probe, and assignments that are not yet visible.
    pub fn begin_term(&mut self) -> Vec<WorkItem> {
        self.batches.forget_open(self.slots.expectations_mut());
        self.sync_probes.give_up();
        self.unstarted.begin_term();
        self.pools.forget_writes(&self.facts.cache);
        self.unseen_writes.clear();
        self.unmarked.clear();
        self.all_items()
    }
}

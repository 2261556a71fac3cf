//! The begin of a term as leader, and of a part of it after a pause.

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
    /// Begins a term as leader, and returns all work items. Forgets what another leader may have changed since: the Jobs that
    /// this process has created or stamped, and those that others have deleted.
    pub fn begin_term(&mut self) -> TermItems {
        self.unstarted.begin_term();
        self.answers.begin_term();
        self.records.begin_term();
        self.removed_jobs.begin_term();
        self.batches.begin_term();
        self.deletions.begin_term();
        self.resume_term()
    }

    /// Goes on with a term after a pause, in which no write of this process was sent and watches went on. Returns all work
    /// items. Forgets what was in progress: open batches, the current sync probe, assignments that are not yet visible, and
    /// answers of the API about claims.
    pub fn resume_term(&mut self) -> TermItems {
        self.batches.forget_open(self.slots.expectations_mut());
        self.sync_probes.give_up();
        self.pools.forget_writes(&self.facts.cache);
        self.unseen_writes.clear();
        self.unmarked.clear();
        self.facts.cache.volumes.forget_gone_claims();
        TermItems { items: self.unsettled_items(), checks: self.settled_items() }
    }
}

//! The index: the facts about the cluster, and the ledgers of what this process has done about them.
//!
//! Each ledger is a type of its own, which gets the facts to read. The index applies a change to the cache and then to
//! the ledgers, and the table in `index/wake.rs` says which work items the change requeues. No ledger sees another,
//! unless it owns it or gets it as an argument.
//!
//! - `index/objects.rs`, `index/runs.rs`, `index/others.rs`, `index/classes.rs`: the changes that watches report.
//! - `index/gates.rs`: the scheduling gates of runs. `index/left.rs`: what is left of claims that are gone.
//! - `index/deletions.rs`: the delete runs that no watch may show yet.
//! - `index/wake.rs`: the items that each change wakes. `index/related.rs`: the items that are related to an object.
//! - `index/read.rs`: the data that reconcilers observe. Nothing in it can change the state.
//! - `index/writes.rs`: the records that reconcilers make of their own steps.

mod classes;
mod deletions;
mod gates;
mod left;
mod objects;
mod others;
mod read;
mod records;
mod related;
mod runs;
mod term;
mod wake;
mod writes;

use std::collections::BTreeSet;

use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;

pub use self::classes::{ObservedScript, UsedScript};
pub use self::gates::GateView;
pub use self::read::CachedRun;
pub use self::term::TermItems;
use crate::clock::Clock;
use crate::state::answers::Answers;
use crate::state::batches::Batches;
pub use crate::state::batches::{BatchEntry, ClosedBatch};
use crate::state::deletions::Deletions;
pub use crate::state::expectations::EXPECTATION_TIMEOUT;
use crate::state::facts::Facts;
use crate::state::kept_scripts::KeptScripts;
use crate::state::left::Left;
use crate::state::members::Members;
use crate::state::pools::Pools;
pub use crate::state::pools::{PoolObservation, UnknownPool};
use crate::state::quota::QuotaLedger;
use crate::state::quota_waiters::QuotaWaiters;
use crate::state::records::Records;
use crate::state::removed_jobs::RemovedJobs;
pub use crate::state::revisions::REVISION_TTL;
use crate::state::revisions::Revisions;
pub use crate::state::slot_request::SlotRequest;
use crate::state::slots::Slots;
use crate::state::sync_probes::SyncProbes;
use crate::state::unmarked::Unmarked;
pub use crate::state::unseen_writes::CACHE_LAG_MAX;
use crate::state::unseen_writes::UnseenWrites;
use crate::state::unstarted::UnstartedRuns;
pub use crate::state::watch_change::{Listed, WatchChange};
pub use crate::state::work_item::{Woken, WorkItem};

/// The facts, and the ledgers.
#[derive(Debug)]
pub struct Index {
    facts: Facts,
    /// The stored versions of configs.
    revisions: Revisions,
    /// The kept scripts.
    kept_scripts: KeptScripts,
    /// The expected Jobs, and the items that wait for a slot.
    slots: Slots,
    /// The open batches.
    batches: Batches,
    /// The delete runs that no watch may show yet.
    deletions: Deletions,
    /// The members that have left their batches.
    members: Members,
    /// The usage of quotas.
    quota: QuotaLedger,
    /// The items that reached a quota.
    quota_waiters: QuotaWaiters,
    /// What attempts for claims that are gone may have left.
    left: Left,
    /// The stock of pools, and its assignment.
    pools: Pools,
    /// The volumes that the PV controller has seen.
    sync_probes: SyncProbes,
    /// The adopted volumes that lack only their mark.
    unmarked: Unmarked,
    /// The writes that no watch has shown yet.
    unseen_writes: UnseenWrites,
    /// The Jobs whose creation was answered in this term.
    answers: Answers,
    /// The runs of which no container has started.
    unstarted: UnstartedRuns,
    /// The records of runs.
    records: Records,
    /// The Jobs that somebody deleted while they were in progress.
    removed_jobs: RemovedJobs,
    /// The kinds of snapshot objects that the cluster does not serve, as watches have shown.
    absent_snapshot_kinds: BTreeSet<String>,
}

impl Index {
    /// Makes an empty index.
    pub fn new(identity: Identity, clock: Clock) -> Self {
        Index {
            facts: Facts::new(identity, clock),
            revisions: Revisions::default(),
            kept_scripts: KeptScripts::default(),
            slots: Slots::default(),
            batches: Batches::default(),
            deletions: Deletions::default(),
            members: Members::default(),
            quota: QuotaLedger::default(),
            quota_waiters: QuotaWaiters::default(),
            left: Left::default(),
            pools: Pools::default(),
            sync_probes: SyncProbes::default(),
            unmarked: Unmarked::default(),
            unseen_writes: UnseenWrites::default(),
            answers: Answers::default(),
            unstarted: UnstartedRuns::default(),
            records: Records::default(),
            removed_jobs: RemovedJobs::default(),
            absent_snapshot_kinds: BTreeSet::new(),
        }
    }

    /// Removes the objects that are not in a new list.
    fn remove_missing(
        &mut self,
        missing: Vec<ObjectName>,
        remove: impl Fn(&mut Index, &ObjectName) -> Vec<WorkItem>,
    ) -> Vec<WorkItem> {
        missing.iter().flat_map(|name| remove(self, name)).collect()
    }
}

/// Selects the names in a namespace.
fn within<'a>(names: impl Iterator<Item = &'a ObjectName>, namespace: &'a str) -> impl Iterator<Item = &'a ObjectName> {
    names.filter(move |name| name.namespace == namespace)
}

#[cfg(test)]
mod tests;

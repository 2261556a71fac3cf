//! The state of one process: a cache of the cluster with ledgers of the process's own steps ([`index`]), and the queue of
//! work items ([`queue`]).

mod answers;
mod batches;
mod cache;
mod compact;
mod configs;
mod deletions;
mod expectations;
mod facts;
mod fair_queue;
mod id;
pub mod index;
mod kept_scripts;
mod left;
mod members;
pub mod missing;
mod open_batch;
mod outages;
mod pools;
pub mod queue;
mod quota;
mod quota_waiters;
mod record_waits;
mod records;
mod removed_jobs;
mod revisions;
mod searched;
mod slot_request;
mod slots;
mod sync_probes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unmarked;
mod unseen_writes;
mod unstarted;
mod watch_change;
mod words;
mod work_item;

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use flex_core::config::classes::Identity;
use index::{Index, TermItems, WorkItem};
use queue::Queue;
use tokio::sync::watch;

use crate::clock::Clock;

/// The index and the queue, shared between the watches that fill them and the workers.
#[derive(Clone, Debug)]
pub struct ClusterState {
    index: Arc<Mutex<Index>>,
    /// The work items that wait.
    pub queue: Arc<Queue<WorkItem>>,
    /// The number of sources that have not told their state yet.
    unready: watch::Sender<usize>,
}

/// The locked index, which cannot be changed by this view.
#[derive(Debug)]
pub struct IndexView<'a>(MutexGuard<'a, Index>);

impl Deref for IndexView<'_> {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.0
    }
}

impl ClusterState {
    /// Makes an empty index and queue.
    pub fn new(identity: Identity, clock: Clock) -> Self {
        ClusterState {
            index: Arc::new(Mutex::new(Index::new(identity, clock))),
            queue: Arc::default(),
            unready: watch::Sender::new(usize::MAX),
        }
    }

    /// Locks the index for reading. Hold the lock briefly, and never across an `await`.
    pub fn index(&self) -> IndexView<'_> {
        IndexView(self.index_mut())
    }

    /// Locks the index for a change that concerns no other item: an entry in a ledger. Observations do not call this.
    pub fn index_mut(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no code panics while it holds the index")
    }

    /// Updates the index, and requeues the items that the update returns.
    pub fn update<K: IntoIterator<Item = WorkItem>>(&self, update: impl FnOnce(&mut Index) -> K) {
        let items = update(&mut self.index_mut());
        self.queue.add_all(items);
    }

    /// Begins a term as leader: reconciles everything, from the cache at this time.
    pub fn begin_term(&self) {
        self.lead(Index::begin_term);
    }

    /// Goes on with a term after a pause in which nobody else led.
    pub fn resume_term(&self) {
        self.lead(Index::resume_term);
    }

    fn lead(&self, begin: fn(&mut Index) -> TermItems) {
        // From now on the queue loses no item, so that no change of the cache is missed.
        self.queue.resume();
        let TermItems { items, checks } = begin(&mut self.index_mut());
        self.queue.add_all(items);
        self.queue.check_all(checks);
    }

    /// Sets the number of sources that will tell their state: watches with their first lists, and others. Call this before
    /// any of them starts, so that the first cannot make the whole seem ready.
    pub fn expect_sources(&self, count: usize) {
        self.unready.send_replace(count);
    }

    /// Records that one of the sources has told its state for the first time.
    pub fn source_ready(&self) {
        self.unready.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Checks whether each source has told its state once.
    pub fn is_ready(&self) -> bool {
        *self.unready.borrow() == 0
    }

    /// Waits until each source has told its state once.
    pub async fn until_ready(&self) {
        self.until_at_most_unready(0).await;
    }

    /// Waits until each source but the caller has told its state once.
    pub async fn until_others_are_ready(&self) {
        self.until_at_most_unready(1).await;
    }

    async fn until_at_most_unready(&self, most: usize) {
        let mut unready = self.unready.subscribe();
        let _ = unready.wait_for(|count| *count <= most).await;
    }
}

//! The state of one process: a cache of the cluster with ledgers of the process's own steps ([`index`]), and the queue of
//! work items ([`queue`]).

mod batches;
mod cache;
mod compact;
mod configs;
mod expectations;
mod facts;
mod fair_queue;
mod id;
pub mod index;
mod kept_scripts;
mod members;
mod open_batch;
mod pools;
pub mod queue;
mod quota;
mod quota_waiters;
mod removed_jobs;
mod revisions;
mod searched;
mod slot_request;
mod slots;
mod sync_probes;
#[cfg(test)]
pub(crate) mod testing;
mod unmarked;
mod unseen_writes;
mod unstarted;
mod watch_change;
mod words;
mod work_item;

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::classes::Identity;
use index::{Index, WorkItem};
use queue::Queue;

/// The index and the queue, shared between the watches that fill them and the workers.
#[derive(Clone, Debug)]
pub struct ClusterState {
    index: Arc<Mutex<Index>>,
    /// The work items that wait.
    pub queue: Arc<Queue<WorkItem>>,
    unready: Arc<AtomicUsize>,
    ready: watch::Sender<bool>,
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
            unready: Arc::new(AtomicUsize::new(0)),
            ready: watch::Sender::new(false),
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

    /// Sets the number of watches that will list. Call this before any watch starts, so that the first watch cannot
    /// make the whole seem ready.
    pub fn expect_lists(&self, count: usize) {
        self.unready.store(count, Ordering::SeqCst);
    }

    /// Records that one of the watches has listed for the first time.
    pub fn listed(&self) {
        if self.unready.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ready.send_replace(true);
        }
    }

    /// Checks whether each watch has listed once.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until each watch has listed once.
    pub async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        let _ = ready.wait_for(|ready| *ready).await;
    }
}

//! The state that one process keeps: a cache of the cluster ([`index`]), and the queue of what is to be reconciled ([`queue`]).

pub mod index;
pub mod queue;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::classes::Identity;
use index::{Index, Key};
use queue::Queue;

/// The index, shared between the watches that fill it and the workers that read it.
#[derive(Clone, Debug)]
pub struct Shared {
    index: Arc<Mutex<Index>>,
    /// What waits to be decided.
    pub queue: Arc<Queue<Key>>,
    unready: Arc<AtomicUsize>,
    ready: watch::Sender<bool>,
}

impl Shared {
    /// An empty index.
    pub fn new(identity: Identity, clock: Clock) -> Self {
        Shared {
            index: Arc::new(Mutex::new(Index::new(identity, clock))),
            queue: Arc::default(),
            unready: Arc::new(AtomicUsize::new(0)),
            ready: watch::Sender::new(false),
        }
    }

    /// The index. Hold it briefly, and never across an `await`.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no code panics while it holds the index")
    }

    /// Changes what is known. Those whom that concerns are decided anew.
    pub fn change<K: IntoIterator<Item = Key>>(&self, change: impl FnOnce(&mut Index) -> K) {
        let keys = change(&mut self.index());
        self.queue.add_all(keys);
    }

    /// So many watches will list. Told before any of them starts, so that the first cannot make the whole look ready.
    pub fn expect_lists(&self, count: usize) {
        self.unready.store(count, Ordering::SeqCst);
    }

    /// One of the watches has listed for the first time.
    pub fn listed(&self) {
        if self.unready.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ready.send_replace(true);
        }
    }

    /// Every watch has listed once.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until every watch has listed once.
    pub async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        let _ = ready.wait_for(|ready| *ready).await;
    }
}

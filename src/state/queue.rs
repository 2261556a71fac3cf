//! The work queue: each item once, one worker for each item, and items that are requeued later.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A work queue. An item that is added while a worker has it follows again afterwards.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<QueueState<K, Instant>>,
    changed: Notify,
}

/// The waiting items, for any kind of time.
#[derive(Debug)]
pub struct QueueState<K, T> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    again: HashSet<K>,
    sleeping: BTreeSet<(T, K)>,
    alarm: HashMap<K, T>,
    paused: bool,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn state(&self) -> std::sync::MutexGuard<'_, QueueState<K, Instant>> {
        self.state.lock().expect("no code panics while it holds the queue")
    }

    /// Adds an item for the next free worker.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// Adds several items.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Adds an item after a delay. If it is added with several delays, the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if self.state().add_at(key, Instant::now() + delay) {
            self.changed.notify_one();
        }
    }

    /// Pauses the queue: it hands out no items, and keeps those that are added.
    pub fn pause(&self, paused: bool) {
        self.state().pause(paused);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Counts the items that are ready or with a worker.
    pub fn depth(&self) -> usize {
        let state = self.state();
        state.ready() + state.running.len()
    }

    /// Checks whether a worker has an item.
    pub fn is_working(&self) -> bool {
        !self.state().running.is_empty()
    }

    /// Returns the next item. Give it back with [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            let notified = self.changed.notified();
            let alarm = {
                let mut state = self.state();
                state.wake(Instant::now());
                if let Some(key) = state.take() {
                    let more = !state.ready.is_empty();
                    drop(state);
                    if more {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.alarms().next().map(|(at, _)| at).filter(|_| !state.paused)
            };
            match alarm {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, notified).await;
                }
                None => notified.await,
            }
        }
    }

    /// Takes back an item that [`Queue::next`] returned.
    pub fn done(&self, key: &K) {
        if self.state().done(key) {
            self.changed.notify_one();
        }
    }
}

impl<K, T> Default for QueueState<K, T> {
    fn default() -> Self {
        QueueState {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            sleeping: BTreeSet::new(),
            alarm: HashMap::new(),
            paused: false,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, T: Copy + Ord> QueueState<K, T> {
    /// Adds an item for the next free worker.
    pub fn add(&mut self, key: K) {
        if let Some(at) = self.alarm.remove(&key) {
            self.sleeping.remove(&(at, key.clone()));
        }
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Adds an item at a time. Returns whether this time counts: the earliest does.
    pub fn add_at(&mut self, key: K, at: T) -> bool {
        match self.alarm.get(&key) {
            Some(earlier) if *earlier <= at => return false,
            Some(later) => {
                self.sleeping.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.alarm.insert(key.clone(), at);
        self.sleeping.insert((at, key));
        true
    }

    /// Pauses the queue: it hands out no items, and keeps those that are added.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Counts the items that wait for a worker.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the delayed items with their times, the earliest first.
    pub fn alarms(&self) -> impl Iterator<Item = (T, &K)> {
        self.sleeping.iter().map(|(at, key)| (*at, key))
    }

    /// Makes the items ready whose time has come.
    pub fn wake(&mut self, now: T) {
        while let Some((_, key)) = self.sleeping.first().filter(|(at, _)| *at <= now) {
            let key = key.clone();
            self.add(key);
        }
    }

    /// Returns the next item. Give it back with [`QueueState::done`].
    pub fn take(&mut self) -> Option<K> {
        if self.paused {
            return None;
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Takes back an item that [`QueueState::take`] returned. Returns whether it follows again at once.
    pub fn done(&mut self, key: &K) -> bool {
        self.running.remove(key);
        let again = self.again.remove(key);
        if again {
            self.add(key.clone());
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing<K: Clone + Eq + Hash + Ord + std::fmt::Debug>(queue: &Queue<K>) {
        let got = tokio::time::timeout(Duration::from_millis(1), queue.next()).await;
        assert!(got.is_err(), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_hands_out_each_item_once_and_again_after_it_is_done() {
        let queue = Queue::default();
        queue.add(1);
        queue.add(1);
        queue.add(2);
        assert_eq!(queue.next().await, 1);
        queue.add(1);
        assert_eq!(queue.next().await, 2);
        nothing(&queue).await;
        queue.done(&1);
        assert_eq!(queue.next().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_counts_and_an_event_clears_it() {
        let queue = Queue::default();
        queue.add_after(1, Duration::from_secs(10));
        queue.add_after(1, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(20));
        let before = Instant::now();
        assert_eq!(queue.next().await, 1);
        assert_eq!(before.elapsed().as_secs(), 5);
        queue.done(&1);
        tokio::time::sleep(Duration::from_secs(60)).await;
        nothing(&queue).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_queue_keeps_the_items_that_are_added() {
        let queue = Queue::default();
        queue.pause(true);
        queue.add(1);
        nothing(&queue).await;
        queue.pause(false);
        assert_eq!(queue.next().await, 1);
    }
}

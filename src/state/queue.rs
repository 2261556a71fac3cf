//! What waits to be decided: each key once, one worker a key, and keys that wake later.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A work queue. A key that is added while it is worked on comes again afterwards.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<Line<K, Instant>>,
    changed: Notify,
}

/// What waits, whatever its time is made of.
#[derive(Debug)]
pub struct Line<K, T> {
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
    fn state(&self) -> std::sync::MutexGuard<'_, Line<K, Instant>> {
        self.state.lock().expect("no code panics while it holds the queue")
    }

    /// To be decided as soon as a worker is free.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// The same for several.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// To be decided after a while, or earlier if it is added before. The earliest alarm counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if self.state().add_at(key, Instant::now() + delay) {
            self.changed.notify_one();
        }
    }

    /// While paused, nothing is handed out; what is added is kept.
    pub fn pause(&self, paused: bool) {
        self.state().pause(paused);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// How many keys are ready or being worked on.
    pub fn depth(&self) -> usize {
        let state = self.state();
        state.ready() + state.running.len()
    }

    /// A key is being worked on.
    pub fn is_working(&self) -> bool {
        !self.state().running.is_empty()
    }

    /// The next key. Give it back with [`Queue::done`].
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

    /// A key that [`Queue::next`] gave is decided.
    pub fn done(&self, key: &K) {
        if self.state().done(key) {
            self.changed.notify_one();
        }
    }
}

impl<K, T> Default for Line<K, T> {
    fn default() -> Self {
        Line {
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

impl<K: Clone + Eq + Hash + Ord, T: Copy + Ord> Line<K, T> {
    /// To be decided as soon as a worker is free.
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

    /// To be decided at that time, or earlier if it is added before. Says whether the alarm counts: the
    /// earliest does.
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

    /// While paused, nothing is handed out; what is added is kept.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// How many keys wait for a worker.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The keys that wake by themselves, the earliest first.
    pub fn alarms(&self) -> impl Iterator<Item = (T, &K)> {
        self.sleeping.iter().map(|(at, key)| (*at, key))
    }

    /// Wakes the keys whose time has come.
    pub fn wake(&mut self, now: T) {
        while let Some((_, key)) = self.sleeping.first().filter(|(at, _)| *at <= now) {
            let key = key.clone();
            self.add(key);
        }
    }

    /// The next key. Give it back with [`Line::done`].
    pub fn take(&mut self) -> Option<K> {
        if self.paused {
            return None;
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// A key that [`Line::take`] gave is decided. Says whether it comes again at once.
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
    async fn each_key_once_and_again_after_it_is_done() {
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
    async fn the_earliest_alarm_counts_and_an_event_clears_it() {
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
    async fn a_pause_keeps_what_is_added() {
        let queue = Queue::default();
        queue.pause(true);
        queue.add(1);
        nothing(&queue).await;
        queue.pause(false);
        assert_eq!(queue.next().await, 1);
    }
}

//! The work queue: each item once, one worker for each item, and items that are requeued later.
//!
//! Ready items wait in two lanes, and workers take from both in turn. So thousands of volumes that are to be deleted do
//! not hold up a new claim. Items that are only checked at the begin of a term are no entries of the queue: an iterator
//! makes each when its turn comes, because there may be a hundred thousand.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The lane in which a ready item waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Somebody waits for the result, or many other items depend on it.
    Awaited,
    /// There may be thousands of such items at one time.
    Bulk,
}

/// An item that knows its lane.
pub trait InLane {
    /// Returns the lane.
    fn lane(&self) -> Lane;
}

/// Items that are made when their turn comes.
pub type Checks<K> = Box<dyn Iterator<Item = K> + Send>;

/// The ready items, in the order of their arrival in each lane.
struct Ready<K> {
    awaited: VecDeque<K>,
    bulk: VecDeque<K>,
    checks: Checks<K>,
    turn: Turn,
}

/// The place from which the next item comes, unless it is empty.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Awaited,
    Bulk,
    Checks,
}

/// An item that leaves its place.
enum Popped<K> {
    /// An item of a lane.
    Added(K),
    /// An item that is to be checked, which may be in a lane or with a worker too.
    Check(K),
}

impl<K: InLane> Ready<K> {
    fn push(&mut self, key: K) {
        match key.lane() {
            Lane::Awaited => self.awaited.push_back(key),
            Lane::Bulk => self.bulk.push_back(key),
        }
    }

    fn pop(&mut self) -> Option<Popped<K>> {
        // From any place, three turns try all places.
        (0..3).find_map(|_| match self.turn {
            Turn::Awaited => {
                self.turn = Turn::Bulk;
                self.awaited.pop_front().map(Popped::Added)
            }
            Turn::Bulk => {
                self.turn = Turn::Checks;
                self.bulk.pop_front().map(Popped::Added)
            }
            Turn::Checks => {
                self.turn = Turn::Awaited;
                self.checks.next().map(Popped::Check)
            }
        })
    }
}

impl<K> Ready<K> {
    fn len(&self) -> usize {
        self.awaited.len() + self.bulk.len() + self.checks.size_hint().0
    }
}

impl<K: 'static> Default for Ready<K> {
    fn default() -> Self {
        Ready {
            awaited: VecDeque::new(),
            bulk: VecDeque::new(),
            checks: Box::new(std::iter::empty()),
            turn: Turn::Awaited,
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Ready<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ready { awaited, bulk, checks, turn } = self;
        let checks = checks.size_hint();
        f.debug_struct("Ready")
            .field("awaited", awaited)
            .field("bulk", bulk)
            .field("checks", &checks)
            .field("turn", turn)
            .finish()
    }
}

/// A work queue. An item that is added while a worker has it follows again afterwards.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<QueueState<K, Instant>>,
    changed: Notify,
}

/// The waiting items, for any kind of time.
#[derive(Debug)]
pub struct QueueState<K, T> {
    ready: Ready<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    again: HashSet<K>,
    sleeping: BTreeSet<(T, K)>,
    alarm: HashMap<K, T>,
    paused: bool,
}

impl<K: 'static> Default for Queue<K> {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord + InLane + 'static> Queue<K> {
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

    /// Pauses the queue: it forgets all items, and those that are added meanwhile. Whoever ends the pause adds the items
    /// that count then.
    pub fn pause(&self) {
        self.state().pause();
        self.changed.notify_waiters();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.state().resume();
    }

    /// Replaces the items to check. The queue makes one of them whenever its turn comes.
    pub fn check_all(&self, checks: Checks<K>) {
        self.state().check_all(checks);
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
                    let more = state.ready.len() > 0;
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

impl<K: 'static, T> Default for QueueState<K, T> {
    fn default() -> Self {
        QueueState {
            ready: Ready::default(),
            queued: HashSet::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            sleeping: BTreeSet::new(),
            alarm: HashMap::new(),
            paused: false,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord + InLane + 'static, T: Copy + Ord> QueueState<K, T> {
    /// Adds an item for the next free worker.
    pub fn add(&mut self, key: K) {
        if self.paused {
            return;
        }
        if let Some(at) = self.alarm.remove(&key) {
            self.sleeping.remove(&(at, key.clone()));
        }
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push(key);
        }
    }

    /// Adds an item at a time. Returns whether this time counts: the earliest does.
    pub fn add_at(&mut self, key: K, at: T) -> bool {
        if self.paused {
            return false;
        }
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

    /// Pauses the queue: it forgets all items, and those that are added meanwhile.
    pub fn pause(&mut self) {
        let running = std::mem::take(&mut self.running);
        *self = QueueState { running, paused: true, ..QueueState::default() };
    }

    /// Ends a pause.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Replaces the items to check. The queue makes one of them whenever its turn comes.
    pub fn check_all(&mut self, checks: Checks<K>) {
        self.ready.checks = checks;
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
        let key = loop {
            match self.ready.pop()? {
                Popped::Added(key) => {
                    self.queued.remove(&key);
                    break key;
                }
                Popped::Check(key) if self.queued.contains(&key) => {}
                Popped::Check(key) if self.running.contains(&key) => drop(self.again.insert(key)),
                Popped::Check(key) => break key,
            }
        };
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

    /// Odd numbers are awaited.
    impl InLane for i32 {
        fn lane(&self) -> Lane {
            if self % 2 == 1 { Lane::Awaited } else { Lane::Bulk }
        }
    }

    #[test]
    fn an_awaited_item_does_not_wait_for_thousands_of_others() {
        let mut state = QueueState::<i32, i64>::default();
        (0..2000).step_by(2).for_each(|bulk| state.add(bulk));
        [1, 3].into_iter().for_each(|awaited| state.add(awaited));
        let taken: Vec<_> = std::iter::repeat_with(|| state.take()).take(6).flatten().collect();
        assert_eq!(taken, [1, 0, 3, 2, 4, 6]);
        assert_eq!(state.ready(), 996);
        (5..205).step_by(2).for_each(|awaited| state.add(awaited));
        let bulk = std::iter::repeat_with(|| state.take()).take(100).flatten().filter(|item| item % 2 == 0);
        assert_eq!(bulk.count(), 50, "nor do the others wait for awaited items");
    }

    async fn nothing<K: Clone + Eq + Hash + Ord + InLane + fmt::Debug + 'static>(queue: &Queue<K>) {
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
    async fn a_pause_ends_with_the_items_that_count_then() {
        let queue = Queue::default();
        queue.add(1);
        assert_eq!(queue.next().await, 1);
        [1, 2].into_iter().for_each(|key| queue.add(key));
        queue.add_after(3, Duration::from_secs(1));
        queue.pause();
        queue.add(4);
        queue.add_after(5, Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        nothing(&queue).await;
        queue.resume();
        queue.check_all(Box::new([1, 6].into_iter()));
        assert_eq!(queue.depth(), 3, "one item is with a worker since before the pause");
        queue.add(8);
        assert_eq!((queue.next().await, queue.next().await), (8, 6));
        nothing(&queue).await;
        queue.done(&1);
        assert_eq!(queue.next().await, 1, "the worker may have seen the state before the pause");
    }

    #[test]
    fn checks_take_turns_with_items_and_repeat_none_that_waits() {
        let mut state = QueueState::<i32, i64>::default();
        state.check_all(Box::new([10, 12, 14, 2].into_iter()));
        [1, 3, 2, 4].into_iter().for_each(|key| state.add(key));
        assert_eq!(state.ready(), 8);
        let taken: Vec<_> = std::iter::from_fn(|| state.take()).collect();
        assert_eq!(taken, [1, 2, 10, 3, 4, 12, 14]);
        assert!(state.again.contains(&2), "a worker has this one");
        assert_eq!(state.ready(), 0);
    }
}

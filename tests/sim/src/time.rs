//! The time of a history, which only the history advances.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flex_provisioner::clock::{Clock, Time};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

/// 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600;

#[derive(Debug, Default)]
struct ManualClock {
    millis: AtomicU64,
    jumped: AtomicI64,
    slept: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

/// The sleepers, by the time at which they wake, and in order.
type Sleepers = BTreeMap<(u64, u64), oneshot::Sender<()>>;

/// The time of a history, shared by all in it.
#[derive(Clone, Debug, Default)]
pub struct SimTime(Arc<ManualClock>);

impl SimTime {
    /// Returns the milliseconds since the history began.
    pub fn millis(&self) -> u64 {
        self.0.millis.load(Ordering::Relaxed)
    }

    /// Advances the time, and wakes the sleepers whose time has come.
    pub fn pass(&self, millis: u64) {
        let now = self.0.millis.fetch_add(millis, Ordering::Relaxed) + millis;
        let mut sleepers = self.sleepers();
        while sleepers.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            if let Some((_, sleeper)) = sleepers.pop_first() {
                let _ = sleeper.send(());
            }
        }
    }

    /// Returns when the next sleeper wakes.
    pub fn alarm(&self) -> Option<u64> {
        let mut sleepers = self.sleepers();
        sleepers.retain(|_, sleeper| !sleeper.is_closed());
        sleepers.first_key_value().map(|((at, _), _)| *at)
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.0.sleepers.lock().expect("nothing panics while it holds the sleepers")
    }

    /// Sets the wall clock by this many seconds.
    pub fn jump(&self, seconds: i64) {
        self.0.jumped.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Returns the wall clock in seconds since 1970.
    pub fn now(&self) -> i64 {
        EPOCH + (self.millis() / 1000) as i64 + self.0.jumped.load(Ordering::Relaxed)
    }

    /// Returns the wall clock as the API writes it.
    pub fn text(&self) -> String {
        text(self.now())
    }

    /// Returns the clock as the orchestrator takes it.
    pub fn clock(&self) -> Clock {
        Clock::new(self.clone())
    }
}

/// Returns seconds since 1970 as the API writes them.
pub fn text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default()
}

impl Time for SimTime {
    fn wall(&self) -> jiff::Timestamp {
        let micros = self.now() * 1_000_000 + (self.millis() % 1000) as i64 * 1000;
        jiff::Timestamp::from_microsecond(micros).unwrap_or_default()
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.millis())
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let at = self.millis() + time.as_millis() as u64;
        let (sleeper, woken) = oneshot::channel();
        let number = self.0.slept.fetch_add(1, Ordering::Relaxed);
        self.sleepers().insert((at, number), sleeper);
        Box::pin(async move { drop(woken.await) })
    }
}

//! The time of decisions and delays, which a test can control.
//!
//! Others measure real time: the queue of delayed items, the Lease, the measurement of requests, and commands that wait
//! for a cluster.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either, select};

/// A source of time.
pub trait Time: Debug + Send + Sync {
    /// Returns the wall-clock time. Somebody may set it, in both directions.
    fn wall(&self) -> jiff::Timestamp;
    /// Returns the time that has passed since some moment. It never goes back.
    fn passed(&self) -> Duration;
    /// Completes when this time has passed.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The time of a recording: the clock on the wall stands still, so that each look at the recording tells the same ages.
#[derive(Debug)]
struct Recorded {
    at: jiff::Timestamp,
    began: Instant,
}

impl Time for Recorded {
    fn wall(&self) -> jiff::Timestamp {
        self.at
    }

    fn passed(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A clock, cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn Time>);

impl Clock {
    /// Makes a clock with another source than the machine's.
    pub fn new(time: impl Time + 'static) -> Self {
        Clock(Arc::new(time))
    }

    /// Makes a clock that stands at the time of a recording.
    pub fn recorded(at: jiff::Timestamp) -> Self {
        Clock::new(Recorded { at, began: Instant::now() })
    }

    /// Returns the wall-clock time. Somebody may set it, in both directions.
    pub fn wall(&self) -> jiff::Timestamp {
        self.0.wall()
    }

    /// Returns the wall-clock time in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.wall().as_second()
    }

    /// Returns the time that has passed since some moment. It never goes back.
    pub fn passed(&self) -> Duration {
        self.0.passed()
    }

    /// Completes when this time has passed.
    pub async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }

    /// Returns the result of a future, if it completes within this time.
    pub async fn within<T>(&self, time: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(pin!(future), self.0.sleep(time)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// Returns the time that has passed since [`Clock::passed`] returned `then`.
    pub fn since(&self, then: Duration) -> Duration {
        self.passed().saturating_sub(then)
    }
}

impl Default for Clock {
    /// Returns the machine's clock.
    fn default() -> Self {
        Clock::new(Machine(Instant::now()))
    }
}

/// The machine's time. [`Time::passed`] counts from the stored moment.
#[derive(Debug)]
struct Machine(Instant);

impl Time for Machine {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn passed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

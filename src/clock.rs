//! What time it is. Nothing else asks for it, so that a test can be its master.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either, select};

/// A source of time.
pub trait Time: Debug + Send + Sync {
    /// What the clock on the wall says. It may be set, in both directions.
    fn wall(&self) -> jiff::Timestamp;
    /// How much time has passed since some moment. It never goes back.
    fn passed(&self) -> Duration;
    /// Ends when so much time has passed.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// A clock, cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<dyn Time>);

impl Clock {
    /// A clock that shows another time than the machine's.
    pub fn new(time: impl Time + 'static) -> Self {
        Clock(Arc::new(time))
    }

    /// What the clock on the wall says. It may be set, in both directions.
    pub fn wall(&self) -> jiff::Timestamp {
        self.0.wall()
    }

    /// The same in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.wall().as_second()
    }

    /// How much time has passed since some moment. It never goes back.
    pub fn passed(&self) -> Duration {
        self.0.passed()
    }

    /// Ends when so much time has passed.
    pub async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }

    /// What a future gives, if it does so within this time.
    pub async fn within<T>(&self, time: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(pin!(future), self.0.sleep(time)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// How much time has passed since [`Clock::passed`] said `then`.
    pub fn since(&self, then: Duration) -> Duration {
        self.passed().saturating_sub(then)
    }
}

impl Default for Clock {
    /// The machine's.
    fn default() -> Self {
        Clock::new(Machine(Instant::now()))
    }
}

/// The machine's time; [`Time::passed`] counts from the moment that it holds.
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

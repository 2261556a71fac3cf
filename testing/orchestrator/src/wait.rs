//! Waiting for expected states.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// No step of a healthy system takes longer, even on a busy machine.
pub const GUARD: Duration = Duration::from_secs(300);

/// Waits until `check` finds something, and returns it.
pub async fn until<T, F: Future<Output = Result<T, String>>>(what: impl Into<String>, check: impl FnMut() -> F) -> T {
    within(GUARD, what, check).await
}

/// Does the same, with another time limit.
pub async fn within<T, F: Future<Output = Result<T, String>>>(
    guard: Duration,
    what: impl Into<String>,
    mut check: impl FnMut() -> F,
) -> T {
    let (what, began) = (what.into(), Instant::now());
    loop {
        match check().await {
            Ok(found) => return found,
            Err(observed) if began.elapsed() > guard => {
                panic!("{what}: not within {guard:?}; last observed: {observed}")
            }
            Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
        }
    }
}

/// Returns the pause until the next check, by the time waited so far: most conditions hold soon, and each check is work
/// for an API server on a machine that is busy with several.
pub fn pause(waited: Duration) -> Duration {
    (waited / 4).clamp(Duration::from_millis(25), Duration::from_millis(250))
}

/// Checks for a while that something stays true.
pub async fn stays<F: Future<Output = Result<(), String>>>(what: &str, time: Duration, mut check: impl FnMut() -> F) {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Err(observed) = check().await {
            panic!("{what}: {observed}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns any value as an error for [`until`].
pub fn unexpected<T>(value: impl Debug) -> Result<T, String> {
    Err(format!("{value:?}"))
}

//! Waiting for expected states.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// No step of a healthy system takes longer, even on a busy machine.
pub const GUARD: Duration = Duration::from_secs(300);

/// Waits until `look` finds something, and returns it.
pub async fn until<T, F: Future<Output = Result<T, String>>>(what: impl Into<String>, look: impl FnMut() -> F) -> T {
    within(GUARD, what, look).await
}

/// The same for what may take another time.
pub async fn within<T, F: Future<Output = Result<T, String>>>(
    guard: Duration,
    what: impl Into<String>,
    mut look: impl FnMut() -> F,
) -> T {
    let (what, began) = (what.into(), Instant::now());
    loop {
        match look().await {
            Ok(found) => return found,
            Err(observed) if began.elapsed() > guard => panic!("{what}: not within {guard:?}; last seen: {observed}"),
            Err(_) => tokio::time::sleep(pause(began.elapsed())).await,
        }
    }
}

/// Until the next look, by how long one has looked: most comes soon, and each look is work for an API server on a machine
/// that is busy with several.
pub fn pause(looked: Duration) -> Duration {
    (looked / 4).clamp(Duration::from_millis(25), Duration::from_millis(250))
}

/// Watches for a while that something stays true.
pub async fn stays<F: Future<Output = Result<(), String>>>(what: &str, time: Duration, mut look: impl FnMut() -> F) {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Err(observed) = look().await {
            panic!("{what}: {observed}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An error for [`until`], from anything.
pub fn seen<T>(value: impl Debug) -> Result<T, String> {
    Err(format!("{value:?}"))
}

//! Patience with a backend that has a temporary problem.

use std::future::Future;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use crate::Failure;

/// The answer of a backend that does not fulfil a request.
pub trait Trouble {
    /// Checks whether it is worth asking again soon.
    fn passes(&self) -> bool;
}

/// The reason why a run cannot continue.
#[derive(Debug)]
pub enum Stop<T> {
    /// A problem of the backend, which may be temporary.
    Trouble(T),
    /// Any other failure.
    Failure(Failure),
}

impl<T: Trouble> From<T> for Stop<T> {
    fn from(trouble: T) -> Self {
        Stop::Trouble(trouble)
    }
}

impl<T> From<Failure> for Stop<T> {
    fn from(failure: Failure) -> Self {
        Stop::Failure(failure)
    }
}

/// Runs an operation, and from its beginning again after each temporary problem, within a time limit. Each try first
/// looks at what exists, or requests the same by the same name, so that a call whose answer was lost is not made twice.
/// The orchestrator waits for the end of longer outages, because a waiting pod uses resources of its node.
///
/// # Errors
/// If the operation fails, or if the problem remains. `failure` converts the problem.
pub async fn persistently<T, F>(
    patience: Duration,
    operation: impl Fn() -> F,
    failure: impl FnOnce(T) -> Failure,
) -> Result<(), Failure>
where
    T: Trouble,
    F: Future<Output = Result<(), Stop<T>>>,
{
    let pace = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(Duration::from_secs(4))
        .with_total_delay(Some(patience))
        .without_max_times()
        .with_jitter();
    let outcome = operation.retry(pace).when(|stop| matches!(stop, Stop::Trouble(trouble) if trouble.passes())).await;
    outcome.map_err(|stop| match stop {
        Stop::Trouble(trouble) => failure(trouble),
        Stop::Failure(failure) => failure,
    })
}

//! Patience with a backend whose trouble may pass.

use std::future::Future;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use crate::Failure;

/// What a backend answers when it does not do what it is asked for.
pub trait Trouble {
    /// It is worth asking again soon.
    fn passes(&self) -> bool;
}

/// Why a run does not get on.
#[derive(Debug)]
pub enum Stop<T> {
    /// Something of the backend's, which may pass.
    Trouble(T),
    /// Anything else.
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

/// Runs an operation, from its beginning again while its trouble may pass, for so long between tries. Each try begins
/// with a look at what there is, or asks for the same by the same name, so that a call whose answer was lost is not made
/// twice. Longer outages are the orchestrator's to wait for: a pod that waits holds a place on its node.
///
/// # Errors
/// What it ends with; trouble as `failure` puts it.
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

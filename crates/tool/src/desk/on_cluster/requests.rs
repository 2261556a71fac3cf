//! Requests to an API server that may be busy, and the removal of objects.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use flex_desk::desk::DeskError;
use flex_provisioner::api::says;
use kube::Api;
use kube::Resource;
use kube::api::DeleteParams;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

/// The time between two reads of an object.
pub(super) const POLL: Duration = Duration::from_millis(250);
/// The time in which a deleted object must be gone.
pub(super) const GONE: Duration = Duration::from_secs(60);
/// The grace period of a pod that is killed, in seconds. Without one, the pod's object would be gone before its processes.
pub(super) const KILL_GRACE: u32 = 1;

pub(super) fn broken(what: &str, error: &kube::Error) -> DeskError {
    DeskError::Machine(format!("{what}: {}", says::error(error)))
}

/// Takes an object that is gone for a success.
pub(super) fn gone_is_fine<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// Repeats a request four times, after 1 to 8 s, if its error passes.
pub(super) async fn patiently<T, F>(passes: fn(&kube::Error) -> bool, request: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let pace = ExponentialBuilder::default().with_min_delay(Duration::from_secs(1)).with_max_times(4);
    request.retry(pace).when(passes).await
}

/// Checks whether the API server refused a request because it is busy. The server has done nothing then.
pub(super) fn is_busy(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429)
}

/// Checks for an error after which a request may succeed that can be repeated.
pub(super) fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// Deletes an object, and waits until it is gone. `what` names it in an error.
pub(super) async fn remove<K>(api: &Api<K>, name: &str, what: &str, how: &DeleteParams) -> Result<(), DeskError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let began = Instant::now();
    loop {
        let deleted = patiently(is_transient, || async { api.delete(name, how).await }).await;
        gone_is_fine(deleted).map_err(|error| broken(&format!("{what} cannot be deleted"), &error))?;
        let found = patiently(is_transient, || async { api.get_metadata_opt(name).await }).await;
        let found = found.map_err(|error| broken(&format!("{what} cannot be read"), &error))?;
        let Some(found) = found else { return Ok(()) };
        if began.elapsed() > GONE {
            let (after, finalizers) = (GONE.as_secs(), found.metadata.finalizers.unwrap_or_default().join(", "));
            let kept = if finalizers.is_empty() { String::new() } else { format!("; its finalizers are {finalizers}") };
            return Err(DeskError::Machine(format!("{what} is not gone after {after} s{kept}")));
        }
        sleep(POLL).await;
    }
}

//! Runs of images that a command starts: their Jobs, from the creation to the end.

use std::time::Duration;

use flex_contract::listing;
use flex_contract::names::CONTAINER;
use flex_core::config::Recipe;
use flex_core::run::state::{RunState, state};
use flex_core::run::view;
use flex_provisioner::api::watch::warning_event;
use flex_provisioner::api::{pages, says};
use flex_provisioner::clock::Clock;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client};

use crate::out::remark;

/// The time between two reads of a run.
const POLL: Duration = Duration::from_millis(500);
/// The time after which a run that does not start is given up. Its node or its image may be missing.
const STUCK: Duration = Duration::from_secs(30);
/// The time beyond the config's own timeout.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The time in which the log of a pod that has ended must have the end of its list. containerd may write it late.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// The reason why a run failed.
pub(super) struct RunFailure {
    /// The reason, for the admin.
    pub message: String,
    /// The image may have done something.
    pub has_begun: bool,
}

impl RunFailure {
    /// Returns the failure of a run whose image was never started.
    pub(super) fn early(message: String) -> Self {
        RunFailure { message, has_begun: false }
    }

    fn late(message: String) -> Self {
        RunFailure { message, has_begun: true }
    }
}

/// Creates a Job, follows it to its end, and deletes it. `read` gets the name of a pod that succeeded, before that.
///
/// # Errors
/// If the run fails, or does not start.
pub(super) async fn finished<T>(
    client: &Client,
    recipe: &Recipe,
    job: Job,
    read: impl AsyncFnOnce(Api<Pod>, String) -> Result<T, String>,
) -> Result<T, RunFailure> {
    let namespace = &recipe.config.namespace;
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let name = job.metadata.name.clone().unwrap_or_default();
    let created = jobs.create(&PostParams::default(), &job).await;
    created.map_err(|error| RunFailure::early(format!("the Job cannot be created: {}", says::error(&error))))?;
    let limit = recipe.timeout.saturating_add(START_TIMEOUT);
    let ended = tokio::time::timeout(limit, async {
        let pod = followed(&jobs, &pods, &events, &name).await?;
        read(pods.clone(), pod).await.map_err(RunFailure::late)
    });
    let ended = ended.await;
    // If this fails, Kubernetes deletes the Job after its time to live.
    if let Err(error) = jobs.delete(&name, &DeleteParams::background()).await {
        remark!("Job {namespace}/{name} is left for Kubernetes to remove: {}", says::error(&error));
    }
    ended.unwrap_or_else(|_| Err(RunFailure::late(format!("no answer within {} s", limit.as_secs()))))
}

/// Reads the log of a pod whose image has ended. One byte more than the limit is read, so that a longer log is noticed.
///
/// # Errors
/// If the log cannot be read.
pub(super) async fn log(pods: &Api<Pod>, name: &str) -> kube::Result<String> {
    let limit = i64::try_from(listing::LONGEST_LOG + 1).unwrap_or(i64::MAX);
    let params = LogParams { container: Some(CONTAINER.into()), limit_bytes: Some(limit), ..LogParams::default() };
    pods.logs(name, &params).await
}

/// Does the same for a list run that has succeeded, and waits for the end of the list. A log without a whole list is
/// returned after a while.
///
/// # Errors
/// If the log cannot be read.
pub(super) async fn log_of_list(pods: &Api<Pod>, name: &str) -> kube::Result<String> {
    let clock = Clock::default();
    let began = clock.passed();
    loop {
        let log = log(pods, name).await?;
        if listing::read(&log).is_ok() || clock.since(began) > LIST_PATIENCE {
            return Ok(log);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Follows a run to its end. Returns the name of its pod.
async fn followed(jobs: &Api<Job>, pods: &Api<Pod>, events: &Api<Event>, name: &str) -> Result<String, RunFailure> {
    let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let clock = Clock::default();
    let mut stuck_since = None;
    loop {
        tokio::time::sleep(POLL).await;
        // A request that fails is repeated until the deadline.
        let found = pages::all(pods, own.clone(), |pod| view::Pod::from(&pod)).await;
        let (Ok(Some(job)), Ok(observed)) = (jobs.get_opt(name).await, found) else { continue };
        let mut warnings = Vec::new();
        for about in observed.iter().map(|pod| pod.name.name.as_str()).chain([name]) {
            let about = ListParams::default().fields(&format!("involvedObject.name={about},type=Warning"));
            warnings.extend(pages::all(events, about, warning_event).await.into_iter().flatten().flatten());
        }
        let (observed_pods, warnings): (Vec<_>, Vec<_>) = (observed.iter().collect(), warnings.iter().collect());
        match state(Some(&view::Job::from(&job)), &observed_pods, &warnings) {
            RunState::Succeeded => {
                let ended = |pod: &&view::Pod| pod.terminated.as_ref().is_some_and(|end| end.code == 0);
                let pod = observed
                    .into_iter()
                    .find(|pod| ended(&pod))
                    .ok_or_else(|| RunFailure::late("its pod is gone".into()))?;
                return Ok(pod.name.name);
            }
            RunState::Failed { cause, .. } => return Err(RunFailure::late(cause.message)),
            RunState::Stuck { cause, .. } => {
                let since = *stuck_since.get_or_insert(clock.passed());
                if clock.since(since) > STUCK {
                    return Err(RunFailure::early(cause.message));
                }
            }
            RunState::NotCached | RunState::MayBeRunning => stuck_since = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_end_is_late_in_the_log_is_read_whole() {
        let whole = listing::write(&[]);
        let begun = whole.lines().next().unwrap_or_default().to_owned();
        let (asked, whole_now) = (AtomicUsize::new(0), whole.clone());
        let service = tower::service_fn(move |_: Request<Body>| {
            let logs = ["", begun.as_str(), whole_now.as_str()];
            let log = logs[asked.fetch_add(1, Ordering::SeqCst).min(2)].to_owned();
            async move { Ok::<_, Infallible>(Response::new(Body::from(log.into_bytes()))) }
        });
        let pods: Api<Pod> = Api::default_namespaced(Client::new(service, "own"));
        assert_eq!(log_of_list(&pods, "list").await.unwrap(), whole);
    }
}

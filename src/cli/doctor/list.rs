//! Runs images to list their backends, and reads the lists from the logs of their pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::listing;
use flex_contract::names::CONTAINER;
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client};

use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::findings::backend::{Listing, View};
use crate::run::list::list;
use crate::run::script::{Texts, complete};
use crate::run::state::{RunState, state};
use crate::run::view;

/// The number of runs at one time.
const MAX_CONCURRENT_RUNS: usize = 8;
/// The time between two reads of a run.
const POLL: Duration = Duration::from_millis(500);
/// The time after which a run that does not start is given up. Its node or its image may be missing.
const STUCK: Duration = Duration::from_secs(30);
/// The time beyond the config's own timeout.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Lists all backends. For a run that fails, the listing has the reason.
pub(super) async fn all(
    client: &Client,
    identity: &Identity,
    kube_api: &str,
    views: &[View],
    scripts: &BTreeMap<String, Arc<str>>,
) -> anyhow::Result<Vec<Listing>> {
    let runs = views.iter().flat_map(|view| view.nodes.iter().map(move |node| (view, node)));
    let mut listings: Vec<Listing> = futures::stream::iter(runs)
        .map(|(view, node)| async move {
            let on = node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
            eprintln!("listing class {}{on}", view.recipe.class);
            let mut job = list(&view.recipe, node.as_deref(), identity, kube_api, &Clock::default().wall().to_string());
            let script = view.recipe.script.as_ref().and_then(|hash| scripts.get(hash)).map(|text| &**text);
            let texts = Texts { script, shell_image: identity.shell_image.as_deref() };
            let entries = match complete(&mut job, &view.recipe, texts) {
                Ok(()) => run(client, &view.recipe, job).await,
                Err(why) => Err(why),
            };
            Listing { key: view.key.clone(), class: view.recipe.class.clone(), node: node.clone(), entries }
        })
        .buffer_unordered(MAX_CONCURRENT_RUNS)
        .collect()
        .await;
    listings.sort_by(|a, b| (&a.class, &a.node, &a.key).cmp(&(&b.class, &b.node, &b.key)));
    Ok(listings)
}

async fn run(client: &Client, recipe: &Recipe, job: Job) -> Result<Vec<listing::Entry>, String> {
    let namespace = &recipe.config.namespace;
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let name = job.metadata.name.clone().unwrap_or_default();
    jobs.create(&PostParams::default(), &job).await.map_err(|error| format!("the Job cannot be created: {error}"))?;
    let patience = recipe.timeout.saturating_add(LIST_TIMEOUT);
    let listed = tokio::time::timeout(patience, followed(&jobs, &pods, &name)).await;
    // If this fails, Kubernetes deletes the Job after its time to live.
    if let Err(error) = jobs.delete(&name, &DeleteParams::background()).await {
        eprintln!("Job {namespace}/{name} is left for Kubernetes to remove: {error}");
    }
    listed.unwrap_or_else(|_| Err(format!("no answer within {} s", patience.as_secs())))
}

/// Follows a run to its end, and reads its list.
async fn followed(jobs: &Api<Job>, pods: &Api<Pod>, name: &str) -> Result<Vec<listing::Entry>, String> {
    let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let clock = Clock::default();
    let mut stuck_since = None;
    loop {
        tokio::time::sleep(POLL).await;
        // A request that fails is repeated until the deadline.
        let (Ok(Some(job)), Ok(found)) = (jobs.get_opt(name).await, pods.list(&own).await) else { continue };
        let observed: Vec<view::Pod> = found.items.iter().map(view::Pod::from).collect();
        match state(Some(&view::Job::from(&job)), &observed.iter().collect::<Vec<_>>(), &[]) {
            RunState::Succeeded => {
                let ended = |pod: &&view::Pod| pod.terminated.as_ref().is_some_and(|end| end.code == 0);
                let Some(pod) = observed.iter().find(ended) else { return Err("its pod is gone".to_owned()) };
                return log(pods, &pod.name.name).await;
            }
            RunState::Failed { cause, .. } => return Err(cause.message),
            RunState::Stuck { cause, .. } => {
                let since = *stuck_since.get_or_insert(clock.passed());
                if clock.since(since) > STUCK {
                    return Err(cause.message);
                }
            }
            RunState::Absent | RunState::Running => stuck_since = None,
        }
    }
}

async fn log(pods: &Api<Pod>, name: &str) -> Result<Vec<listing::Entry>, String> {
    // One byte more than the limit is read, so that a longer log is noticed.
    let limit = i64::try_from(listing::LONGEST_LOG + 1).unwrap_or(i64::MAX);
    let params = LogParams { container: Some(CONTAINER.into()), limit_bytes: Some(limit), ..LogParams::default() };
    let log =
        pods.logs(name, &params).await.map_err(|error| format!("the log of pod {name} cannot be read: {error}"))?;
    listing::read(&log).map_err(|error| error.to_string())
}

//! Runs images to list their backends, and reads the lists from the logs of their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::listing;
use flex_core::config::classes::Identity;
use flex_core::findings::backend::{Listing, View};
use flex_core::run::list::list;
use flex_core::run::script::{Texts, complete};
use flex_provisioner::api::says;
use flex_provisioner::clock::Clock;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

use crate::job::{finished, log_of_list};
use crate::out::remark;

/// The number of runs at one time.
const MAX_CONCURRENT_RUNS: usize = 8;

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
            remark!("listing class {}{on}", view.recipe.class);
            let mut job = list(&view.recipe, node.as_deref(), identity, kube_api, &Clock::default().wall().to_string());
            let script = view.recipe.script.as_ref().and_then(|hash| scripts.get(hash)).map(|text| &**text);
            let texts = Texts { script, shell_image: identity.shell_image.as_deref() };
            let entries = match complete(&mut job, &view.recipe, texts) {
                Ok(()) => finished(client, &view.recipe, job, log).await.map_err(|failure| failure.message),
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

async fn log(pods: Api<Pod>, name: String) -> Result<Vec<listing::Entry>, String> {
    let log = log_of_list(&pods, &name).await;
    let log = log.map_err(|error| format!("the log of pod {name} cannot be read: {}", says::error(&error)))?;
    listing::read(&log).map_err(|error| error.to_string())
}

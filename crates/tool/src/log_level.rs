//! `log-level`: changes the log filter of the running orchestrator for a time.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use flex_contract::names;
use flex_provisioner::api::client::Connection;
use flex_provisioner::clock::Clock;
use flex_provisioner::log::{FilterRequest, LONGEST};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::out::say;

#[derive(Debug, Args)]
pub(super) struct LogLevelArgs {
    /// The log filter, such as `debug` or `flex_provisioner=debug,info`.
    #[arg(required_unless_present = "reset", conflicts_with = "reset")]
    filter: Option<String>,
    /// The time after which the filter of the command line returns, at most 24h.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = duration)]
    lasting: Duration,
    /// Return to the filter of the command line now.
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    cluster: Cluster,
}

fn duration(text: &str) -> Result<Duration, String> {
    let lasting = flex_core::config::values::duration(text)?;
    if lasting.is_zero() || lasting > LONGEST {
        return Err("must be longer than 0s and at most 24h".to_owned());
    }
    Ok(lasting)
}

pub(super) fn log_level(args: LogLevelArgs) -> anyhow::Result<ExitCode> {
    let request = match &args.filter {
        None => None,
        Some(filter) => {
            let request = FilterRequest { filter: filter.clone(), until: Clock::default().wall() + args.lasting };
            // The orchestrator reads it in the same way.
            Some(FilterRequest::read(&request.annotation()).map_err(anyhow::Error::msg)?)
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(write(&args.cluster, request.as_ref()))?;
    match request {
        Some(FilterRequest { filter, until }) => say!("the log has the filter {filter} until {until}"),
        None => say!("the log has the filter of the command line again"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn write(cluster: &Cluster, request: Option<&FilterRequest>) -> anyhow::Result<()> {
    let (Connection { client, .. }, identity) = cluster.open().await?;
    let name = identity.lease();
    let annotations = json!({ names::LOG_FILTER: request.map(FilterRequest::annotation) });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let leases: Api<Lease> = Api::namespaced(client, &name.namespace);
    let patched = leases.patch(&name.name, &PatchParams::default(), &patch).await;
    patched.with_context(|| format!("Lease {name} cannot be changed"))?;
    Ok(())
}

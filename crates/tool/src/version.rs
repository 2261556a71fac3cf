//! `version`: the versions of this command, of the cluster and of the orchestrator.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use flex_core::limits::NAME;
use flex_core::text::line;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::lease;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::flags::Output;
use crate::out::say;

/// The version of this program.
const OWN: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// Ask no cluster: print only the versions of this command and of its contract with images.
    #[arg(long)]
    client: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// The versions in a cluster.
struct InCluster {
    /// The version of Kubernetes.
    kubernetes: String,
    /// The namespace of the orchestrator.
    namespace: String,
    /// The replica that leads.
    leader: Option<String>,
    /// The version of the leader.
    version: Option<String>,
}

pub(super) fn version(args: VersionArgs) -> anyhow::Result<ExitCode> {
    let found = match args.client {
        true => None,
        false => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Some(runtime.block_on(read(&args.cluster)))
        }
    };
    let known = found.as_ref().and_then(|found| found.as_ref().ok());
    match args.output.document(|| to_json(known))? {
        Some(document) => say!("{document}"),
        None => print(known),
    }
    match found {
        Some(Err(error)) => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

async fn read(cluster: &Cluster) -> anyhow::Result<InCluster> {
    let (Connection { client, .. }, identity) = cluster.open().await?;
    let kubernetes = client.apiserver_version().await.context("the cluster does not tell its version")?.git_version;
    let name = identity.lease();
    let leases: Api<Lease> = Api::namespaced(client, &name.namespace);
    let lease = leases.get_opt(&name.name).await.with_context(|| format!("Lease {name}"))?;
    Ok(InCluster {
        kubernetes,
        namespace: name.namespace,
        leader: lease::leader(lease.as_ref()).map(str::to_owned),
        version: lease::version(lease.as_ref()).map(str::to_owned),
    })
}

/// Describes the orchestrator that leads.
fn describe(found: &InCluster) -> String {
    let InCluster { namespace, leader, version, .. } = found;
    match (leader, version) {
        (None, _) => format!("none leads in namespace {namespace}: see --flex-namespace and --instance"),
        (Some(leader), None) => format!("{leader} leads in namespace {namespace}, and is older than this command"),
        (Some(leader), Some(version)) if version == OWN => format!("{leader} leads in namespace {namespace}"),
        (Some(leader), Some(_)) => {
            format!("{leader} leads in namespace {namespace}: use the command of the orchestrator's version")
        }
    }
}

fn print(found: Option<&InCluster>) {
    say!("{:<14} {:<16} DETAILS", "COMPONENT", "VERSION");
    for row in rows(found) {
        say!("{row}");
    }
}

/// Returns a line for each component. The texts from the cluster have no line ends of their own.
fn rows(found: Option<&InCluster>) -> Vec<String> {
    let row = |component: &str, version: &str, details: &str| {
        format!("{component:<14} {:<16} {}", line(version, NAME), line(details, usize::MAX))
    };
    let contract = row("contract", &flex_contract::VERSION.to_string(), "between orchestrator and images");
    let mut rows = vec![row("client", OWN, "this command"), contract];
    if let Some(found) = found {
        rows.push(row("kubernetes", &found.kubernetes, "the API server"));
        rows.push(row("orchestrator", found.version.as_deref().unwrap_or("-"), &describe(found)));
    }
    rows
}

fn to_json(found: Option<&InCluster>) -> Value {
    let mut all = json!({ "client": OWN, "contract": flex_contract::VERSION });
    if let Some(InCluster { kubernetes, namespace, leader, version }) = found {
        all["kubernetes"] = json!(kubernetes);
        all["orchestrator"] = json!({ "version": version, "leader": leader, "namespace": namespace });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orchestrator_is_described_by_its_leader_and_version() {
        let of = |leader: Option<&str>, version: Option<&str>| InCluster {
            kubernetes: "v1.36.0".into(),
            namespace: "flex".into(),
            leader: leader.map(str::to_owned),
            version: version.map(str::to_owned),
        };
        for (leader, version, expected) in [
            (None, None, "none leads in namespace flex: see --flex-namespace and --instance"),
            (Some("a"), Some(OWN), "a leads in namespace flex"),
            (Some("a"), Some("9.9.9"), "a leads in namespace flex: use the command of the orchestrator's version"),
            (Some("a"), None, "a leads in namespace flex, and is older than this command"),
        ] {
            assert_eq!(describe(&of(leader, version)), expected);
        }
    }

    #[test]
    fn no_text_of_the_cluster_forges_a_row() {
        let forged = "v1\nerror: all is lost\u{1b}[2J\u{202e}";
        let found = InCluster {
            kubernetes: forged.into(),
            namespace: forged.into(),
            leader: Some(forged.into()),
            version: Some(forged.into()),
        };
        let rows = rows(Some(&found));
        assert_eq!(rows.len(), 4);
        for row in rows {
            assert!(!row.contains(|c: char| c.is_control() || c == '\u{202e}'), "{row:?}");
        }
    }
}

//! `export-traces`: sends the timelines of claims to a collector of OpenTelemetry, as traces.

mod claims;
mod collector;
mod ended;
mod follow;
mod spans;

use std::process::ExitCode;

use clap::Args;
use clap_complete::ArgValueCompleter;
use flex_provisioner::api::client::Connection;

use self::claims::{CLAIMS, Claims};
use self::collector::{CollectorArgs, Refused};
use self::ended::Ended;
use crate::cluster::Cluster;
use crate::complete::candidates::claims;
use crate::namespaces::UserNamespaces;
use crate::out::{remark, say};

/// The exit code if the collector accepted a part of the spans only.
const REFUSED_SOME: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct ExportTracesArgs {
    /// The claim, as NAME, NAMESPACE/NAME or pvc/NAME [default: all claims of the namespace].
    #[arg(add = ArgValueCompleter::new(claims))]
    claim: Option<String>,
    #[command(flatten)]
    namespaces: UserNamespaces,
    /// Go on, and send each attempt when it has ended.
    #[arg(short, long, conflicts_with = "bundle")]
    watch: bool,
    #[command(flatten)]
    collector: CollectorArgs,
    #[command(flatten)]
    cluster: Cluster,
}

pub(super) fn export_traces(args: ExportTracesArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(args))
}

async fn work(mut args: ExportTracesArgs) -> anyhow::Result<ExitCode> {
    // A wrong flag is reported before anything is read.
    let collector = args.collector.open()?;
    let (Connection { client, namespace, has_context, .. }, identity) = args.cluster.open().await?;
    args.namespaces.take_usual(has_context, &namespace);
    let claims = Claims::of(args.claim.as_deref(), &args.namespaces, &namespace)?;
    if args.watch {
        follow::follow(&claims.api(&client), &claims, &collector, &identity.instance).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let ended: Vec<_> = claims.read(&client).await?.iter().filter_map(Ended::of).collect();
    let (mut spans, mut refused) = (0, Vec::new());
    for part in ended.chunks(CLAIMS) {
        let all = spans::spans(part);
        spans += all.len();
        refused.extend(collector.send(spans::request(all, &identity.instance)).await?);
    }
    say!("{}", collector.sent(ended.len(), spans));
    for Refused { number, message } in &refused {
        remark!("the collector refused {number} spans: {message}");
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED_SOME) })
}

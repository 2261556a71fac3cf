//! The benchmark: one claim on an idle cluster and bursts of claims, compared with the machine's limits without the
//! orchestrator.

#![allow(clippy::too_many_lines, reason = "reports are written from top to bottom")]

mod bursts;
mod peer;
mod pools;
mod report;
mod run;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use cluster::{ClientLimits, Cluster};

/// Measures how long one claim takes on an idle cluster, how fast many are bound and deleted, what they cost, and how
/// fast the machine is without the orchestrator.
#[derive(Parser)]
struct Arguments {
    /// The cluster, with the orchestrator on it and nothing else to do.
    #[arg(long, default_value = "bench")]
    cluster: String,
    /// The client limits that the cluster was started with; they are recorded.
    #[arg(long, value_enum, default_value = "default")]
    limits: ClientLimits,
    /// The project's root, with configmaps/ and examples/.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// The directory for results.json, results.md and the plots.
    #[arg(long, default_value = "build/bench")]
    out: PathBuf,
    /// How often a single claim is measured.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// How many claims with a pod each are created at one time, and as many bare pods and Jobs.
    #[arg(long, default_value_t = 50)]
    each: usize,
    /// How many claims are created at one time in batches, for each burst.
    #[arg(long, value_delimiter = ',', default_value = "200,1000")]
    batches: Vec<usize>,
    /// How many claims get a pooled volume, one at a time and then at one time; 0 leaves this out.
    #[arg(long, default_value_t = 50)]
    pool: usize,
    /// The program of an external provisioner on this machine. It provisions the same bursts on the same cluster.
    #[arg(long, requires = "peer_driver")]
    peer: Option<PathBuf>,
    /// The CSI driver for it, as `testing/csi-driver/build.sh` builds it.
    #[arg(long, requires = "peer")]
    peer_driver: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Arguments { cluster: name, limits, root, out, runs, each, batches, pool, peer, peer_driver } =
        Arguments::parse();
    ensure!(runs > 0, "--runs must be at least 1");
    ensure!(each > 0 && !batches.contains(&0), "--each and --batches must be numbers from 1");
    let cluster = Cluster::attach(&name).await?;
    ensure!(cluster.limits() == limits, "cluster {name} was started with other client limits than --limits says");
    let peer = peer.zip(peer_driver).map(|(provisioner, driver)| peer::Programs { provisioner, driver });
    let plan = run::Plan { name: &name, root: &root, runs, each, batches, pool, peer };
    let results = run::measure(&cluster, &plan).await?;
    report::write(&results, &out)?;
    print!("{}", report::tables(&results));
    Ok(())
}

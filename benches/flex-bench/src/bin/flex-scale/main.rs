//! The benchmark of many claims: what each costs the orchestrator when 10 or 10,000 wait, and what it takes to start
//! where a cluster is full.
//!
//! A real etcd, API server and controller manager with its client limits raised; the node is simulated ([`node`]), so
//! that what is measured is the control plane and the orchestrator, and not how fast a machine starts pods.

mod node;
mod orchestrator;
mod plane;
mod report;
mod scale;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;

/// Measures what many claims cost, on a control plane of its own with a simulated node.
#[derive(Parser)]
struct Arguments {
    /// The orchestrator's program, as it is shipped.
    #[arg(long)]
    orchestrator: PathBuf,
    /// Where scale.json and scale.md go.
    #[arg(long, default_value = "docs/bench")]
    out: PathBuf,
    /// Bursts of so many claims each, one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000])]
    bursts: Vec<usize>,
    /// With how many bound claims and volumes the orchestrator is started; 0 leaves it out.
    #[arg(long, default_value_t = 50_000)]
    standing: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.bursts.iter().all(|size| *size > 0), "--bursts must be numbers from 1");
    ensure!(arguments.orchestrator.exists(), "{} is missing: run `make images`", arguments.orchestrator.display());
    let results = scale::measure(&arguments.orchestrator, &arguments.bursts, arguments.standing).await?;
    report::write(&results, &arguments.out)?;
    print!("{}", report::table(&results));
    Ok(())
}

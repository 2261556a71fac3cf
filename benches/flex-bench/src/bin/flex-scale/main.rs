//! The benchmark of many claims: the cost of each for the orchestrator when 10 or 10,000 wait, and the cost of a start
//! in a full cluster.
//!
//! etcd, API server and controller manager are real, with raised client limits. The node is simulated ([`node`]). So
//! the benchmark measures the control plane and the orchestrator, and not how fast a machine starts pods.

mod drain;
mod node;
mod orchestrator;
mod plane;
mod policies;
mod report;
mod scale;
mod watching;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;

/// Measures the cost of many claims, on a control plane of its own with a simulated node.
#[derive(Parser)]
struct Arguments {
    /// The orchestrator's program, as it is shipped. The tool for people is beside it.
    #[arg(long)]
    orchestrator: PathBuf,
    /// The directory for scale.json, scale.md and scale-*.svg.
    #[arg(long, default_value = "build/bench")]
    out: PathBuf,
    /// The sizes of bursts of claims in batches, one burst after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000])]
    bursts: Vec<usize>,
    /// The sizes of bursts of claims with a pod each. At 20 a second those of 10,000 would take most of half an hour.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000])]
    each: Vec<usize>,
    /// The number of claims in progress for the measurement of memory; 0 leaves it out.
    #[arg(long, default_value_t = scale::IN_FLIGHT)]
    in_flight: usize,
    /// The number of bound claims and volumes among which the orchestrator is started; 0 leaves it out.
    #[arg(long, default_value_t = 50_000)]
    standing: usize,
    /// The number of volumes that are deleted at once while new claims arrive; 0 leaves it out.
    #[arg(long, default_value_t = 10_000)]
    drain: usize,
    /// Measures only bursts of so many claims in batches with the admission policies and without, and prints the
    /// difference.
    #[arg(long, value_name = "CLAIMS", default_value_t = 0)]
    policies: usize,
    /// Measures only bursts of so many claims in batches while ten `status --watch` run and while none does, and prints the
    /// difference, also for one of them.
    #[arg(long, value_name = "CLAIMS", default_value_t = 0)]
    watching: usize,
    /// With --policies: where profiles of the API server go, one for each burst.
    #[arg(long, value_name = "DIRECTORY")]
    profiles: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { orchestrator, out, bursts, each, in_flight, standing, drain, policies, watching, profiles } =
        Arguments::parse();
    let plan = scale::Plan { bursts, each, in_flight, standing, drain };
    ensure!([&plan.bursts, &plan.each].iter().all(|sizes| !sizes.contains(&0)), "sizes of bursts are numbers from 1");
    ensure!(orchestrator.exists(), "{} is missing: run `make images`", orchestrator.display());
    if policies > 0 {
        let comparison = policies::measure(&orchestrator, policies, profiles.as_deref()).await?;
        report::write_comparison(&comparison, &out)?;
        print!("{}", comparison.table());
        return Ok(());
    }
    if watching > 0 {
        print!("{}", watching::measure(&orchestrator, watching).await?.table());
        return Ok(());
    }
    let results = scale::measure(&orchestrator, &plan).await?;
    report::write(&results, &out)?;
    print!("{}", report::tables(&results));
    Ok(())
}

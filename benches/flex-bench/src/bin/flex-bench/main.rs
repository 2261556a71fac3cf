//! The benchmark: one claim on an idle cluster and many at one time, and beside it what the machine can do without us.

mod bursts;
mod report;
mod run;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use cluster::Cluster;

/// Measures how long one claim takes on an idle cluster, how fast many are bound, and what the machine takes for bare pods.
#[derive(Parser)]
struct Arguments {
    /// The cluster, with the orchestrator on it and nothing else to do.
    #[arg(long, default_value = "bench")]
    cluster: String,
    /// The project's root, with configmaps/ and examples/.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Where results.json and results.md go.
    #[arg(long, default_value = "docs/bench")]
    out: PathBuf,
    /// How often each is measured.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// How many claims come at one time in batches, for each burst.
    #[arg(long, value_delimiter = ',', default_value = "200,1000")]
    batches: Vec<usize>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(arguments.batches.iter().all(|size| *size > 0), "--batches must be numbers from 1");
    let cluster = Cluster::attach(&arguments.cluster).await?;
    let results =
        run::measure(&cluster, &arguments.cluster, &arguments.root, arguments.runs, &arguments.batches).await?;
    report::write(&results, &arguments.out)?;
    print!("{}\n{}", report::table(&results), report::bursts(&results));
    Ok(())
}

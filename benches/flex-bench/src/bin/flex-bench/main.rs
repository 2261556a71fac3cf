//! The benchmark: one claim on an idle cluster, and beside it what the machine can do without us.

mod report;
mod run;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use cluster::Cluster;

/// Measures how long one claim takes on an idle cluster, and what the machine takes for bare pods.
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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let cluster = Cluster::attach(&arguments.cluster).await?;
    let results = run::measure(&cluster, &arguments.cluster, &arguments.root, arguments.runs).await?;
    report::write(&results, &arguments.out)?;
    print!("{}", report::table(&results));
    Ok(())
}

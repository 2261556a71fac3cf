//! The demo: on a cluster with the orchestrator, it performs each step of the story and waits for its visible result.

mod story;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use cluster::Cluster;

/// Shows what the orchestrator does, step by step with times, and fails unless every step was observed.
#[derive(Parser)]
struct Arguments {
    /// The cluster, with the orchestrator on it.
    #[arg(long, default_value = "demo")]
    cluster: String,
    /// The project's root, with configmaps/ and examples/.
    #[arg(long, default_value = ".")]
    root: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let began = Instant::now();
    match show(&arguments).await {
        Ok(()) => {
            println!("\nEvery step was observed, in {:.0} s.", began.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("\nFAILED: {error:#}");
            dump(&arguments.cluster).await;
            ExitCode::FAILURE
        }
    }
}

async fn show(arguments: &Arguments) -> Result<()> {
    let cluster = Cluster::attach(&arguments.cluster).await?;
    story::show(&cluster, &arguments.cluster, &arguments.root).await
}

/// The number of lines of each output, from its end.
const MAX_LINES: usize = 80;

/// Prints the first information for a diagnosis.
async fn dump(name: &str) {
    let Ok(cluster) = Cluster::attach(name).await else {
        return println!("cluster {name} cannot be reached");
    };
    for arguments in [
        "get persistentvolumeclaims,persistentvolumes,jobs,pods -A -o wide",
        "get events -A --sort-by=.lastTimestamp",
        "-n flex-provisioner logs deployment/flex-provisioner --tail=80",
    ] {
        println!("\n$ kubectl {arguments}");
        let mut kubectl: Command = cluster.kubectl();
        if let Ok(output) = kubectl.args(arguments.split(' ')).output() {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            // The test cluster has no DNS, which the kubelet reports with every pod.
            let lines: Vec<_> = text.lines().filter(|line| !line.contains("MissingClusterDNS")).collect();
            lines[lines.len().saturating_sub(MAX_LINES)..].iter().for_each(|line| println!("{line}"));
        }
    }
    println!("\nlogs of the cluster: {}", cluster.log_dir().display());
}

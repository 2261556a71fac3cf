//! `flex-cluster`: a real Kubernetes on this machine, for demo and tests.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use cluster::{ClientLimits, Cluster, Health, down, health, tests_name};

/// A real Kubernetes on this machine, for demo and tests.
#[derive(Parser)]
#[command(name = "flex-cluster", version)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The name of the cluster, if there is more than one.
    #[arg(long, global = true, default_value = "demo")]
    name: String,
    /// The cluster that the tests of this checkout share.
    #[arg(long, global = true, conflicts_with = "name")]
    tests: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Start the cluster and wait until it is ready; the last line printed is the path of its kubeconfig.
    Up {
        /// Only the control plane: no pod is ever run.
        #[arg(long)]
        nodes_less: bool,
        /// The number of nodes; each further one has a kubelet, a disk and a network of its own.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with = "nodes_less")]
        nodes: u8,
        /// 1,000 requests a second for controller manager, scheduler and kubelet, instead of their defaults.
        #[arg(long)]
        raised_limits: bool,
        /// The directory of keys, data and logs, which `down` removes. [default: /var/lib/flex-cluster/NAME]
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Stop the cluster and remove everything that it left.
    Down,
    /// Print the running components.
    Status,
    /// Import image archives to all nodes.
    Import {
        /// Archives in docker or OCI format.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Run kubectl as the cluster's administrator.
    Kubectl {
        /// The arguments of kubectl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match act(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("flex-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn act(Arguments { action, name, tests }: Arguments) -> Result<ExitCode> {
    let name = if tests { tests_name() } else { name };
    match action {
        Action::Up { nodes_less, nodes, raised_limits, dir } => {
            let nodes = if nodes_less { 0 } else { nodes };
            up(&name, nodes, raised_limits, dir).await?
        }
        Action::Down => {
            let was_there = down(&name).await?;
            eprintln!("cluster {name} is {}", if was_there { "down" } else { "not up" });
        }
        Action::Status => return status(&name).await,
        Action::Import { archives } => {
            let cluster = Cluster::attach(&name).await?;
            for archive in archives {
                cluster.import_image(&archive).await?;
            }
        }
        Action::Kubectl { arguments } => {
            let cluster = Cluster::attach(&name).await?;
            let mut kubectl: Command = cluster.kubectl();
            return Err(kubectl.args(arguments).exec()).context("run kubectl");
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(name: &str, nodes: u8, raised_limits: bool, dir: Option<PathBuf>) -> Result<()> {
    let mut whole = Cluster::whole(name).nodes(nodes);
    if raised_limits {
        whole = whole.limits(ClientLimits::Raised);
    }
    if let Some(dir) = dir {
        whole = whole.dir(dir);
    }
    let cluster = whole.up().await?;
    eprintln!("cluster {name} is {}; its kubeconfig:", if cluster.was_started_now() { "up" } else { "already up" });
    println!("{}", cluster.kubeconfig().display());
    Ok(())
}

/// Succeeds only if the cluster is up, for scripts.
async fn status(name: &str) -> Result<ExitCode> {
    match health(name).await {
        Health::Up => {
            let cluster = Cluster::attach(name).await?;
            print!("cluster {name} is up\n{}", cluster.describe()?);
            println!("logs: {}\nkubeconfig: {}", cluster.log_dir().display(), cluster.kubeconfig().display());
            Ok(ExitCode::SUCCESS)
        }
        Health::Down => {
            println!("cluster {name} is not up");
            Ok(ExitCode::FAILURE)
        }
        Health::Broken(error) => {
            println!("cluster {name} is broken: {error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

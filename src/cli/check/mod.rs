//! `check`: says whether the cluster is ready for the orchestrator, and whether the installation works.

mod collect;
mod pull;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::out::say;
use super::{Names, Namespaces, Output};
use crate::api::client;
use crate::preflight::{self, Line, Mark};
use crate::text::{line, printable};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    namespaces: Namespaces,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Check the cluster before the installation: with your rights, and without an orchestrator.
    #[arg(long)]
    pre: bool,
    /// Pull each image on a node: starts a pod for each, waits for the image, and deletes the pod.
    #[arg(long)]
    pull: bool,
    /// An image to check beside those of the configs. May be given several times.
    #[arg(long = "image")]
    images: Vec<String>,
    /// The ServiceAccount of the orchestrator, in its namespace.
    #[arg(long, default_value = "flex-provisioner")]
    service_account: String,
    /// The longest time to wait for each image.
    #[arg(long, default_value = "2m", value_parser = crate::config::values::duration)]
    timeout: Duration,
}

pub(super) fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let identity = args.names.identity(&args.namespaces);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lines = runtime.block_on(async {
        let client = match client::connect().await {
            Ok((client, _)) => client,
            Err(error) => return vec![preflight::server(Err(&format!("{error:#}")))],
        };
        collect::lines(&client, &identity, &args).await
    });
    match args.output {
        Output::Json => say!("{}", json!({ "checks": lines })),
        Output::Table => print(&lines),
    }
    Ok(ExitCode::from(match lines.iter().map(|line| line.mark).max() {
        None | Some(Mark::Ok) => 0,
        Some(Mark::Warning) => 1,
        Some(Mark::Failed) => 2,
    }))
}

fn print(lines: &[Line]) {
    for Line { mark, check, found, remedy } in lines {
        say!("{} {check:<14} {}", mark.symbol(), line(found, usize::MAX));
        if let Some(remedy) = remedy {
            say!("  {:<14} what to do: {}", "", printable(remedy, usize::MAX));
        }
    }
    let count = |mark| lines.iter().filter(|line| line.mark == mark).count();
    say!("{} checks: {} warnings, {} failed", lines.len(), count(Mark::Warning), count(Mark::Failed));
}

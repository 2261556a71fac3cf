//! `check`: says whether the cluster is ready for the orchestrator, and whether the installation works.

mod args;
mod collect;
mod dry_run;
mod pull;

use std::process::ExitCode;

use flex_core::preflight::{self, Line, Mark};
use flex_core::text::{line, printable};
use flex_provisioner::api::says;
use serde_json::json;

pub(super) use self::args::CheckArgs;
use crate::out::say;

pub(super) fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lines = runtime.block_on(async {
        let client = match args.cluster.connect().await {
            Ok(connection) => connection.client,
            Err(error) => return Ok(vec![preflight::server(Err(&says::causes(&error)))]),
        };
        if let Err(error) = client.apiserver_version().await {
            return Ok(vec![preflight::server(Err(&says::error(&error)))]);
        }
        let identity = match args.pre {
            true => args.cluster.identity_before_install(),
            false => args.cluster.identity(&client).await?,
        };
        anyhow::Ok(collect::lines(&client, &identity, &args).await)
    })?;
    match args.output.document(|| json!({ "checks": lines }))? {
        Some(document) => say!("{document}"),
        None => print(&lines),
    }
    Ok(ExitCode::from(match lines.iter().map(|line| line.mark).max() {
        None | Some(Mark::Ok) => 0,
        Some(Mark::Warning) if args.tolerate_warnings => 0,
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

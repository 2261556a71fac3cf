//! The cost of people who watch: bursts while `status --watch` runs and while it does not, in turns on one control plane.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use cluster::Component;
use flex_bench::profile::Watched;
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::node::Node;
use crate::plane::{ADMIN, How, OWN, Plane};

/// Pairs of bursts. In every other pair the burst without a watcher comes first.
const PAIRS: usize = 8;
/// A burst before all others, which fills caches.
const WARM_UP: usize = 50;
/// The time for the first lists of a watcher, and for work after the last run has ended.
const REST: Duration = Duration::from_secs(3);

/// The comparison. Each list has a time for each burst: that of the API server for each claim until its volume is deleted,
/// in milliseconds.
#[derive(Debug, Serialize)]
pub struct Watching {
    /// The size of each burst.
    pub claims: usize,
    /// While a person watches.
    pub watched_ms: Vec<f64>,
    /// While nobody does.
    pub alone_ms: Vec<f64>,
}

impl Watching {
    /// Returns the means, with the difference in percent and its standard error, by the pairs of bursts.
    pub fn table(&self) -> String {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let (watched, alone) = (mean(&self.watched_ms), mean(&self.alone_ms));
        let mut text = format!(
            "CPU of the API server for each claim in bursts of {} claims in batches, {PAIRS} of each kind in turns:\n\n\
             | with `status --watch` | without | difference |\n|---|---|---|\n",
            self.claims
        );
        let pairs = self.watched_ms.iter().zip(&self.alone_ms);
        let percents: Vec<f64> = pairs.map(|(with, without)| 100.0 * (with - without) / without).collect();
        let percent = mean(&percents);
        let squares: Vec<f64> = percents.iter().map(|one| (one - percent).powi(2)).collect();
        let error = (squares.iter().sum::<f64>() / (squares.len().max(2) - 1) as f64 / squares.len() as f64).sqrt();
        let _ = writeln!(text, "| {watched:.2} ms | {alone:.2} ms | {percent:+.1} ± {error:.1} % |");
        text
    }
}

/// Measures bursts of so many claims.
pub async fn measure(program: &Path, claims: usize) -> Result<Watching> {
    let plane = Plane::start(false, true).await?;
    let _node = Node::join(&plane.cluster, ADMIN).await?;
    let orchestrator = plane.orchestrator(program).await?;
    let usage = plane.watched(&orchestrator)?;
    burst(&plane, &usage, WARM_UP).await?;
    let (mut watched_ms, mut alone_ms) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for with in [pair % 2 == 0, pair % 2 != 0] {
            let watcher = if with { Some(watch(program, &plane.cluster.kubeconfig())?) } else { None };
            // The first lists of the watcher do not belong to the burst.
            tokio::time::sleep(REST).await;
            let each = burst(&plane, &usage, claims).await?;
            eprintln!("{each:.1} ms for each of {claims} claims {} a watcher", if with { "with" } else { "without" });
            if with { &mut watched_ms } else { &mut alone_ms }.push(each);
            if let Some(mut watcher) = watcher {
                watcher.kill().await.context("the watcher has ended by itself")?;
            }
        }
    }
    orchestrator.stop().await?;
    Ok(Watching { claims, watched_ms, alone_ms })
}

/// Starts a command that watches.
fn watch(program: &Path, kubeconfig: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["status", "--watch", "--namespace", OWN, "--config-namespace", ADMIN]).env("KUBECONFIG", kubeconfig);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().with_context(|| format!("start {}", program.display()))
}

/// Returns the API server's time for each of so many claims, from the claim to the end of its volume, in milliseconds.
async fn burst(plane: &Plane, usage: &Watched, size: usize) -> Result<f64> {
    let before = usage.sample()?;
    plane.burst(How::Batches, size).await?;
    plane.no_runs(size).await?;
    plane.clear(size).await?;
    plane.no_runs(size).await?;
    tokio::time::sleep(REST).await;
    let used = usage.since(&before)?.of(Component::ApiServer.name()).context("the API server is watched")?;
    Ok(used * 1000.0 / size as f64)
}

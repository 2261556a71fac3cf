//! The cost of people who watch: bursts while `status --watch` runs and while it does not, in turns on one control plane.
//!
//! A watcher costs less than the noise of a burst, so several of them watch at once.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cluster::{Component, PortForward};
use flex_bench::paired;
use flex_bench::profile::Watched;
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::node::Node;
use crate::orchestrator::REPLICA;
use crate::plane::{ADMIN, How, OWN, Plane};

/// The number of people who watch at one time.
const WATCHERS: usize = 10;
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
    /// While [`WATCHERS`] people watch.
    pub watched_ms: Vec<f64>,
    /// While nobody does.
    pub alone_ms: Vec<f64>,
    /// The number of connections of watchers to the orchestrator, through the API server.
    pub connections: usize,
}

impl Watching {
    /// Returns the means, with the cost of one watcher in percent and its standard error, by the pairs of bursts.
    pub fn table(&self) -> String {
        let (watched, alone) = (paired::mean(&self.watched_ms), paired::mean(&self.alone_ms));
        let all = paired::percents(&self.watched_ms, &self.alone_ms);
        let each = |value: f64| value / WATCHERS as f64;
        format!(
            "CPU of the API server for each claim in bursts of {} claims in batches, {PAIRS} of each kind in turns:\n\n\
             | with {WATCHERS} `status --watch` | without | all watchers | one watcher |\n|---|---|---|---|\n\
             | {watched:.2} ms | {alone:.2} ms | {:+.1} ± {:.1} % | {:+.2} ± {:.2} % |\n\n{}\n",
            self.claims,
            all.mean,
            all.error,
            each(all.mean),
            each(all.error),
            self.asked()
        )
    }

    /// Says whether watchers asked the orchestrator, or only the API server.
    fn asked(&self) -> String {
        match self.connections {
            0 => "No watcher asked the orchestrator: all asked only the API server.".to_owned(),
            some => format!("The API server forwarded {some} connections of watchers to the orchestrator."),
        }
    }
}

/// Measures bursts of so many claims.
pub async fn measure(program: &Path, claims: usize) -> Result<Watching> {
    let tool = program.with_file_name("flex-provisioner");
    let plane = Plane::start(false, true).await?;
    let _node = Node::join(&plane.cluster, ADMIN).await?;
    let orchestrator = plane.orchestrator(program).await?;
    let forward = PortForward::start(&plane.cluster, OWN, REPLICA, orchestrator.page).await?;
    let usage = plane.watched(&orchestrator)?;
    burst(&plane, &usage, WARM_UP).await?;
    let (mut watched_ms, mut alone_ms) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for watchers in if pair % 2 == 0 { [WATCHERS, 0] } else { [0, WATCHERS] } {
            let started: Result<Vec<_>> = (0..watchers).map(|_| watch(&tool, &plane.cluster.kubeconfig())).collect();
            let mut started = started?;
            // The first lists of the watchers do not belong to the burst.
            tokio::time::sleep(REST).await;
            let each = burst(&plane, &usage, claims).await?;
            eprintln!("{each:.1} ms for each of {claims} claims with {watchers} watchers");
            if watchers > 0 { &mut watched_ms } else { &mut alone_ms }.push(each);
            for watcher in &mut started {
                let ended = watcher.try_wait()?;
                ensure!(ended.is_none(), "a watcher has ended by itself: {ended:?}");
                watcher.kill().await.context("end a watcher")?;
            }
        }
    }
    orchestrator.stop().await?;
    Ok(Watching { claims, watched_ms, alone_ms, connections: forward.connections() })
}

/// Starts a command that watches.
fn watch(program: &Path, kubeconfig: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command
        .args(["status", "--watch", "--flex-namespace", OWN, "--config-namespace", ADMIN])
        .env("KUBECONFIG", kubeconfig);
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

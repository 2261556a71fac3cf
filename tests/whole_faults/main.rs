//! Tests of faults on the whole cluster with real pods. Processes are killed during a burst of claims, and the API
//! server stops. For each kind of failure, a test measures the time from when Kubernetes knows of it until the claim's
//! owner can read it.
//!
//! The tests run one after another, because each disturbs the cluster that all of them use.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

mod burst;
mod kills;
mod processes;
mod telling;

use tokio::sync::{Mutex, MutexGuard};

use orchestrator::deployed;
use orchestrator::ring::Ring;

static CLUSTER: Mutex<()> = Mutex::const_new(());

/// Returns the cluster for one test alone, with a namespace of its own.
async fn alone(namespace: &str) -> (MutexGuard<'static, ()>, Ring) {
    let turn = CLUSTER.lock().await;
    (turn, deployed::users(namespace).await)
}

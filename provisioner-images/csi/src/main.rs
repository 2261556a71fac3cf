//! A provisioner image: volumes of any CSI driver, made by a run for each claim or batch.
//!
//! It does the work of the CSI external provisioner without running all the time. `csi-provisioner --dry-run` makes the
//! volume and prints the PersistentVolume instead of creating it, to try a driver without a cluster.

mod answer;
mod backend;
mod batch;
mod capability;
mod change;
mod cluster;
mod connection;
mod delete;
mod driver;
mod endpoint;
mod parameters;
mod provision;
mod run;
mod secrets;
mod snapshot;
mod template;
mod topology;
mod trouble;

use std::future::Future;
use std::process::ExitCode;
use std::rc::Rc;

use flex_contract::request::{Operation, RunRequest};
use flex_image_kit::Failure;
use flex_image_kit::patience::persistently;
use tokio::signal::unix::Signal;
use tokio::sync::Semaphore;

use cluster::Cluster;
use driver::Driver;
use parameters::Parameters;
use run::{RETRY_TIMEOUT, Run};
use trouble::Trouble;

fn main() -> ExitCode {
    match flex_image_kit::batch::is_one() {
        true => flex_image_kit::batch::run(batch::work),
        false => flex_image_kit::run_or_show("csi-provisioner", work),
    }
}

async fn work(request: RunRequest, dry_run: bool) -> Result<(), Failure> {
    let parameters = Parameters::of(&request.parameters)?;
    let mut told_to_stop = flex_image_kit::terminated()?;
    let driver = reach(&parameters, &mut told_to_stop).await?;
    let run = Run { driver, cluster: Rc::new(Cluster::new(dry_run)), parameters, request };
    let stop = async {
        told_to_stop.recv().await;
    };
    carry_out(&run, &Semaphore::new(1), stop).await
}

/// Returns the driver as soon as it is ready.
///
/// # Errors
/// If it is not ready in time, or before the signal to stop.
async fn reach(parameters: &Parameters, told_to_stop: &mut Signal) -> Result<Driver, Failure> {
    tokio::select! {
        driver = Driver::reach(parameters) => driver,
        _ = told_to_stop.recv() => Err(Failure::retry(format!(
            "no CSI driver was ready at {} before the end of the config's `timeout`, which is shorter than csi-connect-timeout",
            parameters.endpoint
        ))),
    }
}

/// Does the work of a run when it has its turn, and again after each temporary problem. A run that waits for that has
/// no turn.
///
/// # Errors
/// If the work fails, or does not end before the signal to stop.
async fn carry_out(run: &Run, turns: &Semaphore, told_to_stop: impl Future<Output = ()>) -> Result<(), Failure> {
    let elsewhere = run.driver.has_topology() && !run.request.node_name.is_empty();
    let attempt = || async {
        let _turn = turns.acquire().await.map_err(|closed| Failure::retry(closed.to_string()))?;
        operate(run).await
    };
    tokio::select! {
        outcome = persistently(RETRY_TIMEOUT, attempt, |trouble: Trouble| trouble.failure(elsewhere)) => outcome,
        () = told_to_stop => Err(Failure::retry(format!(
            "the CSI driver {} had not ended {} at the end of the config's `timeout`; the next attempt asks for the same again. If \
             that is usual for it, make `timeout` longer",
            run.driver.name,
            run.driver.doing()
        ))),
    }
}

async fn operate(run: &Run) -> run::Outcome<()> {
    match run.request.operation {
        Operation::Provision => run.provision().await,
        Operation::Delete => run.delete().await,
        Operation::Expand => run.expand().await,
        Operation::Modify => run.modify().await,
        Operation::Snapshot => run.snapshot().await,
        Operation::DeleteSnapshot => run.delete_snapshot().await,
        Operation::List => run.list().await,
        Operation::Capacity => run.capacity().await,
    }
}

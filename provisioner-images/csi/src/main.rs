//! A provisioner image: volumes of any CSI driver, made by a run for each claim.
//!
//! It does what the external provisioner of CSI does, without running all the time. `csi-provisioner --dry-run` makes the
//! volume and prints the PersistentVolume instead of creating it, for trying a driver without a cluster.

mod answer;
mod backend;
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

use std::process::ExitCode;

use contract::request::{Operation, Request};
use kit::Failure;
use kit::patience::persistently;
use tokio::signal::unix::{SignalKind, signal};

use cluster::Cluster;
use driver::Driver;
use parameters::Parameters;
use run::{PATIENCE, Run};
use trouble::Trouble;

fn main() -> ExitCode {
    kit::run_or_show("csi-provisioner", work)
}

async fn work(request: Request, dry_run: bool) -> Result<(), Failure> {
    let parameters = Parameters::of(&request.parameters)?;
    // The first process of a container dies of no signal that it does not ask for.
    let mut told_to_stop =
        signal(SignalKind::terminate()).map_err(|error| Failure::retry(format!("cannot start: {error}")))?;
    let run = tokio::select! {
        driver = Driver::reach(&parameters) => {
            Run { driver: driver?, cluster: Cluster::new(dry_run), parameters, request }
        }
        _ = told_to_stop.recv() => {
            return Err(Failure::retry(format!(
                "no CSI driver was ready at {} before the end of the config's `timeout`, which is shorter than csi-connect-timeout",
                parameters.endpoint
            )));
        }
    };
    let elsewhere = run.driver.has_topology() && !run.request.node_name.is_empty();
    tokio::select! {
        outcome = persistently(PATIENCE, || operate(&run), |trouble: Trouble| trouble.failure(elsewhere)) => outcome,
        _ = told_to_stop.recv() => Err(Failure::retry(format!(
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

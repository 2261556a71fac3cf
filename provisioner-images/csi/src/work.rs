//! The work of one run: it reaches the driver, takes its turn, and does the operation.

use std::future::Future;

use flex_contract::operation::Operation;
use flex_image_kit::Failure;
use flex_image_kit::patience::persistently;
use tokio::signal::unix::Signal;
use tokio::sync::Semaphore;

use crate::driver::Driver;
use crate::parameters::Parameters;
use crate::provision::not_refused;
use crate::run::{Outcome, RETRY_TIMEOUT, Run};
use crate::trouble::Trouble;

/// Returns the driver as soon as it is ready.
///
/// # Errors
/// If it is not ready in time, or before the signal to stop.
pub async fn reach(parameters: &Parameters, told_to_stop: &mut Signal) -> Result<Driver, Failure> {
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
pub async fn carry_out(run: &Run, turns: &Semaphore, told_to_stop: impl Future<Output = ()>) -> Result<(), Failure> {
    let elsewhere = run.driver.has_topology() && !run.request.node_name.is_empty();
    let attempt = || async {
        let _turn = turns.acquire().await.map_err(|closed| Failure::retry(closed.to_string()))?;
        operate(run).await
    };
    tokio::select! {
        outcome = persistently(RETRY_TIMEOUT, attempt, |trouble: Trouble| trouble.failure(elsewhere)) => {
            outcome.map_err(|failure| if run.may_be_under_way.get() { not_refused(failure) } else { failure })
        }
        () = told_to_stop => Err(Failure::retry(format!(
            "the CSI driver {} had not ended {} at the end of the config's `timeout`; the next attempt asks for the same again. If \
             that is usual for it, make `timeout` longer",
            run.driver.name,
            run.driver.doing()
        ))),
    }
}

async fn operate(run: &Run) -> Outcome<()> {
    match run.request.operation {
        Operation::Provision => run.provision().await,
        Operation::Delete => run.delete().await,
        Operation::Expand => run.expand().await,
        Operation::Modify => run.modify().await,
        Operation::Snapshot => run.snapshot().await,
        Operation::DeleteSnapshot => run.delete_snapshot().await,
        Operation::MoveIn | Operation::MoveOut => Err(Failure::never(
            "no volume can move in: the driver finds volumes by their handles; take `move-in` out of the `capabilities` \
             of the provisioner config",
        )
        .into()),
        Operation::List => run.list().await,
        Operation::Capacity => run.capacity().await,
    }
}

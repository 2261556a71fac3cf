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
mod work;

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use tokio::sync::Semaphore;

use cluster::Cluster;
use parameters::Parameters;
use run::Run;
use work::{carry_out, reach};

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
    let cluster = Rc::new(Cluster::new(dry_run, run::account(&request)));
    let run = Run { driver, cluster, parameters, request, may_be_under_way: Cell::default() };
    let stop = async {
        told_to_stop.recv().await;
    };
    carry_out(&run, &Semaphore::new(1), stop).await
}

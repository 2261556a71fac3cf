//! A provisioner image: a volume of OpenStack's Cinder for each claim, which the kubelet attaches itself.
//!
//! Cinder may be part of an OpenStack, or stand alone. `cinder-provisioner --dry-run` makes the volume and prints the
//! PersistentVolume instead of creating it, to try a Cinder without a cluster.

mod api;
mod capacity;
mod cloud;
mod cluster;
mod data_source;
mod delete;
mod expand;
mod http;
mod keystone;
mod list;
mod mapper;
mod names;
mod parameters;
mod provision;
mod run;
mod snapshot;
mod step;
mod trouble;

use std::cell::{Cell, RefCell};
use std::process::ExitCode;

use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use flex_image_kit::patience::persistently;

use api::Cinder;
use cluster::Cluster;
use http::Http;
use parameters::Parameters;
use run::{RETRY_TIMEOUT, Run};
use trouble::Trouble;

fn main() -> ExitCode {
    flex_image_kit::run_or_show("cinder-provisioner", work)
}

async fn work(request: RunRequest, dry_run: bool) -> Result<(), Failure> {
    let env = |name: &str| std::env::var(name).ok();
    if request.operation.is_of_volume() && !request.volume_id.is_empty() && !names::is_id(&request.volume_id) {
        return Err(Failure::never("CLAIM_UUID is not the UUID of a claim"));
    }
    let known: Vec<&str> = parameters::NAMES.into_iter().chain(cloud::variables()).collect();
    flex_image_kit::parameters::check(env, &known)?;
    let parameters = Parameters::from_env(env)?;
    let cloud = cloud::read(env, std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
    let http = Http::new(&cloud)?;
    let run = Run {
        cinder: Cinder::new(http, cloud),
        cluster: Cluster::new(dry_run),
        parameters,
        request,
        doing: RefCell::new(String::new()),
        failed: Cell::default(),
    };
    let mut told_to_stop = flex_image_kit::terminated()?;
    tokio::select! {
        outcome = persistently(RETRY_TIMEOUT, || operate(&run), Trouble::failure) => outcome,
        _ = told_to_stop.recv() => {
            let doing = run.doing.borrow().clone();
            let what = if doing.is_empty() { "Cinder did not answer".to_owned() } else { doing };
            Err(Failure::retry(format!(
                "{what} at the end of the config's `timeout`; the next attempt goes on from there. If that is usual for this \
                 storage system, make `timeout` longer"
            )))
        }
    }
}

async fn operate(run: &Run) -> run::Outcome<()> {
    match run.request.operation {
        Operation::Provision => run.provision().await,
        Operation::Delete => run.delete().await,
        Operation::Expand => run.expand().await,
        Operation::Snapshot => run.snapshot().await,
        Operation::DeleteSnapshot => run.delete_snapshot().await,
        Operation::Modify => Err(Failure::never(
            "this image cannot modify volumes; take `modify` out of the `capabilities` of the provisioner config",
        )
        .into()),
        Operation::MoveIn | Operation::MoveOut => Err(Failure::never(
            "no volume can move in: this image finds volumes by their names; take `move-in` out of the `capabilities` of \
             the provisioner config",
        )
        .into()),
        Operation::List => run.list().await,
        Operation::Capacity => run.capacity().await,
    }
}

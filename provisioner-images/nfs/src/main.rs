//! A provisioner image: a directory on an NFS server for each claim.
//!
//! It talks to the server from user space, so that the pod needs neither a mount nor a privilege. `nfs-provisioner
//! --dry-run` makes the directory and prints the PersistentVolume instead of creating it, to try an export without a
//! cluster.

mod attributes;
mod choice;
mod contents;
mod copies;
mod copy;
mod delete;
mod expand;
mod exports;
mod list;
mod moving;
mod nesting;
mod parameters;
mod pattern;
mod placement;
mod provision;
mod record;
mod server;
mod tree;
mod trouble;
mod waiting;

use std::process::ExitCode;

use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;

use parameters::Parameters;

fn main() -> ExitCode {
    flex_image_kit::run_or_show("nfs-provisioner", work)
}

async fn work(request: RunRequest, dry_run: bool) -> Result<(), Failure> {
    let env = |name: &str| std::env::var(name).ok();
    flex_image_kit::parameters::check(env, &parameters::NAMES)?;
    let all = Parameters::from_env(env)?;
    // A delete-snapshot run needs no volume.
    if request.operation.is_of_volume() && request.operation != Operation::DeleteSnapshot {
        record::check_id(&request.volume_id)?;
    }
    match request.operation {
        Operation::Provision => placement::provision(&all, &request, dry_run).await,
        Operation::Expand => exports::expand(&all, &request).await,
        Operation::Delete => exports::delete(&all, &request).await,
        Operation::MoveIn => exports::move_in_or_out(&all, &request, true).await,
        Operation::MoveOut => exports::move_in_or_out(&all, &request, false).await,
        Operation::List => exports::list(&all).await,
        Operation::Capacity => exports::capacity(&all).await,
        Operation::Modify => Err(Failure::never(
            "there is nothing to modify: a directory has no properties; take `modify` out of the `capabilities` of the \
             provisioner config",
        )),
        Operation::Snapshot => exports::snapshot(&all, &request).await,
        Operation::DeleteSnapshot => exports::delete_snapshot(&all, &request).await,
    }
}

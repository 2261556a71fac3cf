//! The flags of `check`.

use std::time::Duration;

use clap::Args;

use crate::cluster::Cluster;
use crate::flags::Output;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(super) cluster: Cluster,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    pub(super) output: Output,
    /// Check the cluster before the installation: with your rights, and without an orchestrator. Sends its pods as dry runs.
    #[arg(long)]
    pub(super) pre: bool,
    /// Pull each image on a node: starts a pod for each, waits for the image, and deletes the pod.
    #[arg(long)]
    pub(super) pull: bool,
    /// An image to check beside those of the configs. May be given several times.
    #[arg(long = "image")]
    pub(super) images: Vec<String>,
    /// The ServiceAccount of the orchestrator, in its namespace.
    #[arg(long, default_value = "flex-provisioner")]
    pub(super) service_account: String,
    /// Exit with 0 after warnings, as `helm test` needs it.
    #[arg(long)]
    pub(super) tolerate_warnings: bool,
    /// The longest time to wait for each image.
    #[arg(long, default_value = "2m", value_parser = flex_core::config::values::duration)]
    pub(super) timeout: Duration,
}

//! The creation of the PersistentVolume: one POST, and the handling of each possible answer.

mod answer;
mod connect;
mod create;
mod same;
mod says;
mod shared;
mod turns;

use k8s_openapi::api::core::v1::PersistentVolume;

pub use connect::connect;
pub use create::{API_RETRY_TIMEOUT, create};
pub use says::says;
pub use shared::Shared;

use crate::Failure;

/// Prints the volume as YAML instead of creating it, to try an image without a cluster.
pub fn print(volume: &PersistentVolume) -> Result<(), Failure> {
    let yaml = flex_manifest::to_yaml(volume).map_err(Failure::never)?;
    print!("{yaml}");
    Ok(())
}

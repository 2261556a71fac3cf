//! The decisions of the orchestrator: pure functions of an observation and the time.
//!
//! This crate has no Kubernetes client, no runtime and no clock among its dependencies, so that no decision can reach
//! the cluster. `claim::decide`, `volume::decide` and `content::decide` choose the next step of a claim, of a
//! volume and of a snapshot's content. The crate `flex-provisioner` makes the observations and takes the steps.

pub mod batch;
pub mod capacity;
pub mod claim;
pub mod config;
pub mod content;
pub mod findings;
pub mod kept_script;
pub mod limits;
pub mod model;
pub mod object;
mod optional_text;
pub mod policies;
pub mod pool;
pub mod preflight;
pub mod rules;
pub mod run;
pub mod snapshot;
pub mod status_reason;
pub mod sync_probe;
pub mod tables;
pub mod text;
pub mod uninstall;
pub mod volume;

//! The orchestrator, which turns a container image that can make a volume into a dynamic provisioner.
//!
//! [`api`] watches and writes, and [`state`] is the cache. `claim::decide` and `volume::decide` of the crate
//! [`flex_core`] choose the next step, without any I/O. [`reconcile`] observes, decides and takes the steps.

pub mod admin;
pub mod age;
pub mod api;
mod class_health;
pub mod cli;
pub mod clock;
mod gauges;
pub mod last_hour;
pub mod log;
pub mod metrics;
mod overview;
pub mod page;
pub mod reconcile;
pub mod state;

pub use flex_core::{
    batch, capacity, claim, config, content, findings, kept_script, limits, model, object, policies, pool, preflight,
    rules, run, snapshot, status_reason, sync_probe, tables, text, uninstall, volume,
};

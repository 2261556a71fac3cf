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

//! The orchestrator, which turns a container image that can make a volume into a dynamic provisioner.
//!
//! [`api`] watches and writes, and [`state`] is the cache. `claim::decide` and `volume::decide` of the crate
//! [`flex_core`] choose the next step, without any I/O. [`reconcile`] observes, decides and takes the steps.

pub mod admin;
pub mod age;
pub mod api;
pub mod class_health;
pub mod clock;
pub mod flags;
mod gauges;
pub mod last_hour;
pub mod log;
pub mod metrics;
pub mod orchestrate;
pub mod overview;
pub mod page;
pub mod reconcile;
pub mod state;

//! The orchestrator, which turns a container image that can make a volume into a dynamic provisioner.
//!
//! [`cluster`] watches and writes. `claim::decide` and `volume::decide` of the crate [`flex_core`] choose the next
//! step, without any I/O. [`controller`] reconciles: it observes, decides and takes the steps.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod controller;
pub mod metrics;

pub use flex_core::{
    attributes, capacity, claim, config, decision, limits, marker, node, object, orphans, policies, pool, run,
    snapshot, text, volume,
};

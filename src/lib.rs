//! The orchestrator: it turns a container image that can make one volume into a dynamic
//! provisioner.
//!
//! `observe → decide → act`: [`cluster`] watches and writes, `claim::decide` and `volume::decide` of the crate [`flex_core`]
//! choose the next step and can do no I/O, [`controller`] joins them.

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

//! The orchestrator: it turns a container image that can make one volume into a dynamic
//! provisioner.
//!
//! `observe → decide → act`: [`api`] watches and writes, [`state`] keeps what it saw, `claim::decide` and `volume::decide` of
//! the crate [`flex_core`] choose the next step and can do no I/O, and [`reconcile`] joins them.

pub mod admin;
pub mod api;
pub mod cli;
pub mod clock;
pub mod metrics;
pub mod reconcile;
pub mod state;

pub use flex_core::{
    attributes, capacity, claim, config, decision, limits, marker, node, object, orphans, policies, pool, run,
    snapshot, text, volume,
};

//! A deterministic simulation of the whole: the orchestrator's own code, unchanged, with a simulated API server,
//! cluster, storage backend, users and admins, and with all their faults.
//!
//! A [`history::History`] is one run from a seed. Chance decides which part moves next and what fails, and the same
//! seed gives the same history to the last step. The orchestrator's reconciles run as in production, but each of their
//! requests waits in [`wire`] until the history lets it pass. So the reconciles of several workers and of two processes
//! interleave request by request. A process dies by dropping all that it has. After each step [`check`] checks the
//! invariants, and at the end the expected state.

#![allow(clippy::too_many_lines, reason = "the simulated parts are tables of what may happen")]

pub mod actors;
pub mod api;
pub mod bugs;
pub mod check;
pub mod coverage;
pub mod history;
pub mod profile;
pub mod pv;
pub mod records;
pub mod replica;
pub mod rng;
pub mod store;
pub mod time;
pub mod trace;
pub mod view;
pub mod wire;
pub mod world;

/// The instance id of the orchestrator.
pub const INSTANCE: &str = "default";
/// Its provisioner name.
pub const PROVISIONER: &str = flex_contract::names::DEFAULT_PROVISIONER;
/// The namespace of configs, Jobs and the orchestrator.
pub const SYSTEM: &str = "flex";
/// A namespace of configs and Jobs that an admin may delete.
pub const VENDOR: &str = "vendor";
/// The namespace of claims.
pub const TEAM: &str = "team";

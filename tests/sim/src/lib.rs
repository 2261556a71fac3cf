//! A deterministic simulation of the whole: the orchestrator's own code, unchanged, with a simulated API
//! server, cluster, storage backend, users and admins, and every fault that they can have.
//!
//! A [`history::History`] is one run from a seed: which part moves next, and what goes wrong, is chance, and the same
//! seed gives the same history to the last step. The orchestrator's passes run as in production, but every
//! request of theirs waits in [`wire`] until the history lets it through, so that passes of several workers
//! and of two processes interleave request by request; a process dies by dropping all that it has.
//! [`check`] says after every step what must never be, and at the end what must be.

pub mod api;
pub mod bugs;
pub mod check;
pub mod coverage;
pub mod history;
pub mod people;
pub mod profile;
pub mod pv;
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
pub const PROVISIONER: &str = contract::names::DEFAULT_PROVISIONER;
/// The namespace of configs, Jobs and the orchestrator.
pub const SYSTEM: &str = "flex";
/// A namespace of configs and Jobs that an admin may delete.
pub const VENDOR: &str = "vendor";
/// The namespace of claims.
pub const TEAM: &str = "team";

//! The orchestrator: it turns a container image that can make one volume into a dynamic
//! provisioner.
//!
//! `observe → decide → act`: [`cluster`] watches and writes, [`claim::decide`] and
//! [`volume::decide`] choose the next step and can do no I/O, [`controller`] joins them.

pub mod admin;
pub mod attributes;
pub mod capacity;
pub mod claim;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod decision;
pub mod limits;
pub mod marker;
pub mod metrics;
pub mod node;
pub mod object;
pub mod orphans;
pub mod policies;
pub mod pool;
pub mod run;
pub mod snapshot;
pub mod text;
pub mod volume;

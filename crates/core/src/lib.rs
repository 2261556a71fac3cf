//! What the orchestrator decides, and from what: pure functions of what was observed and of the time.
//!
//! This crate has no client of Kubernetes, no runtime and no clock among its dependencies, so that no decision can reach the
//! cluster. `claim::decide` and `volume::decide` choose the next step of a claim and of a volume; the crate `flex-provisioner`
//! observes, and carries the steps out.

pub mod attributes;
pub mod capacity;
pub mod claim;
pub mod config;
pub mod decision;
pub mod limits;
pub mod marker;
pub mod model;
pub mod node;
pub mod object;
pub mod orphans;
pub mod policies;
pub mod pool;
pub mod run;
pub mod snapshot;
pub mod text;
pub mod volume;

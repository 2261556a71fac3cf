//! Faults, on a real etcd and API server with the controller manager and a node that the tests play:
//!
//! - [`cuts`]: the orchestrator is killed before and after each of its writes.
//! - [`lost`]: the PV controller learns of volumes late.
//! - [`leader`]: replicas, and what the Lease is good for.
//! - [`rights`]: what the orchestrator may do is what it does.

#[path = "../it/kubelet.rs"]
#[allow(dead_code, reason = "shared with the integration tests")]
mod kubelet;
#[path = "../it/orchestrator.rs"]
#[allow(dead_code, reason = "shared with the integration tests")]
mod orchestrator;
#[path = "../it/wait.rs"]
#[allow(dead_code, reason = "shared with the integration tests")]
mod wait;

mod attributes;
mod backend;
mod node;
mod proxy;
mod scenarios;
mod settled;
mod site;
mod snapshots;
mod world;

mod cuts;
mod leader;
mod lost;
mod rights;

//! Tests of faults, on a real etcd and API server with the controller manager. The tests play the node.
//!
//! - [`cuts`]: the orchestrator is killed before and after each of its writes.
//! - [`lost`]: the PV controller learns of volumes late.
//! - [`leader`]: several replicas compete for the Lease.
//! - [`rights`]: the orchestrator uses all its permissions, and no others.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

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
mod modify;
mod rights;

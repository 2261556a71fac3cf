//! Integration tests on a whole cluster with pods, in which the orchestrator is deployed.
//!
//! Most tests share one cluster. [`helm`] has a cluster of its own, with nothing in it but what the chart brings;
//! [`install`] has one for the installation from a [`registry`], and [`nodes`] one with two nodes. A test waits for what
//! it expects, with a wide time limit. Times are printed, not asserted.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

mod backup;
mod capacity;
mod check;
mod cinder;
mod conformance;
mod csi;
mod helm;
mod install;
mod kinds;
mod mounts;
mod move_in;
mod nodes;
mod pools;
mod readme;
mod recipes;
mod registry;
mod script;
mod shipped;
mod status_page;
mod vendor;

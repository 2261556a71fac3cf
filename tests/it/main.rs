//! Integration tests.
//!
//! - [`orchestrator`], [`kubelet`]: the second ring. A real etcd and API server with the controller manager, the
//!   orchestrator's real binary, and no nodes: the test plays kubelet and image.
//! - [`deployed`], [`whole`], [`whole_kinds`], [`whole_csi`], [`whole_batches`], [`whole_pools`]: the third ring. The
//!   whole cluster with pods, and the orchestrator deployed in it. [`whole_helm`] has a whole cluster of its own, and
//!   nothing in it but what the chart brings.
//! - [`whole_install`], [`registry`]: the installation from a registry, on a whole cluster of its own.
//!
//! A test waits for what it expects, with a wide time limit. Times are printed, not asserted.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

mod deployed;
mod kubelet;
mod orchestrator;
mod processes;
mod registry;
mod wait;

mod attributes;
mod backup;
mod batches;
mod binding;
mod capacity;
mod check;
mod cinder;
mod clones;
mod configs;
mod csi;
mod deletion;
mod expansion;
mod failures;
mod fat;
mod hostile;
mod lifecycle;
mod limits;
mod nodes;
mod orphans;
mod pools;
mod rooms;
mod snapshots;
mod stamps;
mod swaps;
mod theft;
mod uninstall;

mod whole;
mod whole_batches;
mod whole_csi;
mod whole_helm;
mod whole_install;
mod whole_kinds;
mod whole_mounts;
mod whole_pools;

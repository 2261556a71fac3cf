//! The orchestrator in tests: as a process on a control plane, or deployed on a whole cluster.
//!
//! - [`ring`]: the orchestrator's real program on a real etcd and API server with the controller manager, without nodes.
//! - [`deployed`]: the orchestrator on the whole cluster with pods, installed as the README says.
//! - [`kubelet`]: the actions of scheduler, kubelet and image, played by the test. [`processes`]: images as processes.
//! - [`nodes`], [`expand`], [`capacity`], [`pools`], [`batches`], [`snapshots`], [`conditions`]: steps that tests of several subjects share.
//! - [`records`]: the records of runs, which outlive their claims.
//! - [`page`]: the status page, and the way to it through the API server. [`browser`]: a real browser for it.
//! - [`programs`]: the orchestrator and the tool for people. [`commands`]: `check` and `doctor`.
//! - [`cinder`], [`csi_driver`]: storage.
//! - [`wait`]: waiting for expected states. [`dice`]: chance that can be repeated.
//!
//! A step panics when what it expects does not happen, and adds the orchestrator's log.

#![allow(missing_docs, reason = "the steps of tests say by their names what they do")]

pub mod backup;
pub mod batches;
pub mod browser;
pub mod capacity;
pub mod cinder;
pub mod commands;
pub mod conditions;
pub mod csi_driver;
pub mod deployed;
pub mod dice;
pub mod expand;
pub mod former;
pub mod kubelet;
pub mod nodes;
pub mod page;
pub mod pools;
pub mod processes;
pub mod programs;
pub mod records;
pub mod ring;
mod runs;
pub mod snapshots;
pub mod wait;

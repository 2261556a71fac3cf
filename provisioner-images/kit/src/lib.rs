//! The library for provisioner images: the common part of images in Rust and the helper `flex-pv`.
//!
//! - [`run`] reads the request from the environment, runs the image's work, and turns its failure into an exit code and
//!   last words.
//! - [`cluster`] creates the PersistentVolume, and [`affinity`] knows the node of a volume.
//! - [`patience`] asks a backend again after a temporary problem.
//! - [`listing`] prints the volumes of a backend, [`capacity`] reports its free bytes, and [`snapshot_handle`] hands back
//!   the storage's own id of a snapshot.
//! - [`copy`] copies a directory that is in use, and [`remove`] removes one that somebody still holds open. [`mounted`]
//!   does both for a run that sees only its own volume.
//! - [`pattern`] makes the path of a volume from a pattern of the admin, and [`named`] keeps records of such directories.
//! - [`parameters`] refuses names of parameters that the image does not read, and [`ids`] texts that are no ids.
//! - [`batch`] is the frame around the claims of a batch, and [`each`](each::each) runs a program for each of them.
//!   [`handover`] lets these programs share one connection.
//! - [`on_host`] runs a program on a storage host by ssh.
//! - [`flex_pv`] interprets the arguments of the helper.
//! - [`secrets`] keeps the secrets of the run out of its messages.
//!
//! Nothing here makes storage.

pub mod affinity;
mod attributes;
pub mod batch;
mod below;
pub mod capacity;
pub mod cluster;
pub mod copy;
pub mod each;
mod failure;
pub mod flex_pv;
pub mod handover;
pub mod ids;
mod links;
pub mod listing;
pub mod mounted;
pub mod named;
pub mod nested;
pub mod on_host;
pub mod parameters;
pub mod patience;
pub mod pattern;
mod process;
pub mod remove;
mod run;
pub mod secrets;
pub mod snapshot_handle;
pub mod termination_message;

pub use failure::Failure;
pub use process::{block_on, conclude, request, terminated};
pub use run::{run, run_or_show};

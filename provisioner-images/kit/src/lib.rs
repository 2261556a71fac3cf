//! For provisioner images: what an image that is written in Rust shares with the helper `flex-pv`.
//!
//! [`run`] reads the request from the environment, runs the image's work and turns its failure into
//! an exit code and last words; [`cluster`] creates the PersistentVolume; [`affinity`] knows which
//! node a volume stands on; [`patience`] asks a backend again whose trouble may pass; [`listing`] prints what the backend has, [`capacity`] tells how much room it has; [`copy`]
//! copies a directory that is in use, [`remove`] removes one that somebody still holds open; [`mounted`] does both where a run sees its volume alone; [`batch`] is the frame around the claims of a batch, and [`each`](each::each) runs a program for each of them; [`flex_pv`] is what the helper makes of its arguments. [`secrets`] keeps those of
//! the run out of what it says. Nothing here makes storage.

pub mod affinity;
pub mod batch;
mod below;
pub mod capacity;
pub mod cluster;
pub mod copy;
pub mod each;
mod failure;
pub mod flex_pv;
pub mod last_words;
pub mod listing;
pub mod mounted;
pub mod patience;
pub mod remove;
mod run;
pub mod secrets;

pub use failure::Failure;
pub use run::{block_on, conclude, request, run, run_or_show, told_to_stop};

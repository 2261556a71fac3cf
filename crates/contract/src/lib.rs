//! The contract between the orchestrator and the images that make volumes.
//!
//! Everything that both sides must spell the same way stands here, and nothing else: the names of
//! labels, annotations and environment variables ([`names`]), the meaning of exit codes
//! ([`exit`]), the properties of one run ([`request`]), how a parameter's name becomes the name of
//! an environment variable ([`parameter`]), sizes ([`quantity`]), how long texts are kept ([`text`]), what images print ([`listing`],
//! [`capacity`]), several requests for one run ([`batch`]), how a run sees its own storage alone ([`storage`]) and the PersistentVolume that an image creates ([`volume`]). The crate is pure: no clock, no network, no file.

pub mod batch;
pub mod capacity;
pub mod exit;
pub mod listing;
pub mod names;
mod operation;
pub mod parameter;
pub mod quantity;
pub mod reason;
pub mod request;
pub mod storage;
pub mod text;
pub mod variable;
pub mod volume;

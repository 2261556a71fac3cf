//! The contract between the orchestrator and the images that make volumes.
//!
//! The crate holds everything that both sides must spell alike, and nothing else:
//!
//! - [`names`]: labels, annotations, finalizers and paths
//! - [`reason`]: the reasons of events, with their documentation
//! - [`operation`]: the operations of an image
//! - [`request`]: the properties of one run, as environment variables and files
//! - [`variable`]: these variables, with their documentation
//! - [`batch`]: several requests for one run
//! - [`parameter`]: how the name of a parameter becomes an environment variable
//! - [`quantity`]: sizes as Kubernetes writes them
//! - [`exit`]: the meaning of exit codes
//! - [`listing`], [`capacity`], [`snapshot_handle`]: the answers of `list`, `capacity` and `snapshot` runs
//! - [`storage`]: directories of a run that sees only its own storage
//! - [`volume`]: the PersistentVolume that an image creates
//! - [`policy`], [`volume_mode`]: texts of Kubernetes as enums
//! - [`text`]: the limits of texts
//! - [`api`]: what both ask of the API server with each write
//!
//! The crate is pure: it reads no clock, no network and no file.

pub mod api;
pub mod batch;
pub mod capability;
pub mod capacity;
pub mod cause;
pub mod documented;
pub mod exit;
pub mod listing;
pub mod names;
pub mod operation;
pub mod parameter;
pub mod policy;
pub mod quantity;
pub mod reason;
pub mod request;
mod request_env;
mod request_error;
pub mod snapshot_handle;
pub mod storage;
pub mod text;
mod text_enum;
pub mod variable;
pub mod volume;
pub mod volume_mode;

/// The number of the contract, which an image gets as `CONTRACT`. It rises with a change that an image which keeps the
/// contract may have to follow; `docs/contract.md` has the rule.
pub const VERSION: u32 = 1;

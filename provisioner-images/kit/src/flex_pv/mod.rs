//! The pure part of the helper `flex-pv`: from the command line, the environment and a file to the volume.

pub mod args;
mod made;
mod source;

pub use made::{is_asked_for, made};

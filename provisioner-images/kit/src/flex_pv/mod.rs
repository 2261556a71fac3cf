//! The helper `flex-pv` without its edges: from the command line, the environment and a file to the
//! volume. Pure.

pub mod args;
mod made;
mod source;

pub use made::{is_asked_for, made};

//! The termination message, by which an image tells the claim's owner why it failed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use flex_contract::names::{TERMINATION_LOG, TERMINATION_MESSAGE};
use flex_contract::text::cut;

use crate::secrets::Secrets;

/// The variable with another file than [`TERMINATION_LOG`]. It is for pods with their own `terminationMessagePath` and
/// for trying an image without a pod.
pub const PATH_VARIABLE: &str = "FLEX_TERMINATION_LOG";

/// Writes the message for the orchestrator and on standard error, without the secrets of this run. Standard error is
/// for readers of the pod's log.
///
/// A missing file is no error, because there is none outside a pod.
pub fn leave(message: &str) -> io::Result<()> {
    let message = Secrets::of_this_run().mask(message);
    eprintln!("{message}");
    write(&message)
}

/// Writes the message for the orchestrator only, unchanged, in place of an earlier one.
pub fn write(message: &str) -> io::Result<()> {
    let (path, create) = match std::env::var_os(PATH_VARIABLE) {
        Some(path) if !path.is_empty() => (PathBuf::from(path), true),
        _ => (PathBuf::from(TERMINATION_LOG), false),
    };
    match OpenOptions::new().write(true).truncate(true).create(create).open(&path) {
        Ok(mut file) => file.write_all(cut(message, TERMINATION_MESSAGE).as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

//! The termination message: how an image tells the claim's owner why it failed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use contract::names::TERMINATION_LOG;

/// The kubelet keeps that many bytes of a termination message.
pub const LIMIT: usize = 4096;

/// Names another file than [`TERMINATION_LOG`], for pods with their own `terminationMessagePath` and
/// for trying an image without a pod.
pub const PATH_VARIABLE: &str = "FLEX_TERMINATION_LOG";

/// Leaves the message for the orchestrator, and on standard error for whoever reads the pod's log.
///
/// A missing file is no error: outside of a pod there is none.
pub fn leave(message: &str) -> io::Result<()> {
    eprintln!("{message}");
    let (path, create) = match std::env::var_os(PATH_VARIABLE) {
        Some(path) if !path.is_empty() => (PathBuf::from(path), true),
        _ => (PathBuf::from(TERMINATION_LOG), false),
    };
    match OpenOptions::new().write(true).truncate(true).create(create).open(&path) {
        Ok(mut file) => file.write_all(cut(message, LIMIT).as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The beginning of a text in at most `limit` bytes, cut between characters.
pub fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("größer", 3), "gr");
        assert_eq!(cut("größer", 4), "grö");
        assert_eq!(cut("ß", 1), "");
        assert_eq!(cut(&"x".repeat(5000), LIMIT).len(), LIMIT);
    }
}

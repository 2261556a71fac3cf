//! Why an image ends without its work done, and what the orchestrator shall do about it.

use std::fmt;

use contract::exit;

/// A failure with its exit code. The message says what, where and what to do: it becomes an event on
/// the claim, where a user reads it who cannot see the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One of [`contract::exit`].
    pub code: i32,
    /// The last words.
    pub message: String,
}

impl Failure {
    /// Called wrongly; the same call can only fail again.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, message: message.into() }
    }
    /// Never for this request: it asks for what cannot be.
    pub fn never(message: impl Into<String>) -> Self {
        Self { code: exit::DATAERR, message: message.into() }
    }
    /// No room on this node or in this zone.
    pub fn no_room(message: impl Into<String>) -> Self {
        Self { code: exit::UNAVAILABLE, message: message.into() }
    }
    /// Try again later.
    pub fn retry(message: impl Into<String>) -> Self {
        Self { code: exit::TEMPFAIL, message: message.into() }
    }
    /// A permission is missing.
    pub fn permission(message: impl Into<String>) -> Self {
        Self { code: exit::NOPERM, message: message.into() }
    }
    /// The config cannot work as it stands.
    pub fn config(message: impl Into<String>) -> Self {
        Self { code: exit::CONFIG, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

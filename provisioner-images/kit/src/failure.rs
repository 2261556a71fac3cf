//! The reason why an image ends without its work done, and the reaction that it asks of the orchestrator.

use std::fmt;
use std::path::Path;

use flex_contract::exit;

/// A failure with its exit code. The message says what, where and what to do. It becomes an event on the claim, for
/// users who cannot see the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code, one of [`flex_contract::exit`].
    pub code: i32,
    /// The last words.
    pub message: String,
}

impl Failure {
    /// Makes the failure of a wrong call; the same call would fail again.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, message: message.into() }
    }
    /// Makes a failure that lasts for this request: it asks for something impossible.
    pub fn never(message: impl Into<String>) -> Self {
        Self { code: exit::DATAERR, message: message.into() }
    }
    /// Makes the failure of a node or zone without capacity.
    pub fn no_capacity(message: impl Into<String>) -> Self {
        Self { code: exit::UNAVAILABLE, message: message.into() }
    }
    /// Makes a temporary failure: try again later.
    pub fn retry(message: impl Into<String>) -> Self {
        Self { code: exit::TEMPFAIL, message: message.into() }
    }
    /// Makes the failure of a missing permission.
    pub fn permission(message: impl Into<String>) -> Self {
        Self { code: exit::NOPERM, message: message.into() }
    }
    /// Waits for the end of all outcomes. Returns one failure with the messages of all, and the code of the first.
    ///
    /// # Errors
    /// If one of them has failed.
    pub fn all(outcomes: impl Iterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
        let failures: Vec<Failure> = outcomes.filter_map(Result::err).collect();
        let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
        match failures.first() {
            None => Ok(()),
            Some(first) => Err(Failure { code: first.code, message: messages.join("\n") }),
        }
    }
    /// Adds the reason why an unfinished copy could not be removed, if it could not.
    #[must_use]
    pub(crate) fn with_leftover(mut self, copy: &Path, removed: Result<(), Failure>) -> Self {
        if let Err(why) = removed {
            self.message = format!("{}; the unfinished copy {} is left: {why}", self.message, copy.display());
        }
        self
    }
    /// Makes the failure of a config that can never work.
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

//! A failed run for a volume, whatever its operation.

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;

use super::volume_notes::{FailedExpansion, PendingModification};
use crate::run::failure::LastFailure;

/// The last failed run of one operation for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRun<'a> {
    /// The operation.
    pub operation: Operation,
    /// The number of the run.
    pub attempt: u32,
    /// The number of failures so far, by which the delay grows.
    pub failures: u32,
    /// The time of the failure, in seconds since 1970.
    pub at: i64,
    /// The reaction to the failure.
    pub reaction: Reaction,
    /// The reason, in one word.
    pub reason: &'a str,
    /// The message for people.
    pub message: &'a str,
    /// A later run has begun.
    pub is_repeated: bool,
}

impl<'a> From<&'a LastFailure> for FailedRun<'a> {
    /// A run that deletes is repeated, whatever its exit code says.
    fn from(failure: &'a LastFailure) -> Self {
        let LastFailure { operation, attempt, at, reason, message, .. } = failure;
        FailedRun {
            operation: *operation,
            attempt: *attempt,
            failures: *attempt,
            at: *at,
            reaction: Reaction::Retry,
            reason,
            message,
            is_repeated: false,
        }
    }
}

impl<'a> From<&'a FailedExpansion> for FailedRun<'a> {
    fn from(failed: &'a FailedExpansion) -> Self {
        let FailedExpansion { attempt, consecutive_failures, at, reaction, reason, message, .. } = failed;
        FailedRun {
            operation: Operation::Expand,
            attempt: *attempt,
            failures: *consecutive_failures,
            at: *at,
            reaction: *reaction,
            reason,
            message,
            is_repeated: false,
        }
    }
}

impl<'a> From<&'a PendingModification> for FailedRun<'a> {
    fn from(note: &'a PendingModification) -> Self {
        let PendingModification { failed_attempt, consecutive_failures, at, reaction, reason, message, .. } = note;
        FailedRun {
            operation: Operation::Modify,
            attempt: *failed_attempt,
            failures: *consecutive_failures,
            at: *at,
            reaction: *reaction,
            reason,
            message,
            is_repeated: note.begun_attempt > note.failed_attempt,
        }
    }
}

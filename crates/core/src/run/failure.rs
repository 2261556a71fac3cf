//! What is remembered of a failed run.

use contract::exit::Failure;
use contract::request::Operation;

use super::state::Cause;
use crate::config::Recipe;

/// No volume sees so many attempts: a number beyond was written by somebody else, and could not be
/// counted on from.
pub const MOST_ATTEMPTS: u32 = 1_000_000_000;

/// What is remembered of the last failed run, on the claim or the volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LastFailure {
    /// Of which operation.
    pub operation: Operation,
    /// Of which attempt.
    pub attempt: u32,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What follows from it.
    pub kind: Failure,
    /// A short reason.
    pub reason: String,
    /// In words.
    pub message: String,
    /// A delete run could not start for want of its ServiceAccount: later ones go without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_account: bool,
    /// Of a delete run: the recipe that it worked by, as `namespace/name@hash`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// On claims: no container of the attempts up to this one has run, so that they can have left nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_attempts: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl LastFailure {
    /// No further attempt is made soon: it will not work by trying again, or all retries are used up.
    pub fn gives_up(&self, retries: u32) -> bool {
        self.kind == Failure::Never || self.attempt > retries
    }

    /// As it stands on a claim or volume; none if nobody but us could have written it so.
    pub fn read(text: &str) -> Option<Self> {
        let failure: LastFailure = serde_json::from_str(text).ok()?;
        let Cause { reason, message } = Cause::new(&failure.reason, &failure.message);
        (failure.attempt < MOST_ATTEMPTS).then_some(LastFailure { reason, message, ..failure })
    }

    /// A failed delete run, after the last one.
    pub fn of_delete(attempt: u32, at: i64, cause: &Cause, last: Option<&LastFailure>) -> Self {
        LastFailure::of_deletion(Operation::Delete, attempt, at, cause, last)
    }

    /// The same, of a run that worked by this recipe.
    pub fn by(self, recipe: &Recipe) -> Self {
        LastFailure { config: recipe.version(), ..self }
    }

    /// It is a failure by another version of the config than this: the next run need not wait.
    pub fn is_of_other(&self, recipe: &Recipe) -> bool {
        !self.config.is_empty() && self.config != recipe.version()
    }

    /// A failed run of an operation that takes something away, after the last one.
    pub fn of_deletion(operation: Operation, attempt: u32, at: i64, cause: &Cause, last: Option<&LastFailure>) -> Self {
        let account_gone = cause.message.contains("serviceaccount") || cause.message.contains("service account");
        LastFailure {
            operation,
            attempt,
            at,
            kind: Failure::Retry,
            reason: cause.reason.clone(),
            message: cause.message.clone(),
            without_account: account_gone || last.is_some_and(|last| last.without_account),
            config: String::new(),
            idle_attempts: last.map_or(0, |last| last.idle_attempts),
        }
    }
}

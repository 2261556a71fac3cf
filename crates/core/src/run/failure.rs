//! The stored record of a failed run.

use flex_contract::cause;
use flex_contract::exit::{self, Reaction};
use flex_contract::operation::Operation;

use super::backoff::{delay, due_after, shortened};
use super::state::Cause;
use crate::config::Recipe;
use crate::limits;
use crate::text::cut;

/// The largest number of an attempt. Somebody else wrote a larger number, and nothing could be counted on from it.
pub const MAX_ATTEMPTS: u32 = 1_000_000_000;

/// Checks whether a run failed because its ServiceAccount is gone.
pub(super) fn is_account_gone(cause: &Cause) -> bool {
    cause.message.contains("serviceaccount") || cause.message.contains("service account")
}

/// The last failed run of a claim or volume, as an annotation stores it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LastFailure {
    /// The operation of the run.
    pub operation: Operation,
    /// The number of the attempt.
    pub attempt: u32,
    /// The time of the failure, in seconds since 1970.
    pub at: i64,
    /// The reaction to the failure.
    #[serde(rename = "kind")]
    pub reaction: Reaction,
    /// The reason, in one word.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// A delete run could not start without its ServiceAccount. Later delete runs start without an account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_account: bool,
    /// For a delete run: its recipe version, `namespace/name@hash`.
    #[serde(rename = "config", default, skip_serializing_if = "String::is_empty")]
    pub recipe_version: String,
    /// On claims: the number of the last attempt up to which no container has run. These attempts cannot have left
    /// storage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unstarted_attempts: u32,
    /// On claims: the number of the last attempt up to which none can have made a volume. No container has run, or the
    /// image has ended because it found no room. While such a claim waits, it uses no quota.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub empty_attempts: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl LastFailure {
    /// Checks whether the next attempt is far off: the request cannot succeed, or all retries are used.
    pub fn gives_up(&self, retries: u32) -> bool {
        self.reaction == Reaction::Never || self.attempt > retries
    }

    /// Checks whether the image itself has said, by an exit code of the contract, that another try may succeed.
    pub fn was_told_by_image(&self) -> bool {
        let codes = exit::ALL.iter().filter(|known| known.code != exit::OK && known.reaction != Reaction::Never);
        let mut words = codes.map(|known| exit::explain(known.code));
        self.reason == cause::EXIT_CODE && words.any(|words| self.message.starts_with(&words))
    }

    /// Reads a record from its annotation. Returns `None` if the orchestrator cannot have written it.
    pub fn read(text: &str) -> Option<Self> {
        let failure: LastFailure = serde_json::from_str(text).ok()?;
        let Cause { reason, message } = Cause::new(&failure.reason, &failure.message);
        let recipe_version = cut(&failure.recipe_version, 2 * limits::NAME).into_owned();
        (failure.attempt < MAX_ATTEMPTS).then_some(LastFailure { reason, message, recipe_version, ..failure })
    }

    /// Makes the record of a failed run.
    pub fn new(operation: Operation, attempt: u32, at: i64, cause: &Cause, reaction: Reaction) -> Self {
        LastFailure {
            operation,
            attempt,
            at,
            reaction,
            reason: cause.reason.clone(),
            message: cause.message.clone(),
            without_account: false,
            recipe_version: String::new(),
            unstarted_attempts: 0,
            empty_attempts: 0,
        }
    }

    /// Makes the record of a failed delete run, after the last failure of its object.
    pub fn of_delete_run(attempt: u32, at: i64, cause: &Cause, last: Option<&LastFailure>) -> Self {
        LastFailure::of_deleting_run(Operation::Delete, attempt, at, cause, last)
    }

    /// Adds the recipe of the run.
    pub fn with_recipe(self, recipe: &Recipe) -> Self {
        LastFailure { recipe_version: recipe.version(), ..self }
    }

    /// Checks whether another version of the config caused the failure. The next run then need not wait.
    fn is_from_other_config(&self, recipe: &Recipe) -> bool {
        !self.recipe_version.is_empty() && self.recipe_version != recipe.version()
    }

    /// Returns when the next run that deletes is due, in seconds since 1970: now, if another version of the config caused
    /// the failure, and soon, if somebody asks for it.
    pub fn next_deletion(&self, recipe: &Recipe, is_asked: bool, now: i64) -> i64 {
        match self.is_from_other_config(recipe) {
            true => now,
            false => due_after(self.at, shortened(delay(recipe, self.attempt), is_asked), now),
        }
    }

    /// Makes the record of a failed run that deletes, after the last failure of its object.
    pub fn of_deleting_run(
        operation: Operation,
        attempt: u32,
        at: i64,
        cause: &Cause,
        last: Option<&LastFailure>,
    ) -> Self {
        LastFailure {
            without_account: is_account_gone(cause) || last.is_some_and(|last| last.without_account),
            unstarted_attempts: last.map_or(0, |last| last.unstarted_attempts),
            empty_attempts: last.map_or(0, |last| last.empty_attempts),
            ..LastFailure::new(operation, attempt, at, cause, Reaction::Retry)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_image_tells_that_another_try_may_succeed() {
        for (reason, message, expected) in [
            ("ExitCode", "exit code 75: try again later: the array is off", true),
            ("ExitCode", "exit code 75: try again later", true),
            ("ExitCode", "exit code 69: no room here: full", true),
            ("ExitCode", "exit code 65: never for this request: exit code 75: try again later", false),
            ("ExitCode", "exit code 101: panicked", false),
            ("ExitCode", "exit code 1", false),
            ("ExitCode", "container proxy: exit code 75: try again later", false),
            ("OOMKilled", "the image ran out of memory; raise `resources`", false),
            ("DeadlineExceeded", "the image did not end within 300 s (`timeout`)", false),
        ] {
            let cause = Cause::new(reason, message);
            let failure = LastFailure::new(Operation::Provision, 1, 1, &cause, Reaction::Retry);
            assert_eq!(failure.was_told_by_image(), expected, "{reason}: {message}");
        }
    }
}

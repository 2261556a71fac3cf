//! The pace of attempts and delete runs.

use std::time::Duration;

use crate::config::Recipe;

/// The pace for what will hardly ever work.
pub const SLOW: Duration = Duration::from_secs(30 * 60);

/// Seconds between a failed run and the next: doubled with each attempt, and slow after all retries.
pub fn pause(recipe: &Recipe, attempt: u32) -> i64 {
    if attempt > recipe.retries {
        return seconds(SLOW.max(recipe.backoff.max));
    }
    let doubled = recipe.backoff.initial.saturating_mul(1 << attempt.saturating_sub(1).min(20));
    seconds(doubled.min(recipe.backoff.max))
}

/// Whole seconds.
pub fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4)
}

/// A time that a node's clock says, which may be wrong or missing, as one from which to count a pause.
pub fn just_now(at: i64, now: i64) -> i64 {
    at.clamp(now - 60, now)
}

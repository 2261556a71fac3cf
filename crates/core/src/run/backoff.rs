//! The pace of attempts and delete runs.

use std::time::Duration;

use contract::names::reason;

use crate::config::Recipe;
use crate::decision::Decision;

/// The pace for what will hardly ever work.
pub const SLOW: Duration = Duration::from_secs(30 * 60);

/// Who stands in line is woken when its turn has come; this is for the case that others before it have left.
const ROOM: Duration = Duration::from_secs(30);
/// Who has waited for a place for so long is told.
const TOLD: Duration = Duration::from_secs(30);

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

/// Said of whoever waits for a place for a run.
pub const ALL_TAKEN: &str = "all slots for runs of its class are taken (`max-in-flight`, `max-in-flight-per-namespace` and `max-in-flight-per-node` of the provisioner config); its turn comes when another run ends";

/// What stands in line for a place for a run waits by this step. In a burst each waits for a moment; that is nothing to tell.
pub fn stand_in_line<S>(step: S, created: i64, now: i64) -> Decision<S> {
    let wait = Decision::from(step);
    let told = created + seconds(TOLD) + 1;
    match told > now {
        true => wait.until(told.min(now + seconds(ROOM))),
        false => wait.until(now + seconds(ROOM)).saying(false, reason::LIMIT_REACHED, ALL_TAKEN),
    }
}

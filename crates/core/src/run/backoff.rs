//! The delays after failed runs.

use std::time::Duration;

use flex_contract::exit::Reaction;

use crate::config::Recipe;

/// The delay after all retries, and after a failure that a retry would repeat.
pub const LONG_DELAY: Duration = Duration::from_secs(30 * 60);

/// The longest delay after a failure if somebody asks for the next try. It is not zero: everybody who may change a claim
/// may ask, and may ask again and again.
pub const ASKED_DELAY: Duration = Duration::from_secs(10);

/// Shortens a delay, in seconds, if somebody asks for the next try.
pub fn shortened(delay: i64, is_asked: bool) -> i64 {
    if is_asked { delay.min(seconds(ASKED_DELAY)) } else { delay }
}

/// Returns the delay after a failed run, in seconds. It doubles with each attempt, and is long after all retries.
pub fn delay(recipe: &Recipe, attempt: u32) -> i64 {
    if attempt > recipe.retries {
        return seconds(LONG_DELAY.max(recipe.backoff.max));
    }
    seconds(doubled(recipe.backoff.initial, attempt.saturating_sub(1), recipe.backoff.max))
}

/// Doubles a delay this many times, up to the maximum.
pub fn doubled(initial: Duration, times: u32, max: Duration) -> Duration {
    initial.saturating_mul(1 << times.min(20)).min(max)
}

/// Returns the delay after a failure with this reaction, in seconds. A failure that a retry would repeat has the longest delay.
pub fn delay_after(reaction: Reaction, recipe: &Recipe, attempt: u32) -> i64 {
    match reaction {
        Reaction::Never => seconds(LONG_DELAY),
        Reaction::Retry | Reaction::NoCapacity => delay(recipe, attempt),
    }
}

/// Says when a run is repeated whose failure a retry would repeat: after a change that may help, or after
/// [`LONG_DELAY`].
pub fn not_before(change: &str) -> String {
    let minutes = LONG_DELAY.as_secs() / 60;
    format!("a retry would fail, too; the next try is when {change}, at the latest in {minutes} min")
}

/// Returns the whole seconds of a duration.
pub fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4)
}

/// The largest difference between the clocks of two replicas that is believed.
const CLOCK_SKEW: i64 = 60;

/// Returns the time when a delay is over that began at a recorded time. All times are in seconds since 1970.
///
/// A time that is far in the future is none that a clock has shown: the clock of an earlier leader was wrong, or somebody
/// else wrote the record. Such a record delays nothing.
pub fn due_after(recorded: i64, delay: i64, now: i64) -> i64 {
    if recorded > now.saturating_add(CLOCK_SKEW) { now } else { recorded.saturating_add(delay) }
}

/// Returns the time of the next try after a failure at `at`. `failures` is the number of failures so far, and `is_asked` says
/// whether somebody asks for an early try. All times are in seconds since 1970.
pub fn next_try_at(is_asked: bool, reaction: Reaction, at: i64, failures: u32, recipe: &Recipe, now: i64) -> i64 {
    due_after(at, shortened(delay_after(reaction, recipe, failures), is_asked), now)
}

/// Limits a time of a node's clock, so that a delay can be counted from it. The clock may be wrong, or the time
/// missing.
pub fn clamp_to_recent(at: i64, now: i64) -> i64 {
    at.clamp(now - 60, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_gets_the_next_try_soon_and_not_at_once() {
        let delays = [0, 2, 300, i64::MAX].map(|delay| (shortened(delay, true), shortened(delay, false)));
        assert_eq!(delays, [(0, 0), (2, 2), (10, 300), (10, i64::MAX)]);
    }

    #[test]
    fn a_delay_doubles_up_to_its_maximum() {
        let (initial, max) = (Duration::from_secs(10), Duration::from_secs(300));
        let delays = [0, 1, 4, 5, u32::MAX].map(|times| doubled(initial, times, max).as_secs());
        assert_eq!(delays, [10, 20, 160, 300, 300]);
        assert_eq!(doubled(Duration::MAX, 3, max), max);
    }

    #[test]
    fn a_time_that_no_clock_has_shown_delays_nothing() {
        let now = 1_000_000;
        for (recorded, due) in [
            (now, now + 30),
            (now - 20, now + 10),
            (now + CLOCK_SKEW, now + CLOCK_SKEW + 30),
            (now + CLOCK_SKEW + 1, now),
            (i64::MAX, now),
            (i64::MIN, i64::MIN + 30),
        ] {
            assert_eq!(due_after(recorded, 30, now), due, "{recorded}");
        }
    }
}

//! Attempts that cannot have left storage: no container has run. Others have ended without a volume: there was no room.

use flex_contract::cause;
use flex_contract::operation::Operation;

use super::observed::Observed;
use crate::run::failure::LastFailure;
use crate::run::state::Cause;

/// Counts the attempts, from the first on, of which no container has run; `never_started` says so of the stamped attempt.
pub(super) fn unstarted_attempts(o: &Observed<'_>, never_started: bool) -> u32 {
    count_on(o, |last| last.unstarted_attempts, never_started)
}

/// Counts the attempts, from the first on, that cannot have made a volume; `is_empty` says so of the stamped attempt.
pub(super) fn empty_attempts(o: &Observed<'_>, is_empty: bool) -> u32 {
    count_on(o, |last| last.empty_attempts, is_empty)
}

/// Counts the stamped attempt, if this holds for it and for all before it.
fn count_on(o: &Observed<'_>, count: impl Fn(&LastFailure) -> u32, holds: bool) -> u32 {
    let attempt = o.attempt();
    let before = o.claim.last_failure.as_ref().map_or(0, count);
    if holds && before.saturating_add(1) >= attempt { before.max(attempt) } else { before }
}

/// Returns the failure of the stamped attempt with the note that none of its containers has run. Returns `None` if the
/// note is not new.
pub(super) fn failure_with_new_count(o: &Observed<'_>) -> Option<LastFailure> {
    let last = o.claim.last_failure.as_ref()?;
    let known = unstarted_attempts(o, o.runs.never_started);
    let empty_attempts = empty_attempts(o, o.runs.never_started);
    (known > last.unstarted_attempts).then(|| LastFailure { unstarted_attempts: known, empty_attempts, ..last.clone() })
}

/// Returns the failure that records that no container of a deleted claim's attempt has run. It is recorded before the Job
/// is deleted, because the proof vanishes with the Job.
pub(super) fn failure_of_never_started(o: &Observed<'_>, now: i64) -> Option<LastFailure> {
    let stamp = o.claim.own_stamp()?;
    if o.claim.last_failure.is_some() {
        return failure_with_new_count(o);
    }
    let known = unstarted_attempts(o, o.runs.never_started);
    let cause = Cause::new(cause::NEVER_STARTED, "the claim was deleted before a container of the attempt had started");
    let failure = LastFailure::of_delete_run(stamp.attempt, now, &cause, None);
    (known > 0).then_some(LastFailure { operation: Operation::Provision, unstarted_attempts: known, ..failure })
}

/// Checks that no container of any attempt has run, nor of one that a record names.
pub(super) fn no_attempt_has_started(o: &Observed<'_>) -> bool {
    let stamp = o.claim.own_stamp();
    let known = o.claim.last_failure.as_ref().map_or(0, |failure| failure.unstarted_attempts);
    stamp.is_some_and(|stamp| known >= stamp.attempt.max(o.runs.recorded.last))
}

//! Attempts of which no container has run: they can have left nothing.

use contract::request::Operation;

use super::Observed;
use crate::claim::LastFailure;
use crate::run::state::Cause;

/// So many attempts, from the first on, are known to have run no container; `idle` says so of the stamped one.
pub(super) fn idle_attempts(o: &Observed<'_>, idle: bool) -> u32 {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let before = o.claim.last_failure.as_ref().map_or(0, |failure| failure.idle_attempts);
    let joins = before.saturating_add(1) >= attempt;
    // Who removes a Job removes what is known of its pods.
    if idle && joins && o.removed.is_none() { before.max(attempt) } else { before }
}

/// The failure of the stamped attempt, with the note that none of its containers has run, if that is new.
pub(super) fn noted_idle(o: &Observed<'_>) -> Option<LastFailure> {
    let last = o.claim.last_failure.as_ref()?;
    let known = idle_attempts(o, o.never_ran);
    (known > last.idle_attempts).then(|| LastFailure { idle_attempts: known, ..last.clone() })
}

/// Row 7a. Noted before the Job is gone, and with it the proof.
pub(super) fn unnoted(o: &Observed<'_>, now: i64) -> Option<LastFailure> {
    let stamp = o.claim.own_stamp()?;
    if o.claim.last_failure.is_some() {
        return noted_idle(o);
    }
    let known = idle_attempts(o, o.never_ran);
    let cause = Cause::new("NeverStarted", "the claim was deleted before a container of the attempt had started");
    let failure = LastFailure::of_delete(stamp.attempt, now, &cause, None);
    (known > 0).then_some(LastFailure { operation: Operation::Provision, idle_attempts: known, ..failure })
}

/// Row 15a.
pub(super) fn has_left_nothing(o: &Observed<'_>) -> bool {
    let stamp = o.claim.own_stamp();
    let known = o.claim.last_failure.as_ref().map_or(0, |failure| failure.idle_attempts);
    stamp.is_some_and(|stamp| known >= stamp.attempt)
}

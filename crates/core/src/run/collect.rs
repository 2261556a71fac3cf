//! Decides when the Job of a batch is created: a pure function of its members.
//!
//! The first row that holds applies. A member that was stamped for the batch *arrives* when its claim is ready for the
//! run.
//!
//! | # | the members that were stamped for the batch | step |
//! |---|---|---|
//! | 1 | none is left, or none has arrived within the time of row 4 | [`Step::Forget`] |
//! | 2 | as many have arrived as fit, by number or bytes | [`Step::Create`] |
//! | 3 | all have arrived, and no other run of the class and node is in progress, or the window is over | [`Step::Create`] |
//! | 4 | some have not arrived [`STAMP_TIMEOUT`] after the window | [`Step::Create`], with those that have arrived |
//! | 5 | in all other cases | [`Step::Wait`] for these times; after the window no further member joins |

use std::time::Duration;

/// The time after its window for which a batch waits for members whose stamps are being written. Later members are
/// stamped again, so that a shorter time makes a busy API server busier.
pub const STAMP_TIMEOUT: Duration = Duration::from_secs(4);

/// The observation on which the decision rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The number of members that are stamped and have not arrived.
    pub awaited: usize,
    /// The number of members that have arrived.
    pub entries: usize,
    /// The batch is full.
    pub full: bool,
    /// Another run of its class and node is in progress.
    pub others: bool,
    /// The time since the first member was stamped.
    pub passed: Duration,
    /// The time for which others may join.
    pub window: Duration,
}

/// The next step for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits until a member arrives, or for this time.
    Wait(Duration),
    /// Creates the Job with the members that have arrived.
    Create,
    /// Forgets the batch, because nothing is left to wait for.
    Forget,
}

/// Decides the next step.
pub fn decide(o: &Observed) -> Step {
    let (closed, late) = (o.passed >= o.window, o.passed >= o.window + STAMP_TIMEOUT);
    match (o.awaited, o.entries) {
        (0, 0) => Step::Forget,
        (_, 0) if late => Step::Forget,
        (_, entries) if o.full && entries > 0 => Step::Create,
        (0, _) if closed || !o.others => Step::Create,
        (0, _) => Step::Wait(o.window - o.passed),
        _ if late => Step::Create,
        _ => Step::Wait(o.window + STAMP_TIMEOUT - o.passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(50);

    fn decided(awaited: usize, entries: usize, others: bool, passed: u64) -> Step {
        let passed = Duration::from_millis(passed);
        decide(&Observed { awaited, entries, full: false, others, passed, window: WINDOW })
    }

    #[test]
    fn an_entry_does_not_wait_when_no_run_is_in_progress() {
        assert_eq!(decided(0, 1, false, 0), Step::Create);
        assert_eq!(decided(0, 1, true, 0), Step::Wait(WINDOW), "others may join during a run");
        assert_eq!(decided(0, 1, true, 49), Step::Wait(Duration::from_millis(1)));
        assert_eq!(decided(0, 1, true, 50), Step::Create);
    }

    #[test]
    fn a_batch_waits_for_members_with_unconfirmed_stamps() {
        for others in [false, true] {
            assert_eq!(decided(1, 3, others, 50), Step::Wait(STAMP_TIMEOUT));
            assert_eq!(decided(1, 3, others, 4049), Step::Wait(Duration::from_millis(1)));
            assert_eq!(decided(1, 3, others, 4050), Step::Create, "not forever");
            assert_eq!(decided(1, 0, others, 4050), Step::Forget, "no member has joined");
        }
        assert_eq!(decided(1, 0, false, 0), Step::Wait(WINDOW + STAMP_TIMEOUT));
        assert_eq!(decided(0, 0, false, 0), Step::Forget);
    }

    #[test]
    fn a_full_batch_begins_at_once() {
        let full =
            Observed { awaited: 7, entries: 2, full: true, others: true, passed: Duration::ZERO, window: WINDOW };
        assert_eq!(decide(&full), Step::Create);
        assert_eq!(decide(&Observed { awaited: 7, entries: 0, ..full.clone() }), Step::Wait(WINDOW + STAMP_TIMEOUT));
    }

    #[test]
    fn every_wait_ends() {
        for (awaited, entries, full, others) in (0..16).map(|n: usize| (n & 1, (n >> 1) & 1, n & 4 != 0, n & 8 != 0)) {
            let mut o = Observed { awaited, entries, full, others, passed: Duration::ZERO, window: WINDOW };
            while let Step::Wait(remaining) = decide(&o) {
                assert!(!remaining.is_zero() && o.passed <= WINDOW + STAMP_TIMEOUT, "{o:?}");
                o.passed += remaining;
            }
        }
    }
}

//! Decides when the Job of a batch is created: a pure function of its members.
//!
//! The [rules](Rule) say when it takes which step. A member that was stamped for the batch *arrives* when its claim is
//! ready for the run.

use std::time::Duration;

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

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

/// The rules of a batch, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// No member is left, or none has arrived within 4 s after the window. Forgets the batch.
    NobodyLeft,
    /// As many members have arrived as fit, by number or bytes. Creates the Job.
    BatchFull,
    /// All members have arrived, and the window is over, or no other run is in progress there. Creates the Job.
    AllArrived,
    /// All members have arrived, and others may join. Waits until the end of the window.
    WindowOpen,
    /// Some members have not arrived within 4 s after the window. Creates the Job with those that have arrived.
    MembersMissing,
    /// Some members have not arrived. Waits for them.
    MembersAwaited,
}

rules::table!(Rule, Step, "batch");

/// A decision about a batch.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step.
pub fn decide(o: &Observed) -> Decision {
    let (closed, late) = (o.passed >= o.window, o.passed >= o.window + STAMP_TIMEOUT);
    match (o.awaited, o.entries) {
        (0, 0) => Rule::NobodyLeft.step(Step::Forget),
        (_, 0) if late => Rule::NobodyLeft.step(Step::Forget),
        (_, entries) if o.full && entries > 0 => Rule::BatchFull.step(Step::Create),
        (0, _) if closed || !o.others => Rule::AllArrived.step(Step::Create),
        (0, _) => Rule::WindowOpen.step(Step::Wait(o.window - o.passed)),
        _ if late => Rule::MembersMissing.step(Step::Create),
        _ => Rule::MembersAwaited.step(Step::Wait(o.window + STAMP_TIMEOUT - o.passed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(50);

    fn decided(awaited: usize, entries: usize, others: bool, passed: u64) -> Decision {
        let passed = Duration::from_millis(passed);
        decide(&Observed { awaited, entries, full: false, others, passed, window: WINDOW })
    }

    #[test]
    fn an_entry_does_not_wait_when_no_run_is_in_progress() {
        let open = |remaining| Rule::WindowOpen.step(Step::Wait(remaining));
        assert_eq!(decided(0, 1, false, 0), Rule::AllArrived.step(Step::Create));
        assert_eq!(decided(0, 1, true, 0), open(WINDOW), "others may join during a run");
        assert_eq!(decided(0, 1, true, 49), open(Duration::from_millis(1)));
        assert_eq!(decided(0, 1, true, 50), Rule::AllArrived.step(Step::Create));
    }

    #[test]
    fn a_batch_waits_for_members_with_unconfirmed_stamps() {
        let awaits = |remaining| Rule::MembersAwaited.step(Step::Wait(remaining));
        for others in [false, true] {
            assert_eq!(decided(1, 3, others, 50), awaits(STAMP_TIMEOUT));
            assert_eq!(decided(1, 3, others, 4049), awaits(Duration::from_millis(1)));
            assert_eq!(decided(1, 3, others, 4050), Rule::MembersMissing.step(Step::Create), "not forever");
            assert_eq!(decided(1, 0, others, 4050), Rule::NobodyLeft.step(Step::Forget), "no member has joined");
        }
        assert_eq!(decided(1, 0, false, 0), awaits(WINDOW + STAMP_TIMEOUT));
        assert_eq!(decided(0, 0, false, 0), Rule::NobodyLeft.step(Step::Forget));
    }

    #[test]
    fn a_full_batch_begins_at_once() {
        let full =
            Observed { awaited: 7, entries: 2, full: true, others: true, passed: Duration::ZERO, window: WINDOW };
        assert_eq!(decide(&full), Rule::BatchFull.step(Step::Create));
        let nobody = decide(&Observed { awaited: 7, entries: 0, ..full });
        assert_eq!(nobody, Rule::MembersAwaited.step(Step::Wait(WINDOW + STAMP_TIMEOUT)));
    }

    #[test]
    fn the_documentation_says_the_time() {
        let says = format!("within {} s after the window", STAMP_TIMEOUT.as_secs());
        for rule in [Rule::NobodyLeft, Rule::MembersMissing] {
            assert!(rule.documentation().contains(&says), "{}", rule.documentation());
        }
    }

    #[test]
    fn every_wait_ends() {
        for (awaited, entries, full, others) in (0..16).map(|n: usize| (n & 1, (n >> 1) & 1, n & 4 != 0, n & 8 != 0)) {
            let mut o = Observed { awaited, entries, full, others, passed: Duration::ZERO, window: WINDOW };
            while let Step::Wait(remaining) = decide(&o).step {
                assert!(!remaining.is_zero() && o.passed <= WINDOW + STAMP_TIMEOUT, "{o:?}");
                o.passed += remaining;
            }
        }
    }
}

//! Decides when the Job of a batch is created: a pure function of its members.
//!
//! The [rules](Rule) say when it takes which step. A member that was stamped for the batch *arrives* when its claim is
//! ready for the run.

use std::time::Duration;

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

/// The time for which a batch waits for members whose stamps are being written. The time counts after the last member
/// has joined, and after the window. Later members are stamped again, so that a shorter time makes a busy API server
/// busier.
pub const STAMP_TIMEOUT: Duration = Duration::from_secs(4);
/// The number of other runs beside which a batch that is not full waits longer than its window. A node that is busy with
/// pods starts a further pod late, and delays all pods.
const MANY_RUNS: usize = 2;
/// The time after its window for which a batch waits beside many runs. One of them may hang.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks whether a batch takes a further member, this time after its first one was stamped.
pub fn is_open(passed: Duration, window: Duration, runs: usize) -> bool {
    passed < window || waits_for_runs(passed, window, runs)
}

fn waits_for_runs(passed: Duration, window: Duration, runs: usize) -> bool {
    runs >= MANY_RUNS && passed < window + BUSY_TIMEOUT
}

/// The observation on which the decision rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The number of members that are stamped and have not arrived.
    pub awaited: usize,
    /// The number of members that have arrived.
    pub entries: usize,
    /// The batch is full.
    pub full: bool,
    /// Another run of its class and node is in progress, or another batch for such runs is open.
    pub others: bool,
    /// The number of other runs of its class and node in progress. The members of a batch are one.
    pub runs: usize,
    /// The time since the first member was stamped.
    pub passed: Duration,
    /// The time since the last member has joined.
    pub joined: Duration,
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
    /// No member is left, or none has arrived within 4 s. Forgets the batch.
    NobodyLeft,
    /// As many members have arrived as fit, by number or bytes. Creates the Job.
    BatchFull,
    /// All members have arrived, and others may join. Waits until the end of the window.
    WindowOpen,
    /// All members have arrived, and the batch is not full, but two other runs are in progress there. Waits until one of
    /// them ends, or for 3 s after the window.
    RunsInProgress,
    /// All members have arrived. Creates the Job.
    AllArrived,
    /// Some members have not arrived within 4 s. Creates the Job with those that have arrived.
    MembersMissing,
    /// Some members have not arrived. Waits for them.
    MembersAwaited,
}

rules::table!(Rule, Step, "batch");

/// A decision about a batch.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step.
pub fn decide(o: &Observed) -> Decision {
    let end_of_stamps = (o.window + STAMP_TIMEOUT).saturating_sub(o.passed).max(STAMP_TIMEOUT.saturating_sub(o.joined));
    let late = end_of_stamps.is_zero();
    match (o.awaited, o.entries) {
        (0, 0) => Rule::NobodyLeft.step(Step::Forget),
        (_, 0) if late => Rule::NobodyLeft.step(Step::Forget),
        (_, entries) if o.full && entries > 0 => Rule::BatchFull.step(Step::Create),
        (0, _) if o.others && o.passed < o.window => Rule::WindowOpen.step(Step::Wait(o.window - o.passed)),
        (0, _) if waits_for_runs(o.passed, o.window, o.runs) => {
            Rule::RunsInProgress.step(Step::Wait(o.window + BUSY_TIMEOUT - o.passed))
        }
        (0, _) => Rule::AllArrived.step(Step::Create),
        _ if late => Rule::MembersMissing.step(Step::Create),
        _ => Rule::MembersAwaited.step(Step::Wait(end_of_stamps)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(50);

    fn beginning() -> Observed {
        let (passed, joined) = (Duration::ZERO, Duration::ZERO);
        Observed { awaited: 0, entries: 0, full: false, others: false, runs: 0, passed, joined, window: WINDOW }
    }

    #[test]
    fn a_batch_that_is_not_full_does_not_begin_beside_many_runs() {
        let busy = |passed| {
            let passed = Duration::from_millis(passed);
            Observed { entries: 3, others: true, runs: MANY_RUNS, passed, joined: passed, ..beginning() }
        };
        assert_eq!(decide(&busy(50)), Rule::RunsInProgress.step(Step::Wait(BUSY_TIMEOUT)));
        assert_eq!(decide(&busy(3050)), Rule::AllArrived.step(Step::Create), "a run may hang");
        assert_eq!(decide(&Observed { runs: MANY_RUNS - 1, ..busy(50) }), Rule::AllArrived.step(Step::Create));
        assert_eq!(decide(&Observed { full: true, ..busy(50) }), Rule::BatchFull.step(Step::Create));
        for passed in [0, 49, 50, 3049, 3050] {
            let o = busy(passed);
            let begins = decide(&o).step == Step::Create;
            assert_eq!(is_open(o.passed, o.window, o.runs), !begins, "a batch that waits takes members");
        }
        let late_member = Observed { awaited: 1, joined: Duration::from_secs(1), ..busy(6000) };
        assert_eq!(decide(&late_member), Rule::MembersAwaited.step(Step::Wait(Duration::from_secs(3))));
    }

    fn decided(awaited: usize, entries: usize, others: bool, passed: u64) -> Decision {
        let passed = Duration::from_millis(passed);
        decide(&Observed { awaited, entries, full: false, others, runs: 0, passed, joined: passed, window: WINDOW })
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
        let full = Observed { awaited: 7, entries: 2, full: true, others: true, runs: 9, ..beginning() };
        assert_eq!(decide(&full), Rule::BatchFull.step(Step::Create));
        let nobody = decide(&Observed { awaited: 7, entries: 0, ..full });
        assert_eq!(nobody, Rule::MembersAwaited.step(Step::Wait(WINDOW + STAMP_TIMEOUT)));
    }

    #[test]
    fn the_documentation_says_the_time() {
        let within = format!("within {} s", STAMP_TIMEOUT.as_secs());
        let busy = format!("for {} s after the window", BUSY_TIMEOUT.as_secs());
        let rules = [(Rule::NobodyLeft, &within), (Rule::MembersMissing, &within), (Rule::RunsInProgress, &busy)];
        for (rule, says) in rules {
            assert!(rule.documentation().contains(says), "{}", rule.documentation());
        }
    }

    #[test]
    fn every_wait_ends() {
        for n in 0..32_usize {
            let (awaited, entries, runs) = (n & 1, (n >> 1) & 1, ((n >> 2) & 1) * MANY_RUNS);
            let mut o = Observed { awaited, entries, full: n & 8 != 0, others: n & 16 != 0, runs, ..beginning() };
            while let Step::Wait(remaining) = decide(&o).step {
                assert!(!remaining.is_zero() && o.passed <= WINDOW + STAMP_TIMEOUT, "{o:?}");
                (o.passed, o.joined) = (o.passed + remaining, o.joined + remaining);
            }
        }
    }
}

//! Decides when the Job of a batch is created: a pure function of the list of its members.
//!
//! The [rules](Rule) say when it takes which step. Members join the list when their own runs are due, and take their turn
//! there. Nothing is written for that.

use std::time::Duration;

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

/// The number of other runs beside which a batch that is not full waits longer than its window. A node that is busy with
/// pods starts a further pod late, and delays all pods.
const MANY_RUNS: usize = 2;
/// The time after its window for which a batch waits beside many runs. One of them may hang.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// The observation on which the decision rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The batch is full.
    pub full: bool,
    /// Another run of its class and node is in progress, or another batch for such runs is open.
    pub others: bool,
    /// The number of other runs of its class and node in progress. The members of a batch are one.
    pub runs: usize,
    /// The time since the first member has joined.
    pub passed: Duration,
    /// The time for which others may join.
    pub window: Duration,
}

/// The next step for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits until another member joins, or for this time.
    Wait(Duration),
    /// Creates the Job with the members that are still there.
    Create,
}

/// The rules of a batch, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// As many members have joined as fit, by number or bytes. Creates the Job.
    BatchFull,
    /// Another run is in progress there, and others may join. Waits until the end of the window.
    WindowOpen,
    /// The batch is not full, but two other runs are in progress there. Waits until one of them ends, or
    /// for 3 s after the window.
    RunsInProgress,
    /// There is nothing to wait for. Creates the Job.
    BatchDue,
}

rules::table!(Rule, Step, "batch");

/// A decision about a batch.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step.
pub fn decide(o: &Observed) -> Decision {
    match () {
        () if o.full => Rule::BatchFull.step(Step::Create),
        () if o.others && o.passed < o.window => Rule::WindowOpen.step(Step::Wait(o.window - o.passed)),
        () if o.runs >= MANY_RUNS && o.passed < o.window + BUSY_TIMEOUT => {
            Rule::RunsInProgress.step(Step::Wait(o.window + BUSY_TIMEOUT - o.passed))
        }
        () => Rule::BatchDue.step(Step::Create),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(50);

    fn beginning() -> Observed {
        Observed { full: false, others: false, runs: 0, passed: Duration::ZERO, window: WINDOW }
    }

    #[test]
    fn a_batch_that_is_not_full_does_not_begin_beside_many_runs() {
        let busy =
            |passed| Observed { others: true, runs: MANY_RUNS, passed: Duration::from_millis(passed), ..beginning() };
        assert_eq!(decide(&busy(49)), Rule::WindowOpen.step(Step::Wait(Duration::from_millis(1))));
        assert_eq!(decide(&busy(50)), Rule::RunsInProgress.step(Step::Wait(BUSY_TIMEOUT)));
        assert_eq!(decide(&busy(3050)), Rule::BatchDue.step(Step::Create), "a run may hang");
        assert_eq!(decide(&Observed { runs: MANY_RUNS - 1, ..busy(50) }), Rule::BatchDue.step(Step::Create));
        assert_eq!(decide(&Observed { full: true, ..busy(0) }), Rule::BatchFull.step(Step::Create));
    }

    #[test]
    fn a_batch_does_not_wait_when_no_run_is_in_progress() {
        let decided = |others, passed| {
            decide(&Observed {
                others,
                runs: usize::from(others),
                passed: Duration::from_millis(passed),
                ..beginning()
            })
        };
        assert_eq!(decided(false, 0), Rule::BatchDue.step(Step::Create));
        assert_eq!(decided(true, 0), Rule::WindowOpen.step(Step::Wait(WINDOW)), "others may join during a run");
        assert_eq!(decided(true, 50), Rule::BatchDue.step(Step::Create));
    }

    #[test]
    fn the_documentation_says_the_time() {
        let busy = format!("for {} s after the window", BUSY_TIMEOUT.as_secs());
        let says = Rule::RunsInProgress.documentation();
        assert!(says.contains(&busy), "{says}");
    }

    #[test]
    fn every_wait_ends() {
        for n in 0..8_usize {
            let mut o =
                Observed { full: n & 1 != 0, others: n & 2 != 0, runs: ((n >> 2) & 1) * MANY_RUNS, ..beginning() };
            while let Step::Wait(remaining) = decide(&o).step {
                assert!(!remaining.is_zero() && o.passed <= WINDOW + BUSY_TIMEOUT, "{o:?}");
                o.passed += remaining;
            }
        }
    }
}

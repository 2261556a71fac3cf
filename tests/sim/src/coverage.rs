//! Whether the histories have led the orchestrator through every step that it can decide for.

use flex_provisioner::{claim, snapshot, volume};

/// Every step, as a trace names it.
pub const STEPS: &[&str] = &[
    "claim Nothing",
    "claim Stamp",
    "claim Refresh",
    "claim StartRun",
    "claim Adopt",
    "claim Cede",
    "claim Bind",
    "claim Quarantine",
    "claim RecordFailure",
    "claim Reschedule",
    "claim ConfirmNoVolume",
    "claim ConfirmNode",
    "claim LetOriginalGo",
    "claim RemoveJob",
    "claim StartDelete",
    "claim SettleNode",
    "claim Release",
    "volume Nothing",
    "volume Hold",
    "volume Unhold",
    "volume ConfirmClaimGone",
    "volume ConfirmNode",
    "volume StartDelete",
    "volume SettleNode",
    "volume RecordFailure",
    "volume Remove",
    "volume Expand Report",
    "volume Expand Start",
    "volume Expand Grow",
    "volume Expand Record",
    "volume Expand Forget",
    "volume Expand RemoveJob",
    "claim StandInLine",
    "claim Name",
    "claim KeepOriginal",
    "volume Modify Report",
    "volume Modify Start",
    "volume Modify Apply",
    "volume Modify Note",
    "volume Modify Forget",
    "volume Modify RemoveJob",
    "snapshot Nothing",
    "snapshot Hold",
    "snapshot SetClass",
    "snapshot CreateContent",
    "snapshot BindContent",
    "snapshot Mirror",
    "snapshot Refuse",
    "snapshot DeleteContent",
    "snapshot ConfirmNoContent",
    "snapshot Release",
    "content Nothing",
    "content Hold",
    "content Stamp",
    "content KeepSource",
    "content Refresh",
    "content StartRun",
    "content RemoveJob",
    "content Report",
    "content RecordFailure",
    "content Finish",
    "content LetGo",
    "content ConfirmSnapshot",
    "content ConfirmNode",
    "content StartDelete",
    "content Release",
    "content Remove",
    "content StandInLine",
];

/// The name of a step of a claim. A step that is new does not compile here, until it has its place in
/// [`STEPS`].
pub fn of_claim(step: &claim::decide::Step) -> &'static str {
    use claim::decide::Step;
    STEPS[match step {
        Step::Nothing => 0,
        Step::Stamp { .. } => 1,
        Step::Refresh => 2,
        Step::StartRun => 3,
        Step::Adopt { .. } => 4,
        Step::Cede { .. } => 5,
        Step::Bind { .. } => 6,
        Step::Quarantine { .. } => 7,
        Step::RecordFailure { .. } => 8,
        Step::Reschedule { .. } => 9,
        Step::ConfirmNoVolume => 10,
        Step::ConfirmNode { .. } => 11,
        Step::RemoveJob { .. } => 13,
        Step::StartDelete { .. } => 14,
        Step::SettleNode { .. } => 15,
        Step::Release => 16,
        Step::StandInLine => 32,
        Step::Name { .. } => 33,
        Step::KeepOriginal => 34,
        Step::LetOriginalGo { .. } => 12,
    }]
}

/// The same of a volume. That its size needs nothing is no step.
pub fn of_volume(step: &volume::decide::Step) -> &'static str {
    use volume::decide::Step;
    use volume::{expand, modify};
    STEPS[match step {
        Step::Nothing | Step::Expand(expand::Step::Nothing) | Step::Modify(modify::Step::Nothing) => 17,
        Step::Hold => 18,
        Step::Unhold => 19,
        Step::ConfirmClaimGone => 20,
        Step::ConfirmNode { .. } => 21,
        Step::StartDelete { .. } => 22,
        Step::SettleNode { .. } => 23,
        Step::RecordFailure(_) => 24,
        Step::Remove => 25,
        Step::Expand(expand::Step::Report(_)) => 26,
        Step::Expand(expand::Step::Start { .. }) => 27,
        Step::Expand(expand::Step::Grow { .. }) => 28,
        Step::Expand(expand::Step::Record(_)) => 29,
        Step::Expand(expand::Step::Forget) => 30,
        Step::Expand(expand::Step::RemoveJob { .. }) => 31,
        Step::Modify(modify::Step::Report(_)) => 35,
        Step::Modify(modify::Step::Start { .. }) => 36,
        Step::Modify(modify::Step::Apply(_)) => 37,
        Step::Modify(modify::Step::Note(_)) => 38,
        Step::Modify(modify::Step::Forget) => 39,
        Step::Modify(modify::Step::RemoveJob { .. }) => 40,
    }]
}

/// The same of a VolumeSnapshot.
pub fn of_snapshot(step: &snapshot::bind::Step) -> &'static str {
    use snapshot::bind::Step;
    STEPS[match step {
        Step::Nothing => 41,
        Step::Hold => 42,
        Step::SetClass { .. } => 43,
        Step::CreateContent { .. } => 44,
        Step::BindContent => 45,
        Step::Mirror(_) => 46,
        Step::Refuse { .. } => 47,
        Step::DeleteContent => 48,
        Step::ConfirmNoContent => 49,
        Step::Release => 50,
    }]
}

/// The same of a VolumeSnapshotContent.
pub fn of_content(step: &snapshot::decide::Step) -> &'static str {
    use snapshot::decide::Step;
    STEPS[match step {
        Step::Nothing => 51,
        Step::Hold => 52,
        Step::Stamp { .. } => 53,
        Step::KeepSource => 54,
        Step::Refresh => 55,
        Step::StartRun => 56,
        Step::RemoveJob { .. } => 57,
        Step::Report { .. } => 58,
        Step::RecordFailure(_) => 59,
        Step::Finish { .. } => 60,
        Step::LetGo { .. } => 61,
        Step::ConfirmSnapshot => 62,
        Step::ConfirmNode { .. } => 63,
        Step::StartDelete { .. } => 64,
        Step::Release => 65,
        Step::Remove => 66,
        Step::StandInLine => 67,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_trace_says() {
        use flex_provisioner::{claim, volume};
        assert_eq!(of_claim(&claim::decide::Step::Release), "claim Release");
        assert_eq!(of_volume(&volume::decide::Step::Remove), "volume Remove");
        assert_eq!(of_snapshot(&snapshot::bind::Step::Release), "snapshot Release");
        assert_eq!(of_content(&snapshot::decide::Step::Remove), "content Remove");
        assert_eq!(of_volume(&volume::decide::Step::Expand(volume::expand::Step::Forget)), "volume Expand Forget");
        assert_eq!(
            crate::trace::first_words(&volume::decide::Step::Expand(volume::expand::Step::Grow { size: 1 })),
            "Expand Grow"
        );
        assert_eq!(crate::trace::first_words(&claim::decide::Step::StartRun), "StartRun");
    }
}

//! Decides what becomes of the record of a run ([`Record`](crate::model::record::Record)).

use std::collections::BTreeSet;
use std::time::Duration;

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::rules::{self, Rule as _};

/// A record, and the claims that still need it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The run may have begun.
    pub armed: bool,
    /// This process is about to arm the record.
    pub in_creation: bool,
    /// The claims that the record names as needing it, and that need it no more: they are bound, or what their attempts left is
    /// undone, or a newer record says the same, or an admin has abandoned what somebody may keep.
    pub settled: BTreeSet<String>,
    /// The number of claims that the record names as needing it, or whose storage somebody may keep.
    pub left: usize,
    /// The number of claims of the record that cannot be read.
    pub unreadable: usize,
    /// The time for which the record still waits for more claims that need it no more; `None` if it waits no longer.
    pub collecting: Option<Duration>,
}

/// The next step for a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Deletes the record, as it was observed.
    Delete,
    /// Records that these claims need the record no more. With the last one the record goes.
    Settle(BTreeSet<String>),
}

/// The rules of a record, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// This process is about to arm the record. Does nothing.
    RecordInCreation,
    /// The record does not name its own UID: it came late, or is a copy, or its creator died before it armed it. Deletes it:
    /// nothing has run under it.
    RecordNotArmed,
    /// No claim needs the record any more. Deletes it.
    RecordSettled,
    /// Some claims need the record no more. Records this, after a moment in which more may follow.
    RecordPartlySettled,
    /// Claims need the record, or it cannot be read, because another version or somebody else wrote it. Does nothing.
    RecordNeeded,
}

rules::table!(Rule, Step, "record");

/// A decision about a record.
pub type Decision = rules::Decision<Rule>;

/// Decides the next step.
pub fn decide(o: &Observed) -> Decision {
    match () {
        () if o.in_creation => Rule::RecordInCreation.nothing(),
        () if !o.armed && o.unreadable == 0 => Rule::RecordNotArmed.step(Step::Delete),
        () if o.settled.len() == o.left && o.unreadable == 0 => {
            Rule::RecordSettled.step(Step::Settle(o.settled.clone()))
        }
        () if !o.settled.is_empty() && o.collecting.is_some() => Rule::RecordPartlySettled.nothing(),
        () if !o.settled.is_empty() => Rule::RecordPartlySettled.step(Step::Settle(o.settled.clone())),
        () => Rule::RecordNeeded.nothing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_record() {
        let decided = |armed, in_creation, settled: &[&str], left, unreadable| {
            let settled = settled.iter().map(|uid| (*uid).to_owned()).collect();
            let decision = decide(&Observed { armed, in_creation, settled, collecting: None, left, unreadable });
            (decision.rule, decision.step)
        };
        let settle = |uids: &[&str]| Step::Settle(uids.iter().map(|uid| (*uid).to_owned()).collect());
        assert_eq!(decided(false, true, &[], 0, 0), (Rule::RecordInCreation, Step::Nothing));
        assert_eq!(decided(false, false, &[], 0, 0), (Rule::RecordNotArmed, Step::Delete));
        assert_eq!(decided(true, false, &["a", "b"], 2, 0), (Rule::RecordSettled, settle(&["a", "b"])));
        assert_eq!(decided(true, false, &[], 0, 0), (Rule::RecordSettled, settle(&[])));
        assert_eq!(decided(true, false, &["a"], 2, 0), (Rule::RecordPartlySettled, settle(&["a"])));
        assert_eq!(decided(true, false, &["a"], 1, 1), (Rule::RecordPartlySettled, settle(&["a"])));
        assert_eq!(decided(true, false, &[], 1, 0), (Rule::RecordNeeded, Step::Nothing));
        assert_eq!(decided(true, false, &[], 0, 1), (Rule::RecordNeeded, Step::Nothing), "a claim that cannot be read");
        assert_eq!(decided(false, false, &[], 0, 1), (Rule::RecordNeeded, Step::Nothing), "it may be somebody else's");
    }

    #[test]
    fn a_part_of_the_claims_waits_a_moment_for_more() {
        let decided = |settled: &[&str]| {
            let settled = settled.iter().map(|uid| (*uid).to_owned()).collect();
            let (armed, collecting) = (true, Some(Duration::from_millis(1)));
            decide(&Observed { armed, in_creation: false, settled, collecting, left: 2, unreadable: 0 }).step
        };
        assert_eq!(decided(&["a"]), Step::Nothing);
        assert!(matches!(decided(&["a", "b"]), Step::Settle(all) if all.len() == 2));
    }
}

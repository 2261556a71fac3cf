//! Decides the next step for a claim: a pure function of the observation and the time.
//!
//! The [rules](Rule) say when it takes which step. [`decide`] finds the group of the claim, and the group's own file
//! finds the rule.
//!
//! With `placement: selected-node` a run has a node before its Job exists, and the stamp records the node. The
//! scheduler selects the node; or, where the class binds immediately and nobody selects one,
//! [`choose_node`](crate::claim::nodes::choose_node) does. So the orchestrator knows on which nodes an attempt may
//! leave storage, even if it never saw the pod.
//!
//! If the storage of a data source is on one node, the copy is made on that node, whatever node is selected. The
//! scheduler follows the volume.
//!
//! Before a step relies on the fact that a node is gone, [`Step::ConfirmNode`] asks the API.

mod adoption;
mod attempt;
mod cleanup;
mod data_source;
mod failed;
mod next_attempt;
mod observed;
mod placement;
mod pooled;
mod preconditions;
mod rule;
mod settled;
mod step;
mod taken;
mod undo;
mod unstarted;
mod waits;

use flex_contract::names;

use self::attempt::pending;
pub use self::attempt::{no_volume_cause, refusal_text};
pub use self::cleanup::failed_cleanup;
pub use self::failed::{ASK_SCHEDULER, failed_start, failure_text};
pub use self::observed::{
    Candidate, ClassCertainty, ConfirmedFacts, Deletion, Nodes, Observed, PoolRelation, Preconditions,
    RecordedAttempts, RemovedJob, Runs, ServedClass, SourceRelation, Volumes,
};
pub use self::placement::{cleanup_node, known_nodes, last_node, requested_node, run_node};
pub use self::preconditions::{Beginning, PRECONDITIONS, Precondition};
pub use self::rule::{Decision, Rule};
use self::settled::settled;
pub use self::step::Step;
use self::undo::undo;
pub use crate::rules::NewEvent;

/// Decides the next step for a claim. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    data_source::copied(o, decide_without_source_users(o, now))
}

/// Decides the next step without regard to the claim's copies.
fn decide_without_source_users(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let wanted = names::pv_name(&claim.uid);
    let names_other_volume = claim.volume_name.as_ref().is_some_and(|name| *name != wanted);
    if claim.is_held() && (names_other_volume || (claim.terminating && !claim.is_bound())) {
        return undo(o, now);
    }
    if claim.is_bound() || claim.terminating {
        return settled(o, now);
    }
    pending(o, now)
}

#[cfg(test)]
mod tests;

//! What is done next for a volume: a pure function of what was observed and of the time.
//!
//! The first row that holds is taken.
//!
//! | # | the volume | and | step |
//! |---|---|---|---|
//! | 1 | is not ours | | nothing |
//! | 2 | belongs to a claim that lives | its policy is not Delete, and it is held | [`Step::Unhold`] |
//! | 3 | belongs to a claim that lives | its policy is Delete, it is adopted, and not held | [`Step::Hold`] |
//! | 4 | belongs to a claim that lives | | nothing: the claim decides; [`Step::Unhold`] where an admin deletes a quarantined one |
//! | 5 | says that its claim is gone, by the cache alone | | [`Step::ConfirmClaimGone`] |
//! | 6 | is released, policy not Delete | it is held | [`Step::Unhold`] |
//! | 7 | is released | an admin lets go of it | [`Step::Remove`] |
//! | 8 | is released | is not named after its id, or how it was made is not known | nothing, and told |
//! | 9 | is released | a provision pod of its claim may still run | wait for its end |
//! | 10 | is released | by the state of the delete run: absent, failed, done | [`Step::StartDelete`], [`Step::RecordFailure`], [`Step::Remove`] |

use contract::names::{self, reason};
use contract::request::Operation;

use super::Volume;
use crate::claim::LastFailure;
use crate::claim::pace::{just_now, pause};
use crate::config::Recipe;
use crate::run::state::RunState;

/// The end of a pod concerns its claim; a volume whose claim is gone looks again, in seconds.
const POD_ENDS: i64 = 5;

/// What is known of the claim that a volume refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// It refers to none, or is only reserved.
    None,
    /// It is there, with the UID that the volume knows.
    Alive,
    /// It is there, and bound to another volume.
    Elsewhere,
    /// The cache does not have it.
    Missing,
    /// The API does not have it.
    Gone,
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// It is of this orchestrator.
    pub ours: bool,
    /// Its claim.
    pub claim: ClaimState,
    /// How it was made, from its provenance, or why that cannot be read.
    pub recipe: Result<&'a Recipe, String>,
    /// A pod of a provision run for it may still be running.
    pub pods_alive: bool,
    /// The delete run.
    pub run: RunState,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing; the next event decides again.
    Nothing,
    /// Put the finalizer on.
    Hold,
    /// Take the finalizer off; the storage stays.
    Unhold,
    /// Ask the API, not the cache, whether the claim is gone, and decide again.
    ConfirmClaimGone,
    /// Create the Job of a delete run.
    StartDelete {
        /// Its number, from 1.
        attempt: u32,
    },
    /// Remember that a delete run failed, and tell.
    RecordFailure(LastFailure),
    /// Delete the volume and take the finalizer off: its storage is gone.
    Remove,
}

/// A decision about a volume.
pub type Decision = crate::decision::Decision<Step>;

fn saying(step: Step, reason: &'static str, message: impl Into<String>) -> Decision {
    Decision::from(step).saying(true, reason, message)
}

fn by_hand(why: &str) -> Decision {
    let message = format!(
        "the storage cannot be deleted: {why}; clean up by hand, then annotate the volume with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    saying(Step::Nothing, reason::VOLUME_FAILED_DELETE, message)
}

/// The number of the delete run that is due or under way.
pub fn attempt(volume: &Volume) -> u32 {
    volume
        .last_failure
        .as_ref()
        .filter(|failure| failure.operation == Operation::Delete)
        .map_or(1, |failure| failure.attempt.saturating_add(1))
}

/// The next step for a volume. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    if !o.ours {
        return Step::Nothing.into();
    }
    let deletes = volume.reclaim_policy == "Delete";
    match o.claim {
        ClaimState::None => return Step::Nothing.into(),
        ClaimState::Alive if !deletes && volume.is_held() => return Step::Unhold.into(),
        ClaimState::Alive if deletes && !volume.is_held() && volume.is_adopted() && !volume.deleting => {
            return Step::Hold.into();
        }
        // A quarantined volume that an admin deletes. Its claim still answers for the storage.
        ClaimState::Alive
            if volume.deleting && volume.is_held() && volume.quarantine.is_some() && !volume.is_adopted() =>
        {
            return Step::Unhold.into();
        }
        ClaimState::Alive => return Step::Nothing.into(),
        ClaimState::Missing => return Step::ConfirmClaimGone.into(),
        ClaimState::Gone | ClaimState::Elsewhere => {}
    }
    if !deletes {
        return if volume.is_held() { Step::Unhold.into() } else { Step::Nothing.into() };
    }
    if volume.abandoned {
        return saying(Step::Remove, reason::VOLUME_FAILED_DELETE, "let go by annotation; its storage was not deleted");
    }
    // Deleting by its id would delete what the volume stands for that bears the id's name, which may
    // be in use or retained.
    match volume.id() {
        None => return by_hand("it bears no volume id"),
        Some(id) if volume.name != names::pv_name(id) => {
            return by_hand(&format!("it is not named {}, as the volume with the id {id} is", names::pv_name(id)));
        }
        Some(_) => {}
    }
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return by_hand(why),
    };
    if o.pods_alive {
        return Decision::from(Step::Nothing).until(now + POD_ENDS);
    }
    deleting(o, recipe, now)
}

/// Row 10.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let volume = o.volume;
    let last = volume.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = attempt(volume);
    match &o.run {
        RunState::Absent => {
            let due = last.map_or(now, |failure| failure.at.saturating_add(pause(recipe, failure.attempt)));
            if now < due {
                return Decision::from(Step::Nothing).until(due);
            }
            Step::StartDelete { attempt }.into()
        }
        RunState::Running => Step::Nothing.into(),
        RunState::Stuck { cause, .. } => {
            saying(Step::Nothing, reason::VOLUME_FAILED_DELETE, format!("delete run: {}", cause.message))
        }
        RunState::Succeeded => Step::Remove.into(),
        RunState::Failed { settled: false, .. } => Step::Nothing.into(),
        RunState::Failed { cause, at, .. } => {
            let failure = LastFailure::of_delete(attempt, just_now(*at, now), cause, last);
            let message =
                format!("delete run {attempt} failed: {}; next try in {} s", cause.message, pause(recipe, attempt));
            saying(Step::RecordFailure(failure), reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! Decisions about claims that are terminating or have another volume: the orchestrator undoes their attempts.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use super::adoption::{adopt_unless_done, is_claimed_by_other, is_terminating_without_finalizer};
use super::cleanup::{deleting, end_deletion};
use super::observed::Observed;
use super::pooled::complete_pool_request;
use super::rule::{Decision, Rule};
use super::step::Step;
use super::taken::hold_undone;
use super::unstarted::{failure_of_never_started, no_attempt_has_started};
use super::waits::{cleanup_needs_recipe, end_runs, record_again, wait_for_end};
use crate::config::Recipe;
use crate::model::claim::{Claim, Had};
use crate::model::phase::VolumePhase;
use crate::model::volume::Volume;
use crate::rules::Rule as _;

/// Decides about a claim that is held, and is terminating or has another volume.
pub(super) fn undo(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let jobs = || o.runs.jobs.iter().map(Arc::as_ref);
    if claim.abandoned {
        // A run that outlives the claim would make or delete what the admin has taken care of.
        let stop = end_runs(o, jobs(), now).filter(|stop| stop.step != Step::Nothing);
        if let Some(stop) = stop.or_else(|| end_deletion(o)) {
            return stop;
        }
        return Rule::Abandoned.step(Step::EndHold).with_warning(
            reason::STORAGE_ABANDONED,
            "abandoned by annotation: the provisioner does not delete what an attempt left behind",
        );
    }
    // A pooled volume does not depend on its request, whatever the run that made it does now.
    if let Some(done) = complete_pool_request(o).filter(|done| done.step == Step::EndHold) {
        return done;
    }
    if let Some(failure) = failure_of_never_started(o, now) {
        return Rule::RecordNeverStarted.step(Step::RecordFailure { failure });
    }
    if let Some(wait) = end_runs(o, jobs(), now) {
        return wait;
    }
    if let Some(held) = hold_undone(o) {
        return held;
    }
    // A volume with another name is not the claim's: nothing could tell its delete run from that of the right volume.
    let mut volumes = o.volumes.all.iter().map(|candidate| &*candidate.volume);
    if let Some(volume) = volumes.find(|volume| volume.name == names::pv_name(&claim.uid)) {
        return with_volume(o, volume);
    }
    if !o.confirmed.no_volume {
        return Rule::ConfirmNoVolumeLeft.step(Step::ConfirmNoVolume);
    }
    if no_attempt_has_started(o) {
        return Rule::NothingLeftBehind.step(Step::EndHold);
    }
    if let Some(lost) = record_again(o) {
        return lost;
    }
    // Somebody may have had the volume meanwhile, and keeps its storage without an object.
    let is_kept = |recipe: &Recipe| recipe.reclaim_policy != ReclaimPolicy::Delete;
    let stays = |rule: Rule, step, why: &str| {
        let message = format!("what its attempts may have left stays: {why}");
        rule.step(step).with_warning(reason::STORAGE_ABANDONED, message)
    };
    match claim.record.as_ref().map(|record| record.had) {
        Some(Had::Kept) => {
            let why = "its volume had the reclaim policy Retain, and somebody has deleted the volume";
            return stays(Rule::LeftStorageRetained, Step::EndHold, why);
        }
        // The class may have another policy by now.
        Some(Had::Unknown) if o.runs.recipe.as_deref().is_none_or(is_kept) => {
            let class = claim.class.as_deref().unwrap_or_default();
            let why = match &o.runs.recipe {
                Some(_) => format!("class {class} keeps storage (reclaim policy Retain)"),
                None => format!("their config is not known any more, and class {class} may have kept storage"),
            };
            return stays(Rule::LeftStorageUnknown, Step::Keep, &format!("{why}; {}", how_to_look(claim)));
        }
        _ => {}
    }
    match o.deletion.recipe.as_deref() {
        Some(recipe) => deleting(o, recipe, now),
        None => cleanup_needs_recipe(o.claim),
    }
}

/// Says what an admin does about what somebody may keep.
fn how_to_look(claim: &Claim) -> String {
    format!(
        "look on the backend for storage of the id {}, delete it by hand if nobody needs it, then {}",
        claim.uid,
        claim.how_to_abandon()
    )
}

/// Decides about a volume with the name of the claim's volume.
fn with_volume(o: &Observed<'_>, volume: &Volume) -> Decision {
    let claim = o.claim;
    if !claim.may_own(volume) {
        return Rule::VolumeNameTaken.warn(
            reason::VOLUME_FAILED_DELETE,
            format!(
                "volume {} has the name of this claim's volume, but its annotation {} names another claim; delete that volume, then the provisioner deletes what an attempt left behind",
                volume.name,
                names::CLAIM_UID
            ),
        );
    }
    // Somebody may keep what another claim has written.
    let retained = || end_deletion(o).unwrap_or_else(|| Rule::VolumeRetained.step(Step::EndHold));
    if is_claimed_by_other(o, volume) && volume.reclaim_policy != ReclaimPolicy::Delete {
        return retained();
    }
    if is_terminating_without_finalizer(volume) {
        // It vanishes with its claim, and then nothing would tell that somebody keeps its storage.
        let keeps = |recipe: &Recipe| recipe.reclaim_policy != ReclaimPolicy::Delete;
        let is_kept = volume.reclaim_policy != ReclaimPolicy::Delete || o.recipe_of_attempt().is_some_and(keeps);
        return match claim.terminating && volume.phase == VolumePhase::Bound && is_kept {
            true => retained(),
            false => wait_for_end(volume),
        };
    }
    adopt_unless_done(o, volume, Rule::AdoptLeftVolume).unwrap_or_else(|| Rule::LeftVolumeAdopted.step(Step::EndHold))
}

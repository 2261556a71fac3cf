//! Decisions about claims that need nothing more but the end of their hold.

use flex_contract::reason;

use super::adoption::{adopt_unless_done, cannot_add_finalizer, is_claimed_by_other};
use super::observed::{Candidate, Observed};
use super::pooled::{bound_to_pooled, complete_pool_request};
use super::rule::{Decision, Rule};
use super::step::Step;
use super::taken::hold;
use super::undo::undo;
use super::waits::succeeded;
use crate::rules::Rule as _;

/// Decides about a claim that is bound, or terminating and not held.
pub(super) fn settled(o: &Observed<'_>, now: i64) -> Decision {
    if o.claim.is_held() {
        return bound_and_held(o, now);
    }
    // Somebody has ended the hold before the volume had its mark.
    if let Some(unmarked) = o.volumes.all.iter().find(|candidate| candidate.lacks_mark) {
        return Rule::MarkAdoptedVolume.step(Step::MarkAdopted { volume: unmarked.volume.name.clone() });
    }
    match o.runs.jobs.iter().find(|job| job.is_over && !job.terminating) {
        Some(job) => Rule::RemoveEndedJob.step(Step::RemoveJob { job: job.name.clone() }),
        None => bound_to_pooled(o).unwrap_or_else(|| Rule::Settled.nothing()),
    }
}

/// Decides about a bound claim that is held.
fn bound_and_held(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(done) = complete_pool_request(o) {
        return done;
    }
    let Some(bound_to) = o.volumes.all.iter().find(|c| Some(&c.volume.name) == claim.volume_name.as_ref()) else {
        // The volume is not in the cache yet, and its event will arrive. Or the volume is lost, and nothing is to be
        // done before the claim is terminating.
        return if claim.terminating { undo(o, now) } else { Rule::BoundVolumeNotSeen.nothing() };
    };
    let volume = &bound_to.volume;
    if is_claimed_by_other(o, volume) {
        let held = hold(o).filter(|_| !claim.terminating);
        return held.unwrap_or_else(|| undo(o, now));
    }
    if !bound_to.mismatches.is_empty() && !volume.is_adopted() && !claim.terminating {
        return bound_unchecked(bound_to);
    }
    match adopt_unless_done(o, volume, Rule::AdoptBoundVolume) {
        // The PV controller bound the claim first.
        None => succeeded(Rule::BoundClaimHeld, volume, Step::EndHold),
        Some(hindered) if hindered.step == Step::Nothing && claim.terminating && claim.abandoned => undo(o, now),
        Some(adopt) if adopt.step != Step::Nothing && cannot_add_finalizer(o, volume) => {
            // The end of the claim arrives as an event.
            if claim.terminating && claim.abandoned { undo(o, now) } else { Rule::BoundVolumeTerminating.nothing() }
        }
        Some(adopt) => adopt,
    }
}

/// Quarantines a volume that the PV controller bound before the check, because its maker wrote the claim's UID on it.
fn bound_unchecked(unfit: &Candidate) -> Decision {
    let (volume, why) = (unfit.volume.name.clone(), unfit.mismatches.join("; "));
    let message = format!(
        "the claim is bound to volume {volume}, which does not fit it: {why}. Somebody made the volume with the claim's UID in its claimRef; delete the claim, and find out who made the volume"
    );
    let decision = match unfit.volume.quarantine.as_ref() == Some(&why) {
        true => Rule::BoundVolumeQuarantined.nothing(),
        false => Rule::QuarantineBoundVolume.step(Step::Quarantine { volume, why }),
    };
    decision.with_warning(reason::VOLUME_REFUSED, message)
}

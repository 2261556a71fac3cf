//! Decisions about claims that get a pooled volume, and about pool requests.

use flex_contract::names;

use super::adoption::{adopt_unless_done, is_claimed_by_other, is_terminating_without_finalizer};
use super::observed::{Candidate, Observed, ServedClass};
use super::rule::{Decision, Rule};
use super::step::Step;
use super::waits::succeeded;
use crate::model::claim::Binding;
use crate::model::phase::VolumePhase;
use crate::rules::Rule as _;

/// Decides about a claim that the PV controller bound to the pooled volume that was assigned to it.
pub(super) fn bound_to_pooled(o: &Observed<'_>) -> Option<Decision> {
    let claim = o.claim;
    if claim.terminating || claim.own_stamp().is_some() || matches!(o.class, ServedClass::NotOurs) {
        return None;
    }
    // An admin may have given the claim another volume.
    let volume = assigned(o).map(|assigned| &assigned.volume).filter(|volume| volume.pool_size.is_some())?;
    let is_bound_to_it = claim.volume_name.as_ref() == Some(&volume.name);
    let step = Step::BackfillStamp { volume: volume.name.clone() };
    is_bound_to_it.then(|| succeeded(Rule::BoundToPooledVolume, volume, step))
}

/// Decides about a claim to which a volume was assigned before any attempt.
pub(super) fn bind_assigned(o: &Observed<'_>, candidate: &Candidate) -> Decision {
    let volume = &candidate.volume;
    match o.volumes.binding {
        Binding::Direct if candidate.is_known_to_pv_controller() => {
            succeeded(Rule::BindPooledVolume, volume, Step::Bind { volume: volume.name.clone() })
        }
        // Kubernetes keeps a Bound volume. A volume that nothing keeps would be gone before the claim could have it.
        _ if volume.terminating
            && o.claim.volume_name.is_none()
            && (volume.has_finalizer() || volume.phase == VolumePhase::Bound) =>
        {
            Rule::NameVolume.step(Step::SetVolumeName { volume: volume.name.clone() })
        }
        _ => Rule::WaitForBinding.nothing(),
    }
}

/// Decides about a pool request. Its volume is adopted without a claim, and is no longer the request's from then on.
pub(super) fn complete_pool_request(o: &Observed<'_>) -> Option<Decision> {
    if !o.pool.is_request {
        return None;
    }
    let own = o.volumes.all.iter().find(|candidate| candidate.volume.name == names::pv_name(&o.claim.uid))?;
    let volume = &own.volume;
    let is_assigned = volume.is_adopted()
        && volume.volume_id_annotation.as_ref() == Some(&o.claim.uid)
        && is_claimed_by_other(o, volume);
    let done = || match o.claim.terminating {
        true => Rule::PoolRequestTerminating.step(Step::EndHold),
        false => Rule::CompletePoolRequest.step(Step::CompletePoolRequest),
    };
    if is_assigned {
        return Some(done());
    }
    let fits = own.mismatches.is_empty() || volume.pool_hash().is_some();
    (fits && !is_terminating_without_finalizer(volume))
        .then(|| adopt_unless_done(o, volume, Rule::AdoptPooledVolume).unwrap_or_else(done))
}

/// Returns the pooled volume that was assigned to the claim.
pub(super) fn assigned<'a>(o: &Observed<'a>) -> Option<&'a Candidate> {
    o.volumes.all.iter().find(|Candidate { volume, .. }| {
        let names_it = volume.claim_ref_uid() == Some(&o.claim.uid) && volume.claim_uid.as_ref() == Some(&o.claim.uid);
        volume.name != names::pv_name(&o.claim.uid) && volume.is_adopted() && names_it
    })
}

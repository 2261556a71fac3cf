//! Decisions about claims that get a pooled volume, and about pool requests.

use flex_contract::names;

use super::adoption::{adopted, is_claimed_by_other, is_terminating_without_finalizer};
use super::{Candidate, Decision, Observed, ServedClass, Step, succeeded};
use crate::model::claim::Binding;
use crate::model::volume::Reference;

/// Decides row 5a: the PV controller bound the assigned volume first.
pub(super) fn backfill_stamp(o: &Observed<'_>) -> Decision {
    let claim = o.claim;
    let stamped = claim.deleting || claim.own_stamp().is_some() || matches!(o.class, ServedClass::NotOurs);
    // A volume that the claim has taken from another claim was not assigned to it.
    let was_ready = assigned(o).map(|assigned| assigned.volume).filter(|volume| volume.pool_size.is_some());
    match was_ready.filter(|volume| !stamped && claim.volume_name.as_ref() == Some(&volume.name)) {
        Some(volume) => succeeded(volume, Step::BackfillStamp { volume: volume.name.clone() }),
        None => Decision::nothing(),
    }
}

/// Decides row 19b: a volume was assigned to the claim, and no attempt has begun.
pub(super) fn was_assigned(o: &Observed<'_>, candidate: &Candidate<'_>) -> Decision {
    let volume = candidate.volume;
    match o.binding {
        Binding::Direct if candidate.is_synced() => succeeded(volume, Step::Bind { volume: volume.name.clone() }),
        // Kubernetes keeps a Bound volume. A volume that nothing keeps would be gone before the claim could have it.
        _ if volume.deleting
            && o.claim.volume_name.is_none()
            && (volume.has_finalizer() || volume.phase == "Bound") =>
        {
            Step::SetVolumeName { volume: volume.name.clone() }.into()
        }
        _ => Decision::nothing(),
    }
}

/// Decides row 34a, for a pool request. Its volume is adopted without a claim, and is no longer the request's from then
/// on.
pub(super) fn complete_pool_request(o: &Observed<'_>) -> Option<Decision> {
    if !o.is_pool_request {
        return None;
    }
    let own = o.volumes.iter().find(|candidate| candidate.volume.name == names::pv_name(&o.claim.id()))?;
    let volume = own.volume;
    let given_away =
        volume.is_adopted() && volume.volume_id.as_ref() == Some(&o.claim.id()) && is_claimed_by_other(o, volume);
    let done = || if o.claim.deleting { Step::RemoveFinalizer.into() } else { Step::CompletePoolRequest.into() };
    if given_away {
        return Some(done());
    }
    let fits = own.mismatches.is_empty() || volume.pool_kind().is_some();
    (fits && !is_terminating_without_finalizer(volume)).then(|| adopted(o, volume).unwrap_or_else(done))
}

/// Returns a volume that another claim's runs made, that this claim has taken, and that is adopted for this claim.
pub(super) fn assigned<'a>(o: &Observed<'a>) -> Option<&'a Candidate<'a>> {
    let own = |reference: &Reference| reference.uid == o.claim.uid;
    o.volumes.iter().find(|Candidate { volume, .. }| {
        let names_it = volume.claim_ref.as_ref().is_some_and(own) && volume.claim_uuid.as_ref() == Some(&o.claim.uid);
        volume.name != names::pv_name(&o.claim.id()) && volume.is_adopted() && names_it
    })
}

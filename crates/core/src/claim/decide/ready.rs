//! Decisions about claims that get a pooled volume, and about pool requests.

use contract::names;

use super::adoption::{adopted, is_taken, is_vanishing};
use super::{Candidate, Decision, Observed, ServedClass, Step, succeeded};
use crate::model::claim::Binding;
use crate::model::volume::Reference;

/// Decides row 5a: the PV controller bound the assigned volume first.
pub(super) fn noted(o: &Observed<'_>) -> Decision {
    let claim = o.claim;
    let stamped = claim.deleting || claim.own_stamp().is_some() || matches!(o.class, ServedClass::NotOurs);
    // A volume that the claim has taken from another claim was not assigned to it.
    let was_ready = given(o).map(|given| given.volume).filter(|volume| volume.pool_size.is_some());
    match was_ready.filter(|volume| !stamped && claim.volume_name.as_ref() == Some(&volume.name)) {
        Some(volume) => succeeded(volume, Step::Note { volume: volume.name.clone() }),
        None => Decision::nothing(),
    }
}

/// Decides row 19b: a volume was assigned to the claim, and no attempt has begun.
pub(super) fn was_given(o: &Observed<'_>, candidate: &Candidate<'_>) -> Decision {
    let volume = candidate.volume;
    match o.binding {
        Binding::Direct if candidate.is_known() => succeeded(volume, Step::Bind { volume: volume.name.clone() }),
        // Kubernetes keeps a Bound volume. A volume that nothing keeps would be gone before the claim could have it.
        _ if volume.deleting && o.claim.volume_name.is_none() && (volume.is_held() || volume.phase == "Bound") => {
            Step::Name { volume: volume.name.clone() }.into()
        }
        _ => Decision::nothing(),
    }
}

/// Decides row 34a, for a pool request. Its volume is adopted without a claim, and is no longer the request's from then
/// on.
pub(super) fn finished(o: &Observed<'_>) -> Option<Decision> {
    if !o.request {
        return None;
    }
    let own = o.volumes.iter().find(|candidate| candidate.volume.name == names::pv_name(&o.claim.id()))?;
    let volume = own.volume;
    let given_away = volume.is_adopted() && volume.volume_id.as_ref() == Some(&o.claim.id()) && is_taken(o, volume);
    let done = || if o.claim.deleting { Step::Release.into() } else { Step::Finish.into() };
    if given_away {
        return Some(done());
    }
    let fits = own.misfits.is_empty() || volume.ready().is_some();
    (fits && !is_vanishing(volume)).then(|| adopted(o, volume).unwrap_or_else(done))
}

/// Returns a volume that another claim's runs made, that this claim has taken, and that is adopted for this claim.
pub(super) fn given<'a>(o: &Observed<'a>) -> Option<&'a Candidate<'a>> {
    let own = |reference: &Reference| reference.uid == o.claim.uid;
    o.volumes.iter().find(|Candidate { volume, .. }| {
        let names_it = volume.claim_ref.as_ref().is_some_and(own) && volume.claim_uuid.as_ref() == Some(&o.claim.uid);
        volume.name != names::pv_name(&o.claim.id()) && volume.is_adopted() && names_it
    })
}

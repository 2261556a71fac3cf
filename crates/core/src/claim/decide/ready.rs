//! Claims that are given a volume that was kept ready, and the requests by which it was made.

use contract::names;

use super::adoption::{adopted, is_taken, is_vanishing};
use super::{Candidate, Decision, Observed, Serving, Step, succeeded};
use crate::model::claim::Binding;
use crate::model::volume::Reference;

/// Row 5a. The PV controller was faster to bind what the claim was given.
pub(super) fn noted(o: &Observed<'_>) -> Decision {
    let claim = o.claim;
    let stamped = claim.deleting || claim.own_stamp().is_some() || matches!(o.class, Serving::NotOurs);
    // One that it has taken from another claim is none that it was given.
    let was_ready = given(o).map(|given| given.volume).filter(|volume| volume.pool_size.is_some());
    match was_ready.filter(|volume| !stamped && claim.volume_name.as_ref() == Some(&volume.name)) {
        Some(volume) => succeeded(volume, Step::Note { volume: volume.name.clone() }),
        None => Decision::nothing(),
    }
}

/// Row 19b. The claim has a volume, and nothing was begun for it.
pub(super) fn was_given(o: &Observed<'_>, candidate: &Candidate<'_>) -> Decision {
    let volume = candidate.volume;
    match o.binding {
        Binding::Direct if candidate.is_known() => succeeded(volume, Step::Bind { volume: volume.name.clone() }),
        // Kubernetes keeps what is Bound. What nothing keeps is gone before the claim could have it.
        _ if volume.deleting && o.claim.volume_name.is_none() && (volume.is_held() || volume.phase == "Bound") => {
            Step::Name { volume: volume.name.clone() }.into()
        }
        _ => Decision::nothing(),
    }
}

/// Row 34a, for a request of a pool. What was made for it is adopted without a claim; from then on it is none of the
/// request's any more.
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

/// A volume that runs for another claim made, which this one has taken, and which was made its own.
pub(super) fn given<'a>(o: &Observed<'a>) -> Option<&'a Candidate<'a>> {
    let own = |reference: &Reference| reference.uid == o.claim.uid;
    o.volumes.iter().find(|Candidate { volume, .. }| {
        let names_it = volume.claim_ref.as_ref().is_some_and(own) && volume.claim_uuid.as_ref() == Some(&o.claim.uid);
        volume.name != names::pv_name(&o.claim.id()) && volume.is_adopted() && names_it
    })
}

//! Volumes that another claim has taken, because nothing had reserved them for their own. Nobody else may get what that claim
//! writes, and nothing of it is deleted while anybody may use it.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use super::adoption::{is_claimed_by_other, is_claimed_by_this};
use super::observed::{Candidate, Observed, OtherClaim};
use super::rule::{Decision, Rule};
use super::step::Step;
use super::waits::record_again;
use crate::model::volume::Volume;
use crate::rules::Rule as _;

/// Returns the volumes of the claim's runs that another claim has taken, also those with a wrong name: their storage may be that of
/// the claim's id. An adopted volume of a pool request is assigned to other claims.
fn taken<'a>(o: &Observed<'a>) -> impl Iterator<Item = &'a Candidate> {
    let is_assigned = move |volume: &Volume| o.pool.is_request && volume.is_adopted();
    let is_taken = move |volume: &Volume| is_claimed_by_other(o, volume) && !is_assigned(volume);
    o.volumes.all.iter().filter(move |candidate| is_taken(&candidate.volume))
}

/// Holds a claim whose volume another claim has taken, as soon as it has a record. Returns `None` if no volume was taken.
pub(super) fn hold(o: &Observed<'_>) -> Option<Decision> {
    let held = volume_taken(o)?;
    Some(record_again(o).unwrap_or(held))
}

/// Decides about a claim whose volume another claim has taken. Once it is certain that the other one has had the volume, the records
/// of the claim's runs tell it, whatever becomes of the volume. Returns `None` if no volume was taken.
pub(super) fn volume_taken(o: &Observed<'_>) -> Option<Decision> {
    let first = taken(o).next();
    if first.is_none() && !o.runs.recorded.taken {
        return None;
    }
    let has_had = taken(o).any(|candidate| matches!(candidate.other, Some(OtherClaim::Has | OtherClaim::Gone)));
    let step = match has_had && !o.runs.recorded.taken && o.runs.recorded.last > 0 {
        true => Step::RecordTaken,
        false => Step::Nothing,
    };
    let message = message(o, first.map(|candidate| &*candidate.volume));
    Some(Rule::VolumeTakenByOther.step(step).with_warning(reason::VOLUME_REFUSED, message))
}

/// Holds a claim whose attempts are undone. Returns `None` if no volume was taken, or nobody has the volume any more and its policy is
/// Delete: then it is left like any other, and its own reconciler deletes it. Returns `None` also for a claim that is gone, once the
/// volume is gone, too.
pub(super) fn hold_undone(o: &Observed<'_>) -> Option<Decision> {
    let name = names::pv_name(&o.claim.uid);
    let is_misnamed = taken(o).any(|candidate| candidate.volume.name != name);
    let is_left = match o.volumes.all.iter().find(|candidate| candidate.volume.name == name) {
        Some(Candidate { volume, other, .. }) => {
            let is_unused = matches!(other, Some(OtherClaim::Elsewhere | OtherClaim::Gone));
            is_claimed_by_this(o, volume) || is_unused && volume.reclaim_policy == ReclaimPolicy::Delete
        }
        None => o.claim.is_stand_in(),
    };
    hold(o).filter(|_| is_misnamed || !is_left)
}

/// Says what has become of the claim's volume, and what to do.
fn message(o: &Observed<'_>, volume: Option<&Volume>) -> String {
    let claim = o.claim;
    let reference = volume.and_then(|volume| Some((volume, volume.claim_ref.as_ref()?)));
    let taken = match reference {
        Some((volume, reference)) => {
            format!("volume {} was made for this claim, but claim {} has taken it", volume.name, reference.name)
        }
        None => "another claim has had the volume that was made for this claim".to_owned(),
    };
    let is_undone = claim.terminating || claim.volume_name.is_some();
    let next = match is_undone {
        true => format!(
            "nothing is deleted while any claim may use it; then the provisioner deletes it if its reclaim policy is Delete. To keep it in any case, {}",
            claim.how_to_abandon()
        ),
        false => {
            let again = if o.pool.is_request { "the pool requests another" } else { "create it again" };
            format!(
                "this claim must not get what the other one writes: delete it, and {again}. The image must reserve each volume that it makes, by the claimRef that `flex-pv create` writes"
            )
        }
    };
    format!("{taken}; {next}")
}

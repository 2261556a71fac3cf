//! Volumes that another claim has taken, because nothing had reserved them for their own. Nobody else may get what that claim
//! writes, and nothing of it is deleted while that claim may use it.

use flex_contract::names;
use flex_contract::reason;

use super::adoption::is_claimed_by_other;
use super::observed::{Candidate, Observed};
use super::rule::{Decision, Rule};
use super::waits::record_again;
use crate::model::volume::Volume;
use crate::rules::Rule as _;

/// Returns the volumes that were made for the claim and that another claim has, also those with a wrong name: their storage may be
/// that of the claim's id. An adopted volume of a pool request is assigned to other claims.
fn taken<'a>(o: &Observed<'a>) -> impl Iterator<Item = &'a Candidate> {
    let is_assigned = move |volume: &Volume| o.pool.is_request && volume.is_adopted();
    let is_taken = move |volume: &Volume| is_claimed_by_other(o, volume) && !is_assigned(volume);
    o.volumes.all.iter().filter(move |candidate| is_taken(&candidate.volume))
}

/// Holds a claim while another claim has a volume that was made for it. Returns `None` if there is no such volume.
pub(super) fn hold(o: &Observed<'_>) -> Option<Decision> {
    let next = "delete this claim, and create it again. The admission policies refuse such a volume, so ask an admin to install them";
    taken(o).next().map(|candidate| wait_for_other(o, &candidate.volume, next))
}

/// Holds a claim whose attempts are undone while another claim may use a volume that was made for it. Afterwards, a volume with the
/// right name is left like any other.
pub(super) fn hold_undone(o: &Observed<'_>) -> Option<Decision> {
    let name = names::pv_name(&o.claim.uid);
    let candidate = taken(o).find(|candidate| !candidate.is_let_go || candidate.volume.name != name)?;
    let next = format!(
        "nothing is deleted while that claim may use it; then the provisioner deletes it if its reclaim policy is Delete. To keep its storage in any case, {}",
        o.claim.how_to_abandon()
    );
    Some(wait_for_other(o, &candidate.volume, &next))
}

/// Waits, as soon as the claim has a record: without the volume, only that tells what is left.
fn wait_for_other(o: &Observed<'_>, volume: &Volume, next: &str) -> Decision {
    let by = volume.claim_ref.as_ref().map(|reference| reference.name.to_string()).unwrap_or_default();
    let message = format!("volume {} was made for this claim, but claim {by} has taken it; {next}", volume.name);
    record_again(o).unwrap_or_else(|| Rule::VolumeTakenByOther.warn(reason::VOLUME_REFUSED, message))
}

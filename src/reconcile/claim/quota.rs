//! The quota of a claim, as its decision leaves it.

use flex_core::config::classes::ClassLookup;
use flex_core::model::claim::Claim;

use super::observe::Observation;
use crate::reconcile::context::Context;
use crate::state::index::WorkItem;

/// Records in the quota ledger what the observation of a claim showed: its charge has expired, or it must wait for
/// quota. Returns whether the observation still holds.
pub(super) fn update_ledgers(context: &Context, claim: &Claim, observation: &Observation) -> bool {
    let mut index = context.cluster.index_mut();
    index.drop_expired_charge(&claim.uid);
    if observation.preconditions.quota_refusal.is_none() {
        return true;
    }
    let Some(class) = &claim.class else { return true };
    let ClassLookup::Ours(found) = observation.classes.lookup(class) else { return true };
    // Another worker may have freed quota since the observation. Nothing would requeue a claim that waits from now on.
    if found.recipe.as_ref().is_ok_and(|recipe| index.quota_refusal(claim, recipe).is_none()) {
        return false;
    }
    index.wait_for_quota(WorkItem::Claim(claim.name.clone()), class);
    true
}

//! Claims that get a pooled volume.

use std::time::Duration;

use flex_contract::reason;
use flex_core::claim::decide::ServedClass;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::{Provenance, Volume};
use flex_core::rules::NewEvent;

use super::observe::{Confirmed, Observation};
use super::outcome::StepOutcome;
use super::served::served_class;
use crate::api::writes::WriteError;
use crate::reconcile::context::Context;

/// Assigns a pooled volume to the claim. From that write on it is the claim's.
pub(super) async fn assign(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let (Some(volume), ServedClass::Ours(class)) =
        (&observation.pool.volume, served_class(claim, &observation.classes))
    else {
        return Ok(StepOutcome::Wait);
    };
    let Ok(recipe) = &class.recipe else { return Ok(StepOutcome::Wait) };
    // Another worker may have assigned the volume since the decision.
    if !context.cluster.index_mut().assign(claim, volume) {
        return Ok(StepOutcome::Again);
    }
    let assigned = match context.writes.assign(volume, claim, &recipe.reclaim_policy).await {
        // An earlier try may have succeeded unnoticed.
        Err(WriteError::Conflict(_)) => {
            let newer = context.writes.read_volume(&volume.name).await?;
            let is_its = |volume: &Volume| volume.claim_ref_uid() == Some(&claim.uid);
            newer.filter(is_its).ok_or_else(|| WriteError::Conflict(format!("volume {}", volume.name)))
        }
        assigned => assigned,
    };
    match assigned {
        Ok(assigned) => {
            context.cluster.index_mut().note_charge_written(&claim.uid);
            context.metrics.pool_hit(&class.name);
            let message = format!("the claim gets the pooled volume {}", assigned.name);
            context.emit(
                ObjectRef::claim(claim),
                NewEvent { warning: false, reason: reason::PROVISIONING_SUCCEEDED, message },
            );
            confirmed.volume = Some(assigned);
            Ok(StepOutcome::Again)
        }
        Err(error) => {
            if error.was_not_written() {
                context.cluster.update(|index| index.unassign(claim));
            }
            Err(error)
        }
    }
}

/// Returns the stamp of a claim for which no attempt was needed.
pub(super) fn stamp_of_ready(context: &Context, claim: &Claim, volume: &Volume) -> Stamp {
    let provenance = volume.provenance.as_deref().and_then(|text| serde_json::from_str::<Provenance>(text).ok());
    let recipe_version = provenance.map(|provenance| provenance.effective_config.version()).unwrap_or_default();
    Stamp { claim_uid: claim.uid.clone(), ts: context.timestamp(), attempt: 1, recipe_version }
}

/// Returns the time since the claim was created, to the second.
pub(super) fn time_since_creation(context: &Context, claim: &Claim) -> Duration {
    Duration::from_secs((context.clock.now() - claim.created).max(0) as u64)
}

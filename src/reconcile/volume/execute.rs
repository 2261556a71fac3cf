//! Executes the steps of a volume.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_core::model::volume::Volume;
use flex_core::run::node::NodeState;
use flex_core::run::view::Job;
use flex_core::volume::observed::ClaimState;
use flex_core::volume::rule::{Step, StorageOutcome};

use super::confirmed::Confirmed;
use super::delete::{self, DeleteRun};
use super::observe::Observation;
use super::{expand, modify, runs};
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::drive::StepOutcome;
use crate::reconcile::record::RECORDS_SOON;

/// The delay before a volume is looked at again whose claim still needs a record. No event tells that an admin abandons the claim.
const RECORDED_POLL: Duration = Duration::from_secs(30);

/// Executes a step.
pub(super) async fn execute(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
    step: Step,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome<Volume>, WriteError> {
    let writes = &context.writes;
    Ok(match step {
        Step::Nothing => StepOutcome::Wait,
        Step::Expand(step) => {
            expand::execute(context, volume, &observation.expand, step, &mut confirmed.expand).await?
        }
        Step::Modify(step) => {
            modify::execute(context, volume, &observation.modify, step, &mut confirmed.modify).await?
        }
        Step::AddFinalizer => writes.add_volume_finalizer(volume).await?.into(),
        Step::RemoveFinalizer => remove_finalizer(context, volume).await?,
        Step::Reserve => reserve(context, volume, observation).await?.into(),
        Step::RemoveClaimUid => remove_claim_uid(context, volume, observation).await?,
        Step::ConfirmClaimGone => {
            confirmed.claim_state = Some(confirm_claim_gone(context, volume, &observation.jobs).await?);
            StepOutcome::Again
        }
        Step::ConfirmNode { node } => {
            let state = if writes.has_node(&node).await? { NodeState::Reachable } else { NodeState::NotFound };
            confirmed.nodes.0.insert(node, state);
            confirmed.pinned_claim_state = Some(observation.claim_state);
            StepOutcome::Again
        }
        Step::MarkNodeClean { nodes_left } => {
            confirmed.pinned_claim_state = Some(observation.claim_state);
            writes.set_volume_nodes(volume, &nodes_left).await?.into()
        }
        Step::StartDelete { attempt, node, on_any_node } => {
            let left = observation.left_by_other.as_ref();
            let recipe = match (left, &observation.recipe) {
                (Some(left), _) => &left.recipe,
                (None, Ok(recipe)) => recipe,
                (None, Err(_)) => return Ok(StepOutcome::Wait),
            };
            confirmed.pinned_claim_state = Some(observation.claim_state);
            let other = left.map(|left| left.version.clone());
            let is_origin = other.is_none() && node == observation.origin_node;
            let run = DeleteRun { attempt, on_any_node, other, is_origin, node };
            delete::start(context, volume, recipe, run).await?
        }
        Step::RemoveJob { job } => {
            if let Some(job) = observation.jobs.iter().find(|candidate| candidate.name == job) {
                context.remove_run(job).await?;
            }
            StepOutcome::Wait
        }
        Step::RecordFailure(failure) => {
            context.metrics.delete_failed(&volume.class);
            writes.record_volume_failure(volume, &failure).await?.into()
        }
        Step::DeleteVolume { storage } => {
            if !settle(context, volume).await? {
                return Ok(StepOutcome::End(Requeue::After(RECORDS_SOON)));
            }
            remove(context, volume, observation, storage).await?;
            StepOutcome::End(Requeue::Done)
        }
    })
}

/// Removes the finalizer from a volume whose storage stays, or is its claim's. Without the volume, only a record tells of it.
async fn remove_finalizer(context: &Context, volume: &Volume) -> Result<StepOutcome<Volume>, WriteError> {
    if !settle(context, volume).await? {
        return Ok(StepOutcome::End(Requeue::After(RECORDS_SOON)));
    }
    // What a refused one leaves, its claim undoes.
    if !volume.is_adopted() && volume.quarantine.is_none() && is_recorded(context, volume) {
        // Somebody keeps the storage, and without the volume nothing would tell it. The claim adopts the volume first.
        return Ok(StepOutcome::End(Requeue::After(RECORDED_POLL)));
    }
    context.writes.remove_volume_finalizer(volume).await?;
    Ok(StepOutcome::End(Requeue::Done))
}

/// Settles the records of an adopted volume before it goes: it alone tells what becomes of its storage. Returns `false` while the
/// cache lacks records, as those of a former leader, which may name its claim.
async fn settle(context: &Context, volume: &Volume) -> Result<bool, WriteError> {
    if !context.writes.confirm_records().await? {
        return Ok(false);
    }
    if volume.is_adopted() {
        context.settle_id(volume.volume_id().unwrap_or_default()).await?;
    }
    Ok(true)
}

/// Deletes a volume, and counts whether its storage was deleted.
async fn remove(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
    storage: StorageOutcome,
) -> Result<(), WriteError> {
    context.writes.remove_volume(volume).await?;
    let (name, class) = (&volume.name, &volume.class);
    match storage {
        StorageOutcome::Deleted => {
            context.metrics.deleted(class, observation.time_since_delete_run(context, volume));
            let id = volume.volume_id().unwrap_or_default();
            let stages = context.stages(Operation::Delete, id, volume.unneeded_since);
            tracing::info!(volume = name, class, stages, "the storage and the volume are deleted");
        }
        StorageOutcome::LeftBehind => {
            context.metrics.abandoned(class);
            tracing::warn!(volume = name, class, "the volume is deleted, and its storage is abandoned");
        }
    }
    Ok(())
}

/// Removes the UID of an unbound claim from the claimRef of a volume.
async fn remove_claim_uid(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
) -> Result<StepOutcome<Volume>, WriteError> {
    let Some(claim) = &observation.expand.claim else { return Ok(StepOutcome::Wait) };
    runs::confirm_claim(context, claim, |fresh| fresh.volume_name.is_none()).await?;
    Ok(context.writes.reserve(volume, &claim.name, None).await?.into())
}

/// Checks whether a record names the claim of a volume whose storage stays, and no other claim has the volume.
fn is_recorded(context: &Context, volume: &Volume) -> bool {
    let index = context.cluster.index();
    let is_its = |id: &str| volume.claim_ref_uid().is_none_or(|uid| uid == id);
    (volume.abandoned || volume.reclaim_policy != ReclaimPolicy::Delete)
        && volume.volume_id().is_some_and(|id| is_its(id) && !index.unsettled_records_of(id).is_empty())
}

/// Reserves a volume for the claim that it had.
async fn reserve(context: &Context, volume: &Volume, observation: &Observation) -> Result<Volume, WriteError> {
    let Some(claim) = &observation.claim_bound_before else {
        return context.writes.reserve(volume, &volume.reservation(&context.identity.namespace), None).await;
    };
    // The cache may still have the claim from before the restore.
    runs::confirm_claim(context, claim, |fresh| fresh.volume_name == claim.volume_name).await?;
    context.writes.reserve(volume, &claim.name, Some(claim.uid.as_str())).await
}

/// Asks the API for the claim. A claimRef without a UID may be a placeholder, which does not have the claim's name.
/// Then one of the Jobs may have the name; else all claims are read.
async fn confirm_claim_gone(context: &Context, volume: &Volume, jobs: &[Arc<Job>]) -> Result<ClaimState, WriteError> {
    let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_some());
    let uid = volume.claim_ref_uid().or(volume.claim_uid.as_deref()).unwrap_or_default().to_owned();
    let by_job = jobs.iter().find_map(|job| job.claim.clone());
    let alive = match reference.map(|reference| reference.name.clone()).or(by_job) {
        Some(name) => context.writes.read_claim(&name).await?.is_some_and(|claim| claim.uid == uid),
        None => context.writes.has_claim(&uid).await?,
    };
    if alive {
        return Ok(ClaimState::Alive);
    }
    // The record of a former leader may name the claim.
    if !volume.is_adopted() && !context.writes.confirm_records().await? {
        return Err(WriteError::Conflict("the records of runs".to_owned()));
    }
    if let Some(claim) = reference {
        context.cluster.update(|index| index.note_claim_gone(&volume.name, claim));
    }
    Ok(ClaimState::NotFound)
}

#[cfg(test)]
mod tests {
    use flex_core::model::volume::{Reference, adoption_mark};

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::testing;

    /// A record that a watch shows later must bring no delete run for storage that an admin has abandoned.
    #[tokio::test]
    async fn an_adopted_volume_settles_its_records_before_it_goes() {
        let claim = testing::claim("team", "a", true);
        let volume = testing::volume(&claim, "1Gi");
        let provenance = Some("{}".to_owned());
        let adoption_mark = Some(adoption_mark("{}", &volume.uid));
        let adopted = Volume { provenance, adoption_mark, ..volume.clone() };
        let record = testing::record(&claim);
        let path = format!("/apis/apps/v1/namespaces/own/controllerrevisions/{}", record.name.name);
        for (volume, wanted) in [(volume, vec![]), (adopted, vec![format!("DELETE {path}")])] {
            let (context, asked) = context(String::new());
            context.cluster.update(|index| index.record_answered(record.clone()));
            assert!(settle(&context, &volume).await.unwrap());
            assert_eq!(*asked.lock().unwrap(), wanted);
        }
    }

    #[tokio::test]
    async fn a_kept_volume_is_let_go_when_no_record_would_delete_its_storage() {
        let claim = testing::claim("team", "a", true);
        let kept = Volume { reclaim_policy: ReclaimPolicy::Retain, ..testing::volume(&claim, "1Gi") };
        let quarantined = Volume { quarantine: Some("too small".into()), ..kept.clone() };
        let reference = Reference { name: claim.name.clone(), uid: Some("another".into()) };
        let taken = Volume { claim_ref: Some(reference), ..kept.clone() };
        let table = [(&kept, true, true), (&kept, false, false), (&quarantined, true, false), (&taken, true, false)];
        for (volume, is_recorded, stays) in table {
            let (context, asked) = context(String::new());
            if is_recorded {
                context.cluster.update(|index| index.record_answered(testing::record(&claim)));
            }
            let removed = remove_finalizer(&context, volume).await;
            let waits = matches!(removed, Ok(StepOutcome::End(Requeue::After(delay))) if delay == RECORDED_POLL);
            assert_eq!(waits, stays);
            assert_eq!(asked.lock().unwrap().is_empty(), stays, "the finalizer is removed");
        }
    }
}

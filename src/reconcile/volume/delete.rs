//! Starts the delete runs of volumes, alone or in batches.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;
use flex_core::batch::{Member, MemberObject};
use flex_core::config::Recipe;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::Volume;
use flex_core::rules::NewEvent;
use flex_core::run::failure::LastFailure;
use flex_core::run::job::{self, RunTarget};
use flex_core::run::view::Job;
use flex_core::volume::decide::nodes_to_clean;
use flex_core::volume::observed::ClaimState;

use super::runs;
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::delete_run::start_delete_job;
use crate::reconcile::drive::StepOutcome;
use crate::state::index::{BatchEntry, SlotRequest};
use crate::state::missing::LOOK_AGAIN;

/// Returns the name of the Job of a delete run on a node. `other` is the version of another recipe, if the run deletes what
/// attempts with that may have left.
pub(super) fn job_name(volume: &Volume, attempt: u32, node: Option<&str>, other: Option<&str>) -> String {
    let id = volume.volume_id().unwrap_or_default();
    job::name(Operation::Delete, id, attempt, &scope(volume, node, other))
}

/// Returns the part of a Job's name that tells apart runs on different nodes, with different recipes, and those for a volume that
/// was restored: the record of a volume may get another node while a run on the former one is in progress.
fn scope(volume: &Volume, node: Option<&str>, other: Option<&str>) -> String {
    [Some(volume.uid.as_str()), node, other].into_iter().flatten().collect::<Vec<_>>().join("/")
}

/// Returns the Job of a delete run that has not ended, where somebody keeps what the run deletes: an admin all that an abandoned or
/// restored volume stands for, or what is on the node of one that is retained or has lost its claimRef, and a claim what it uses
/// again.
pub(super) fn unwanted_job(
    volume: &Volume,
    claim: ClaimState,
    origin_node: Option<&str>,
    jobs: &[Arc<Job>],
) -> Option<Arc<Job>> {
    let is_unneeded = matches!(claim, ClaimState::NotCached | ClaimState::NotFound | ClaimState::BoundToOtherVolume);
    let to_clean = match &volume.reclaim_policy {
        _ if volume.abandoned || volume.is_restored() => Vec::new(),
        ReclaimPolicy::Delete if is_unneeded => return None,
        _ => nodes_to_clean(volume, claim, origin_node),
    };
    let is_of = |job: &Job, node: &str| job.name.name == job_name(volume, job.run_labels.attempt, Some(node), None);
    let deletes = |job: &&Arc<Job>| job.run_labels.operation == Operation::Delete && !job.is_over;
    let unwanted = jobs.iter().filter(deletes).filter(|job| !to_clean.iter().any(|node| is_of(job, node)));
    unwanted.min_by_key(|job| job.terminating).cloned()
}

/// A delete run that is due.
pub(super) struct DeleteRun {
    /// The number of the run, from 1.
    pub attempt: u32,
    /// The node whose storage the run deletes; `None` for no particular node.
    pub node: Option<String>,
    /// The version of another recipe, if the run deletes what attempts with that may have left.
    pub other: Option<String>,
    /// The run deletes the storage of the volume: this is the node where the volume was made, or no particular node.
    pub is_origin: bool,
    /// The run need not be on that node, because the node is gone.
    pub on_any_node: bool,
}

/// Starts a delete run, in a batch or alone, or waits for a slot. Returns the volume with the failure if the run could not be
/// started.
pub(super) async fn start(
    context: &Context,
    volume: &Volume,
    recipe: &Arc<Recipe>,
    DeleteRun { attempt, node, other, is_origin, on_any_node }: DeleteRun,
) -> Result<StepOutcome<Volume>, WriteError> {
    let id = volume.volume_id().unwrap_or_default();
    let is_first = is_origin && attempt == 1;
    let must_be_alone = is_first || other.is_some();
    if must_be_alone && !context.has_no_unseen_deletion(&recipe.config.namespace, id, &volume.name).await? {
        return Ok(StepOutcome::End(Requeue::After(LOOK_AGAIN)));
    }
    let pinned_node = recipe.required_node(node.as_deref()).filter(|_| !on_any_node).map(str::to_owned);
    let scope = scope(volume, node.as_deref(), other.as_deref());
    let job = job::name(Operation::Delete, id, attempt, &scope);
    let slot_request = SlotRequest::volume(volume, Operation::Delete).on(pinned_node.as_deref());
    if !context.acquire_slot(&job, &slot_request, recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    // Storage on other nodes needs no volume source, but this read also proves that the volume has not changed.
    let source = context.writes.source_to_delete(volume).await?;
    let source = if is_origin { source } else { String::new() };
    let request = runs::request_of(context, volume, node.as_deref(), recipe, attempt, source);
    let target = RunTarget { namespace: recipe.config.namespace.clone(), node: pinned_node, ..RunTarget::default() };
    // A batch deletes on the volumes' own node, which must be there, with the config's account.
    let is_served = context.identity.config_namespaces.contains(&recipe.config.namespace);
    if is_first && !on_any_node && is_served && recipe.batch_size > 1 {
        let (id, object, scope) = (id.to_owned(), MemberObject::Volume(volume.name.clone()), scope.clone());
        let member = Member { id, attempt, object, scope, attributes: None, is_first: false };
        let (request, target, recipe) = (request.clone(), target.clone(), recipe.clone());
        let volume = Some(Box::new(volume.clone()));
        if context.join_batch(BatchEntry { member, request, target, recipe, claim: None, volume }) {
            return Ok(StepOutcome::End(Requeue::JobCreated));
        }
    }
    if is_first {
        context.cluster.index_mut().run_alone(id);
    }
    let target = RunTarget { scope, volume: Some(volume.name.clone()), ..target };
    let last = volume.last_failure.as_ref();
    match start_delete_job(context, recipe, &request, target, last).await? {
        None => {
            tracing::info!(volume = volume.name, attempt, "delete run started");
            Ok(StepOutcome::End(Requeue::JobCreated))
        }
        Some(cause) => {
            let message = format!("delete run {attempt}: {}", cause.message);
            context.emit(
                ObjectRef::volume(volume),
                NewEvent { warning: true, reason: reason::VOLUME_FAILED_DELETE, message },
            );
            context.metrics.delete_failed(&volume.class);
            let failure = LastFailure::of_delete_run(attempt, context.clock.now(), &cause, last).with_recipe(recipe);
            context.writes.record_volume_failure(volume, &failure).await.map(StepOutcome::from)
        }
    }
}

#[cfg(test)]
mod tests {
    use flex_core::model::volume::adoption_mark;
    use flex_core::object::ObjectName;

    use super::*;
    use crate::state::testing;

    /// After a restore of etcd, a claim is back whose deletion was in progress. Or an admin has removed the claimRef of a released
    /// volume, so that another claim gets it.
    #[test]
    fn the_delete_run_of_a_volume_that_somebody_keeps_is_not_wanted() {
        let made = testing::volume(&testing::claim("team", "a", true), "1Gi");
        let volume = Volume {
            provenance: Some("{}".into()),
            adoption_mark: Some(adoption_mark("{}", &made.uid)),
            nodes_with_storage: vec!["earlier".into(), "home".into()],
            reclaim_policy: ReclaimPolicy::Delete,
            ..made
        };
        let retained = Volume { reclaim_policy: ReclaimPolicy::Retain, ..volume.clone() };
        let abandoned = Volume { abandoned: true, ..volume.clone() };
        let restored = Volume { adoption_mark: None, ..volume.clone() };
        let is_unwanted = |volume: &Volume, claim, node, is_over| {
            let name = ObjectName::new("own", job_name(volume, 1, Some(node), None));
            let job = Job { name, is_over, ..testing::job("delete", "a") };
            unwanted_job(volume, claim, Some("home"), &[Arc::new(job)]).is_some()
        };
        for (volume, claim, on_earlier, on_home) in [
            (&volume, ClaimState::NotFound, false, false),
            (&volume, ClaimState::NotCached, false, false),
            (&volume, ClaimState::Alive, false, true),
            (&volume, ClaimState::Awaited, false, true),
            (&volume, ClaimState::NoReference, false, true),
            (&restored, ClaimState::NotFound, true, true),
            (&retained, ClaimState::Alive, false, true),
            (&retained, ClaimState::NotFound, false, true),
            (&abandoned, ClaimState::NotFound, true, true),
        ] {
            let unwanted = ["earlier", "home"].map(|node| is_unwanted(volume, claim, node, false));
            assert_eq!(unwanted, [on_earlier, on_home], "{claim:?} {:?}", volume.reclaim_policy);
            assert!(!is_unwanted(volume, claim, "home", true), "it has ended");
        }
    }
}

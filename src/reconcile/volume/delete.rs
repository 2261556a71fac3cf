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

use super::confirmed::{Confirmed, ConfirmedSource};
use super::runs;
use crate::api::writes::WriteError;
use crate::reconcile::batch::Due;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::delete_run::start_delete_job;
use crate::reconcile::drive::StepOutcome;
use crate::state::index::{BatchEntry, SlotRequest};

/// Returns the name of the Job of the delete run that is due on a node.
pub(super) fn job_name(volume: &Volume, origin_node: Option<&str>, node: Option<&str>) -> String {
    job::name(
        Operation::Delete,
        volume.volume_id().unwrap_or_default(),
        volume.delete_attempt(),
        &scope(volume, node == origin_node, node),
    )
}

/// Returns the part of a Job's name that tells apart a run alone, a run in a batch and runs on different nodes: the record of
/// a volume may get another node while a run on the former one is in progress.
fn scope(volume: &Volume, is_origin: bool, node: Option<&str>) -> String {
    match volume.batch() {
        Some(batch) if is_origin => batch.clone(),
        _ => node.map_or_else(|| volume.uid.clone(), |node| format!("{}/{node}", volume.uid)),
    }
}

/// Returns the Job of a delete run that has not ended, where an admin keeps what the run deletes: all that an abandoned volume
/// stands for, or what is on the node of a retained one.
pub(super) fn unwanted_job(
    volume: &Volume,
    claim: ClaimState,
    origin_node: Option<&str>,
    jobs: &[Arc<Job>],
) -> Option<Arc<Job>> {
    let to_clean = match (volume.abandoned, &volume.reclaim_policy) {
        (true, _) => Vec::new(),
        (false, ReclaimPolicy::Delete) => return None,
        (false, _) => nodes_to_clean(volume, claim, origin_node),
    };
    let id = volume.volume_id().unwrap_or_default();
    let is_of = |job: &Job, node: &str| {
        let scope = scope(volume, Some(node) == origin_node, Some(node));
        job.name.name == job::name(Operation::Delete, id, job.run_labels.attempt, &scope)
    };
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
    /// This is the node where the volume was made, or no particular node.
    pub is_origin: bool,
    /// The run need not be on that node, because the node is gone.
    pub on_any_node: bool,
}

impl DeleteRun {
    /// Returns the node to which the pod is bound.
    fn pinned_node(&self, recipe: &Recipe) -> Option<&str> {
        recipe.required_node(self.node.as_deref()).filter(|_| !self.on_any_node)
    }
}

/// Starts a delete run, or waits for its batch or for a slot. Returns the volume if it was written: with its batch,
/// without the batch that it missed, or with the failure if the run could not be started.
pub(super) async fn batch_or_start(
    context: &Context,
    volume: &Volume,
    recipe: &Recipe,
    run: DeleteRun,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome<Volume>, WriteError> {
    let pinned_node = run.pinned_node(recipe);
    // Only a first delete run on the origin node, with a config in a served namespace, may join a batch. The node must
    // not be gone.
    let is_first_run = run.is_origin && !run.on_any_node && run.attempt == 1;
    let can_batch = is_first_run && context.identity.config_namespaces.contains(&recipe.config.namespace);
    let volume_without_batch;
    let mut volume_of_run = volume;
    if let Some(batch) = volume.batch().filter(|_| run.is_origin)
        && (!can_batch || context.cluster.index().is_shut_out_of_batch(batch, Operation::Delete, recipe, pinned_node))
    {
        volume_without_batch = context.writes.note_no_batch(volume).await?;
        volume_of_run = &volume_without_batch;
    } else if can_batch && volume.batch().is_none() {
        let job = job_name(volume, run.node.as_deref(), run.node.as_deref());
        if !context.acquire_slot(&job, &slot_request(volume, pinned_node), recipe) {
            return Ok(StepOutcome::WaitForSlot);
        }
        let due_run = Due { volume, recipe, node: pinned_node, job: &job };
        if let Some(noted) = context.join_deletion(&due_run).await? {
            let resource_version = noted.volume.resource_version.clone();
            confirmed.source = Some(ConfirmedSource { resource_version, source: noted.source });
            return Ok(noted.volume.into());
        }
    }
    create_or_add_to_batch(context, volume_of_run, recipe, run, confirmed).await
}

fn slot_request(volume: &Volume, node: Option<&str>) -> SlotRequest {
    SlotRequest::volume(volume, Operation::Delete).on(node)
}

/// Adds the run to the batch that the volume names, or creates a Job if it names none.
async fn create_or_add_to_batch(
    context: &Context,
    volume: &Volume,
    recipe: &Recipe,
    run: DeleteRun,
    confirmed: &Confirmed,
) -> Result<StepOutcome<Volume>, WriteError> {
    let pinned_node = run.pinned_node(recipe).map(str::to_owned);
    let DeleteRun { attempt, node, is_origin, .. } = run;
    let scope = scope(volume, is_origin, node.as_deref());
    let job = job::name(Operation::Delete, volume.volume_id().unwrap_or_default(), attempt, &scope);
    if !context.acquire_slot(&job, &slot_request(volume, pinned_node.as_deref()), recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    // Storage on other nodes needs no volume source, but this read also proves that the volume has not changed. A
    // volume that was just written with its batch needs no read: the answer to that write had the source.
    let source = match confirmed.source_of(volume) {
        Some(source) => source.clone(),
        None => context.writes.source_to_delete(volume).await?,
    };
    let source = if is_origin { source } else { String::new() };
    let request = runs::request_of(context, volume, node.as_deref(), recipe, attempt, source);
    let target = RunTarget { namespace: recipe.config.namespace.clone(), node: pinned_node, ..RunTarget::default() };
    if let Some(batch) = volume.batch().filter(|_| is_origin) {
        let (id, object) = (request.volume_id.clone(), MemberObject::Volume(volume.name.clone()));
        let member = Member { id, attempt, object, attributes: None, is_first: false };
        let recipe = Arc::new(recipe.clone());
        return match context.add_entry(batch, BatchEntry { member, request, target, recipe, claim: None }) {
            true => Ok(StepOutcome::End(Requeue::JobCreated)),
            false => context.writes.note_no_batch(volume).await.map(StepOutcome::from),
        };
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

//! The size of a volume: observes what concerns it, and executes its steps.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::quantity::quantity;
use flex_contract::reason;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::expand_update::ExpandUpdate;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::Volume;
use flex_core::run::job;
use flex_core::volume::expand::{ExpandRun, Observed, Step, failed_start, requested_size};
use flex_core::volume::in_place_run::InPlaceRuns;
use flex_core::volume::request::expand;

use super::runs::{self, ReadyRun, RunBasis, Written};
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, RunObjects};
use crate::reconcile::drive::StepOutcome;
use crate::state::index::{Index, WorkItem};

/// The data that were read about the size of a volume. This type owns the data; [`Observed`] has the same as
/// references, for the pure decision.
pub(super) struct Observation {
    /// The claim of the volume, if it exists.
    pub claim: Option<Arc<Claim>>,
    /// The recipe of the volume's runs; or the reason why it cannot be read.
    recipe: Result<Arc<Recipe>, String>,
    /// The node where the volume was made; `None` if runs of the class may be on any node.
    origin_node: Option<String>,
    /// The reason why no quota allows the requested size.
    quota_refusal: Option<String>,
    /// The expand runs of the volume.
    pub runs: runs::Observation,
}

/// Observes all objects that concern the size of a volume.
pub(super) fn observe(
    context: &Context,
    volume: &Volume,
    RunBasis { recipe, origin_node }: RunBasis<'_>,
    objects: RunObjects<'_>,
    written: &Written,
) -> Observation {
    let runs = runs::observe(context, volume, Operation::Expand, objects, written);
    let index = context.cluster.index_mut();
    let claim = written.claim.clone().map(Arc::new).or_else(|| index.claim_by_id(volume.claim_ref_uid()?));
    let quota_refusal = quota_refusal(&index, volume, claim.as_deref(), recipe);
    Observation { claim, recipe: recipe.clone(), origin_node: origin_node.map(str::to_owned), quota_refusal, runs }
}

/// Returns the reason why no quota allows the size that the claim requests; `None` if all do, or it requests none.
fn quota_refusal(
    index: &Index,
    volume: &Volume,
    claim: Option<&Claim>,
    recipe: &Result<Arc<Recipe>, String>,
) -> Option<String> {
    let (claim, recipe) = (claim?, recipe.as_ref().ok()?);
    index.expand_quota_refusal(volume, claim, requested_size(volume, claim)?, recipe)
}

/// Updates the quota ledger by the observation of a size. If a quota does not allow the requested size, the volume
/// joins those that wait for quota. If the volume is not being expanded, refunds its charge, and requeues the items
/// that may use it. Returns `false` if quota was freed since the observation.
pub(super) fn update_quota_charge(context: &Context, volume: &Volume, observation: &Observation) -> bool {
    let mut index = context.cluster.index_mut();
    if observation.quota_refusal.is_some() {
        // Another worker may have freed quota since the observation. If the volume waited now, nothing would requeue
        // it.
        if quota_refusal(&index, volume, observation.claim.as_deref(), &observation.recipe).is_none() {
            return false;
        }
        index.wait_for_quota(WorkItem::Volume(volume.name.clone()), &volume.class);
    }
    // The creation of a Job got no answer, and the Job was not seen: the volume is not being expanded.
    let requests_more = observation.claim.as_ref().is_some_and(|claim| requested_size(volume, claim).is_some());
    let woken = if requests_more || observation.runs.exist() { Vec::new() } else { index.refund_expand(volume) };
    drop(index);
    context.cluster.queue.add_all(woken);
    true
}

impl Observation {
    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(&'a self, runs: InPlaceRuns<'a>) -> Observed<'a> {
        Observed {
            claim: self.claim.as_deref(),
            recipe: self.recipe.as_deref().map_err(String::clone),
            runs,
            quota_refusal: self.quota_refusal.as_deref(),
        }
    }
}

/// Executes a step.
pub(super) async fn execute(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
    step: Step,
    written: &mut Written,
) -> Result<StepOutcome<Volume>, WriteError> {
    Ok(match step {
        Step::Nothing => StepOutcome::Wait,
        Step::WriteStatus(report) => {
            let Some(claim) = &observation.claim else { return Ok(StepOutcome::End(Requeue::Done)) };
            // The volume may have reached its size since.
            if matches!(report, ExpandUpdate::InProgress { .. } | ExpandUpdate::Infeasible { .. }) {
                runs::confirm_volume(context, volume).await?;
            }
            written.claim = Some(context.writes.report_expand(claim, &report, &context.time_in_status()).await?);
            if matches!(report, ExpandUpdate::Finished { .. } | ExpandUpdate::FileSystemPending { .. }) {
                context.metrics.expanded(&volume.class);
            }
            StepOutcome::Again
        }
        Step::Start { attempt, size } => start(context, volume, observation, attempt, size).await?,
        Step::WriteCapacity { size } => {
            let written = context.writes.write_capacity(volume, size).await?;
            let id = volume.volume_id().unwrap_or_default();
            let (class, stages) = (&volume.class, context.stages(Operation::Expand, id, None));
            tracing::info!(volume = volume.name, class, size, stages, "the storage has grown");
            written.into()
        }
        Step::Record(failed) => {
            context.metrics.expand_failed(&volume.class);
            context.writes.note_expand(volume, Some(&failed)).await?.into()
        }
        Step::ClearFailure => context.writes.note_expand(volume, None).await?.into(),
        Step::RemoveJob { job } => observation.runs.remove(context, job, written).await?,
    })
}

/// Starts a run, or waits for a slot.
async fn start(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
    attempt: u32,
    size: u64,
) -> Result<StepOutcome<Volume>, WriteError> {
    let (Ok(recipe), Some(claim)) = (&observation.recipe, &observation.claim) else {
        return Ok(StepOutcome::End(Requeue::Done));
    };
    runs::confirm_claim(context, claim, |fresh| fresh.size == claim.size).await?;
    let source = context.writes.volume_source(volume).await?;
    let request = runs::request_of(context, volume, observation.origin_node.as_deref(), recipe, attempt, source);
    let target = runs::run_target(volume, recipe, observation.origin_node.as_deref(), &size.to_string());
    let job = job::job(recipe, &expand(request, size), &target);
    let run = ReadyRun { operation: Operation::Expand, volume, claim, recipe, node: target.node, job };
    if !runs::acquire_slot(context, &run) {
        return Ok(StepOutcome::WaitForSlot);
    }
    {
        let mut index = context.cluster.index_mut();
        // Another worker may have used the quota since the decision.
        if index.expand_quota_refusal(volume, claim, size, recipe).is_some() {
            let woken = index.cancel_expectation(run.job.metadata.name.as_deref().unwrap_or_default());
            drop(index);
            context.cluster.queue.add_all(woken);
            return Ok(StepOutcome::Again);
        }
        index.charge_expand(&volume.name, size);
    }
    let message = format!("expand run {attempt} to {}: image {}", quantity(size).0, context.image(recipe));
    let refusal = runs::create(context, run, reason::RESIZING, message).await?;
    let Some(refusal) = refusal else { return Ok(StepOutcome::End(Requeue::JobCreated)) };
    context.cluster.update(|index| index.refund_expand(volume));
    let failed = failed_start(volume, ExpandRun { attempt, size }, recipe, &refusal, context.clock.now());
    context.emit(ObjectRef::claim(claim), failed.event);
    context.metrics.expand_failed(&volume.class);
    Ok(context.writes.note_expand(volume, Some(&failed.note)).await?.into())
}

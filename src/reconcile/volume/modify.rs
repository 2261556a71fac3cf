//! The attributes of a volume: observes what concerns them, and executes their steps.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::config::Recipe;
use flex_core::config::modify::{Attributes, requested_attributes};
use flex_core::model::claim::Claim;
use flex_core::model::modify_update::ModifyUpdate;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::Volume;
use flex_core::run::job::{self, RunTarget};
use flex_core::volume::in_place_run::InPlaceRuns;
use flex_core::volume::modify::{ModifyRun, Observed, Step, failed_start};
use flex_core::volume::request::modify;

use super::runs::{self, ReadyRun, RunBasis, Written};
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, RunObjects};
use crate::reconcile::drive::StepOutcome;

/// The data that were read about the attributes of a volume. This type owns the data; [`Observed`] has the same as
/// references, for the pure decision.
pub(super) struct Observation {
    /// The claim of the volume, if it exists.
    pub claim: Option<Arc<Claim>>,
    /// The recipe of the volume's runs; or the reason why it cannot be read.
    recipe: Result<Arc<Recipe>, String>,
    /// The attributes that the claim requests; or the reason why it cannot have them.
    requested_attributes: Result<Attributes, String>,
    /// The node where the volume was made; `None` if runs of the class may be on any node.
    origin_node: Option<String>,
    /// The modify runs of the volume.
    pub runs: runs::Observation,
}

/// Observes all objects that concern the attributes of a volume. `recipe` is that of its runs.
pub(super) fn observe(
    context: &Context,
    volume: &Volume,
    claim: Option<Arc<Claim>>,
    RunBasis { recipe, origin_node }: RunBasis<'_>,
    objects: RunObjects<'_>,
    written: &Written,
) -> Observation {
    let runs = runs::observe(context, volume, Operation::Modify, objects, written);
    let claim = written.claim.clone().map(Arc::new).or(claim);
    let index = context.cluster.index();
    let name = claim.as_deref().and_then(|claim| claim.attributes_class.as_deref());
    let requested_attributes =
        recipe.as_ref().map_err(|why| format!("the volume cannot be modified: {why}")).and_then(|recipe| {
            let provisioner = recipe.effective_config.provisioner(&context.identity.provisioner);
            requested_attributes(name, name.and_then(|name| index.attributes_class(name)), recipe, provisioner)
        });
    Observation {
        claim,
        recipe: recipe.clone(),
        requested_attributes,
        origin_node: origin_node.map(str::to_owned),
        runs,
    }
}

impl Observation {
    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(&'a self, runs: InPlaceRuns<'a>) -> Observed<'a> {
        Observed {
            claim: self.claim.as_deref(),
            recipe: self.recipe.as_deref().map_err(String::clone),
            requested_attributes: self.requested_attributes.as_ref().map_err(String::clone),
            runs,
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
            // The volume may have got its attributes since.
            runs::confirm_volume(context, volume).await?;
            let now = context.time_in_status();
            written.claim = Some(context.writes.report_modify(claim, &report, &now).await?);
            let changed = claim.modify_status.as_ref().is_some_and(|status| status.in_progress());
            if matches!(report, ModifyUpdate::Finished { .. }) && changed {
                context.metrics.modified(&volume.class);
            }
            StepOutcome::Again
        }
        Step::Start { attempt, attributes } => start(context, volume, observation, attempt, attributes).await?,
        Step::WriteAttributes(applied) => {
            let written = context.writes.write_attributes(volume, &applied).await?;
            let id = volume.volume_id().unwrap_or_default();
            let (class, stages) = (&volume.class, context.stages(Operation::Modify, id, None));
            tracing::info!(volume = volume.name, class, stages, "the volume has other attributes");
            written.into()
        }
        Step::Record(note) => {
            // A note that a run begins keeps `failed_attempt`, so it is no new failure.
            if volume.pending_modification.as_ref().is_none_or(|before| before.failed_attempt != note.failed_attempt)
                && note.failed_attempt > 0
            {
                context.metrics.modify_failed(&volume.class);
            }
            context.writes.note_modify(volume, Some(&note)).await?.into()
        }
        Step::ClearNote => context.writes.note_modify(volume, None).await?.into(),
        Step::RemoveJob { job } => observation.runs.remove(context, job, written).await?,
    })
}

/// Starts a run, or waits for a slot.
async fn start(
    context: &Context,
    volume: &Volume,
    observation: &Observation,
    attempt: u32,
    attributes: Attributes,
) -> Result<StepOutcome<Volume>, WriteError> {
    let (Ok(recipe), Some(claim)) = (&observation.recipe, &observation.claim) else {
        return Ok(StepOutcome::End(Requeue::Done));
    };
    runs::confirm_claim(context, claim, |fresh| fresh.attributes_class == claim.attributes_class).await?;
    let source = context.writes.volume_source(volume).await?;
    let request = runs::request_of(context, volume, observation.origin_node.as_deref(), recipe, attempt, source);
    let request = modify(request, volume, recipe, &attributes);
    let target = RunTarget {
        attributes: Some(attributes.clone()),
        ..runs::run_target(volume, recipe, observation.origin_node.as_deref(), &attributes.hash())
    };
    let job = job::job(recipe, &request, &target);
    let run = ReadyRun { operation: Operation::Modify, volume, claim, recipe, node: target.node, job };
    if !runs::acquire_slot(context, &run) {
        return Ok(StepOutcome::WaitForSlot);
    }
    let message = format!("modify run {attempt} to {}: image {}", attributes.describe(), context.image(recipe));
    let refusal = runs::create(context, run, reason::VOLUME_MODIFY, message).await?;
    let Some(refusal) = refusal else { return Ok(StepOutcome::End(Requeue::JobCreated)) };
    let run = ModifyRun { attempt, target: &attributes };
    let failed = failed_start(volume, run, recipe, &refusal, context.clock.now());
    context.emit(ObjectRef::claim(claim), failed.event);
    context.metrics.modify_failed(&volume.class);
    Ok(context.writes.note_modify(volume, Some(&failed.note)).await?.into())
}

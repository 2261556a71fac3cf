//! The attributes of a volume: the observation, and the steps about them.

use std::sync::Arc;

use flex_contract::names::reason;
use flex_contract::request::Operation;

use super::runs::{self, Confirmed, StepOutcome};
use crate::api::writes::WriteError;
use crate::attributes::{Attributes, requested_attributes};
use crate::config::Recipe;
use crate::decision::NewEvent;
use crate::model::claim::Claim;
use crate::model::modification::StatusUpdate;
use crate::model::volume::Volume;
use crate::reconcile::context::{Context, Requeue, refused_job};
use crate::run::job::{self, RunTarget};
use crate::run::view::{Job, Pod};
use crate::volume::change::Runs;
use crate::volume::modify::{Decision, Observed, Step, failed_start, requested_class};
use crate::volume::request::{modify, request};

/// The data from which a decision borrows.
pub(super) struct Observation {
    claim: Option<Arc<Claim>>,
    recipe: Result<Arc<Recipe>, String>,
    requested_attributes: Result<Attributes, String>,
    node: String,
    /// The modify runs of the volume.
    pub runs: runs::Observation,
}

/// Observes all objects that concern the attributes of a volume. `recipe` is that of its runs.
pub(super) fn observe(
    context: &Context,
    volume: &Volume,
    (claim, recipe, node): (Option<Arc<Claim>>, &Result<Arc<Recipe>, String>, &str),
    jobs: &[Arc<Job>],
    pods: &[Arc<Pod>],
    confirmed: &Confirmed,
) -> Observation {
    let runs = runs::observe(context, volume, Operation::Modify, jobs, pods, confirmed);
    let claim = confirmed.claim.clone().map(Arc::new).or(claim);
    let index = context.shared.index();
    let name = claim.as_deref().map(requested_class).unwrap_or_default();
    let requested_attributes =
        recipe.as_ref().map_err(|why| format!("the volume cannot be modified: {why}")).and_then(|recipe| {
            let provisioner = recipe.record.provisioner(&context.identity.provisioner);
            requested_attributes(name, index.attributes_class(name), recipe, provisioner)
        });
    Observation { claim, recipe: recipe.clone(), requested_attributes, node: node.to_owned(), runs }
}

impl Observation {
    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(&'a self, runs: Runs<'a>) -> Observed<'a> {
        Observed {
            claim: self.claim.as_deref(),
            recipe: self.recipe.as_deref().map_err(String::clone),
            requested_attributes: self.requested_attributes.as_ref().map_err(String::clone),
            runs,
        }
    }
}

/// Takes a step.
pub(super) async fn execute(
    context: &Context,
    volume: &Volume,
    observed: &Observation,
    decision: Decision,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let Decision { step, event, requeue_at } = decision;
    let emit = |event| runs::emit_on_claim(context, observed.claim.as_deref(), event);
    let (before, after) = runs::before_and_after(event);
    let failed = before.is_some();
    emit(before);
    let next = match step {
        Step::Nothing => StepOutcome::Requeue(observed.runs.wait(context, requeue_at, &[])),
        Step::Report(report) => {
            let Some(claim) = &observed.claim else { return Ok(StepOutcome::Requeue(Requeue::Done)) };
            // The volume may have got its attributes since.
            runs::confirm_volume(context, volume).await?;
            let now = context.time_in_status();
            confirmed.claim = Some(context.writes.report_modification(claim, &report, &now).await?);
            let changed = claim.modification.as_ref().is_some_and(|modification| modification.in_progress());
            if matches!(report, StatusUpdate::Finished { .. }) && changed {
                context.metrics.modified(&volume.class);
            }
            StepOutcome::Again
        }
        Step::Start { attempt, attributes } => start(context, volume, observed, attempt, attributes).await?,
        Step::Apply(applied) => context.writes.apply_attributes(volume, &applied).await?.into(),
        Step::Record(note) => {
            if failed {
                context.metrics.modify_failed(&volume.class);
            }
            context.writes.note_modification(volume, Some(&note)).await?.into()
        }
        Step::Forget => context.writes.note_modification(volume, None).await?.into(),
        Step::RemoveJob { job } => observed.runs.remove(context, job, confirmed).await?,
    };
    emit(after);
    Ok(next)
}

async fn start(
    context: &Context,
    volume: &Volume,
    observed: &Observation,
    attempt: u32,
    attributes: Attributes,
) -> Result<StepOutcome, WriteError> {
    let (Ok(recipe), Some(claim)) = (&observed.recipe, &observed.claim) else {
        return Ok(StepOutcome::Requeue(Requeue::Done));
    };
    runs::confirm_claim(context, claim, |fresh| requested_class(fresh) == requested_class(claim)).await?;
    let source = context.writes.volume_source(volume).await?;
    let run = (attempt, context.timestamp());
    let asked = request(volume, &observed.node, recipe, &context.identity, &context.kube_api, run, source);
    let asked = modify(asked, volume, recipe, &attributes);
    let target = RunTarget {
        attributes: Some(attributes.clone()),
        ..runs::run_target(volume, recipe, &observed.node, &attributes.hash())
    };
    let job = job::job(recipe, &asked, &target);
    if let Some(wait) = runs::wait_for_slot(context, (volume, claim), Operation::Modify, (&job, &target), recipe) {
        return Ok(StepOutcome::Requeue(wait));
    }
    let (kind, cause) = match context.create_job(&job).await {
        Ok(()) => {
            let message = format!("run {attempt} to {}: image {}", attributes.describe(), recipe.image);
            runs::emit_on_claim(
                context,
                Some(claim),
                Some(NewEvent { warning: false, reason: reason::MODIFYING, message }),
            );
            return Ok(StepOutcome::Requeue(Requeue::JobCreated));
        }
        Err(error) => refused_job(error)?,
    };
    let decision = failed_start(volume, (attempt, &attributes), recipe, &cause, kind, context.clock.now());
    runs::emit_on_claim(context, Some(claim), decision.event);
    let Step::Record(note) = decision.step else { return Ok(StepOutcome::Requeue(Requeue::Done)) };
    context.metrics.modify_failed(&volume.class);
    Ok(context.writes.note_modification(volume, Some(&note)).await?.into())
}

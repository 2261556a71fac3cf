//! The attributes of a volume: the observation, and the steps about them.

use std::sync::Arc;

use contract::names::reason;
use contract::request::Operation;

use super::runs::{self, Learnt, Next};
use crate::api::writes::WriteError;
use crate::attributes::{Attributes, wished};
use crate::config::Recipe;
use crate::decision::Tell;
use crate::model::claim::Claim;
use crate::model::modification::Report;
use crate::model::volume::Volume;
use crate::reconcile::context::{Context, Pass, refused_job};
use crate::run::job::{self, Place};
use crate::run::view::{Job, Pod};
use crate::volume::change::Runs;
use crate::volume::modify::{Decision, Observed, Step, failed_start, wish};
use crate::volume::request::{modify, request};

/// The data from which a decision borrows.
pub(super) struct Seen {
    claim: Option<Arc<Claim>>,
    recipe: Result<Arc<Recipe>, String>,
    wished: Result<Attributes, String>,
    node: String,
    /// The modify runs of the volume.
    pub runs: runs::Seen,
}

/// Observes all objects that concern the attributes of a volume. `recipe` is that of its runs.
pub(super) fn look(
    context: &Context,
    volume: &Volume,
    (claim, recipe, node): (Option<Arc<Claim>>, &Result<Arc<Recipe>, String>, &str),
    jobs: &[Arc<Job>],
    pods: &[Arc<Pod>],
    learnt: &Learnt,
) -> Seen {
    let runs = runs::look(context, volume, Operation::Modify, jobs, pods, learnt);
    let claim = learnt.claim.clone().map(Arc::new).or(claim);
    let index = context.shared.index();
    let name = claim.as_deref().map(wish).unwrap_or_default();
    let wished = recipe.as_ref().map_err(|why| format!("the volume cannot be modified: {why}")).and_then(|recipe| {
        let provisioner = recipe.record.provisioner(&context.identity.provisioner);
        wished(name, index.attributes_class(name), recipe, provisioner)
    });
    Seen { claim, recipe: recipe.clone(), wished, node: node.to_owned(), runs }
}

impl Seen {
    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(&'a self, runs: Runs<'a>) -> Observed<'a> {
        Observed {
            claim: self.claim.as_deref(),
            recipe: self.recipe.as_deref().map_err(String::clone),
            wished: self.wished.as_ref().map_err(String::clone),
            runs,
        }
    }
}

/// Takes a step.
pub(super) async fn act(
    context: &Context,
    volume: &Volume,
    seen: &Seen,
    decision: Decision,
    learnt: &mut Learnt,
) -> Result<Next, WriteError> {
    let Decision { step, tell, wake_at } = decision;
    let told = |tell| runs::tell_claim(context, seen.claim.as_deref(), tell);
    let (before, after) = runs::before_and_after(tell);
    let failed = before.is_some();
    told(before);
    let next = match step {
        Step::Nothing => Next::Pass(seen.runs.wait(context, wake_at, &[])),
        Step::Report(report) => {
            let Some(claim) = &seen.claim else { return Ok(Next::Pass(Pass::Done)) };
            // The volume may have got its attributes since.
            runs::confirm_volume(context, volume).await?;
            let now = context.time_in_status();
            learnt.claim = Some(context.writes.report_modification(claim, &report, &now).await?);
            let changed = claim.modification.as_ref().is_some_and(|modification| modification.is_under_way());
            if matches!(report, Report::Finished { .. }) && changed {
                context.metrics.modified(&volume.class);
            }
            Next::Again
        }
        Step::Start { attempt, attributes } => start(context, volume, seen, attempt, attributes).await?,
        Step::Apply(applied) => context.writes.apply_attributes(volume, &applied).await?.into(),
        Step::Note(note) => {
            if failed {
                context.metrics.modify_failed(&volume.class);
            }
            context.writes.note_modification(volume, Some(&note)).await?.into()
        }
        Step::Forget => context.writes.note_modification(volume, None).await?.into(),
        Step::RemoveJob { job } => seen.runs.remove(context, job, learnt).await?,
    };
    told(after);
    Ok(next)
}

async fn start(
    context: &Context,
    volume: &Volume,
    seen: &Seen,
    attempt: u32,
    attributes: Attributes,
) -> Result<Next, WriteError> {
    let (Ok(recipe), Some(claim)) = (&seen.recipe, &seen.claim) else { return Ok(Next::Pass(Pass::Done)) };
    runs::confirm_claim(context, claim, |fresh| wish(fresh) == wish(claim)).await?;
    let source = context.writes.volume_source(volume).await?;
    let run = (attempt, context.timestamp());
    let asked = request(volume, &seen.node, recipe, &context.identity, &context.kube_api, run, source);
    let asked = modify(asked, volume, recipe, &attributes);
    let place =
        Place { attributes: Some(attributes.clone()), ..runs::place(volume, recipe, &seen.node, &attributes.hash()) };
    let job = job::job(recipe, &asked, &place);
    if let Some(wait) = runs::wait_for_place(context, (volume, claim), Operation::Modify, (&job, &place), recipe) {
        return Ok(Next::Pass(wait));
    }
    let (kind, cause) = match context.create_job(&job).await {
        Ok(()) => {
            let message = format!("run {attempt} to {}: image {}", attributes.words(), recipe.image);
            runs::tell_claim(context, Some(claim), Some(Tell { warning: false, reason: reason::MODIFYING, message }));
            return Ok(Next::Pass(Pass::Started));
        }
        Err(error) => refused_job(error)?,
    };
    let decision = failed_start(volume, (attempt, &attributes), recipe, &cause, kind, context.clock.now());
    runs::tell_claim(context, Some(claim), decision.tell);
    let Step::Note(note) = decision.step else { return Ok(Next::Pass(Pass::Done)) };
    context.metrics.modify_failed(&volume.class);
    Ok(context.writes.note_modification(volume, Some(&note)).await?.into())
}

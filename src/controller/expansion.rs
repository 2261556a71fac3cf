//! The size of a volume: observed for the decision, and its steps carried out.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::names::reason;
use contract::request::Operation;

use super::claims::{self, timestamp};
use super::volumes::pods_alive;
use super::{Context, Pass, refused_job};
use crate::claim::Claim;
use crate::claim::resize::Report;
use crate::cluster::index::{EXPECTED, Key};
use crate::cluster::writes::WriteError;
use crate::config::classes::Lookup;
use crate::config::{Placement, Recipe, joined};
use crate::decision::Tell;
use crate::node::Places;
use crate::object::ObjectName;
use crate::run::job::{self, Place};
use crate::run::state::RunState;
use crate::run::view::{Job, Pod};
use crate::volume::expand::{Decision, Observed, Run, Step, failed_start, record, wish};
use crate::volume::request::{expand, request};
use crate::volume::{Provenance, Volume};

/// What was learnt in this pass beyond the index.
#[derive(Default)]
pub(super) struct Learnt {
    /// The claim as it was written last.
    claim: Option<Claim>,
    /// Jobs that were told to go.
    removed: BTreeSet<ObjectName>,
}

/// What a decision borrows from.
pub(super) struct Seen {
    claim: Option<Arc<Claim>>,
    recipe: Result<Recipe, String>,
    node: String,
    jobs: Vec<(Job, RunState)>,
    starting: bool,
    limit: Option<String>,
    alive_on: Vec<String>,
    pods_alive: bool,
    others_alive: bool,
}

/// What follows after a step.
pub(super) enum Next {
    /// Decide again.
    Again,
    /// Decide again about this state of the volume.
    With(Box<Volume>),
    /// The pass is over.
    Pass(Pass),
}

/// Looks at all that concerns the size of a volume.
pub(super) fn look(
    context: &Context,
    volume: &Volume,
    provenance: &Result<Provenance, String>,
    jobs: &[Arc<Job>],
    pods: &[Arc<Pod>],
    learnt: &Learnt,
) -> Seen {
    let runs = jobs
        .iter()
        .filter(|job| job.marks.operation == Operation::Expand.as_str() && job.volume.as_deref() == Some(&volume.name))
        .map(|job| {
            let state = context.run_state(jobs, pods, &job.name.name);
            let deleting = job.deleting || learnt.removed.contains(&job.name);
            (Job { deleting, ..(**job).clone() }, state)
        })
        .collect();
    let (claim, classes) = {
        let index = context.shared.index();
        let uid = volume.claim_ref.as_ref().map(|reference| reference.uid.as_str()).unwrap_or_default();
        (learnt.claim.clone().map(Arc::new).or_else(|| index.claim_by_id(uid)), index.classes())
    };
    let class = match classes.lookup(&volume.class) {
        Lookup::Ours(class) => class.recipe.as_ref().ok().map(|recipe| &recipe.record),
        _ => None,
    };
    let recipe = provenance.as_ref().map_err(String::clone).and_then(|provenance| {
        let recipe = record(&provenance.record, class).recipe();
        recipe.map_err(|problems| format!("what it was made with cannot be used: {}", joined(&problems)))
    });
    let mut seen = Seen {
        limit: None,
        claim,
        recipe,
        node: provenance.as_ref().map(|provenance| provenance.node.clone()).unwrap_or_default(),
        jobs: runs,
        starting: false,
        alive_on: pods
            .iter()
            .filter(|pod| pod.marks.operation == Operation::Expand.as_str() && !pod.is_over())
            .filter_map(|pod| pod.node.clone())
            .collect(),
        pods_alive: pods_alive(pods, Operation::Expand),
        others_alive: pods_alive(pods, Operation::Provision) || pods_alive(pods, Operation::Modify),
    };
    // Whatever its number and target: both follow from what is seen.
    let runs = format!("{}-{}-", Operation::Expand, volume.id().unwrap_or_default());
    let mut index = context.shared.index();
    seen.starting = index.is_any_expected(&runs);
    if let (Some(claim), Ok(recipe)) = (&seen.claim, &seen.recipe)
        && let Some(wish) = wish(volume, claim)
    {
        seen.limit = index.growth_is_refused(volume, claim, wish, recipe);
        if seen.limit.is_some() {
            index.wait_for_room(Key::Volume(volume.name.clone()), &volume.class);
        }
    }
    drop(index);
    seen
}

impl Seen {
    /// The runs, for [`Seen::observed`].
    pub(super) fn runs(&self) -> Vec<Run<'_>> {
        self.jobs.iter().map(|(job, state)| Run { job, state: state.clone() }).collect()
    }

    /// For the decision.
    pub(super) fn observed<'a>(&'a self, runs: &'a [Run<'a>], places: &Places) -> Observed<'a> {
        Observed {
            claim: self.claim.as_deref(),
            recipe: self.recipe.as_ref().map_err(String::clone),
            runs,
            starting: self.starting,
            pods_alive: self.pods_alive,
            lost: places.lost(&self.alive_on).map(String::as_str),
            others_alive: self.others_alive,
            limit: self.limit.as_deref(),
        }
    }

    /// The claim, how runs for the volume work, and where: what else is decided about it rests on the same.
    pub(super) fn basis(&self) -> (Option<Arc<Claim>>, &Result<Recipe, String>, &str) {
        (self.claim.clone(), &self.recipe, &self.node)
    }

    /// Waits for the next event, or until a run that was started must have been seen.
    pub(super) fn wait(&self, context: &Context, wake_at: Option<i64>, jobs: &[String]) -> Pass {
        match wake_at {
            None if self.starting => Pass::After(EXPECTED),
            wake_at => context.wait(wake_at, jobs),
        }
    }
}

/// Each target has Jobs of its own: the success of one is never taken for that of another.
fn scope(volume: &Volume, size: u64) -> String {
    format!("{}-{size}", volume.uid)
}

/// Carries out a step. What is said is said on the claim: a failure before it is written, so that no crash
/// can hide it, a success after.
pub(super) async fn act(
    context: &Context,
    volume: &Volume,
    seen: &Seen,
    decision: Decision,
    learnt: &mut Learnt,
) -> Result<Next, WriteError> {
    let Decision { step, tell, wake_at } = decision;
    let told = |tell: Option<Tell>| {
        if let (Some(tell), Some(claim)) = (tell, &seen.claim) {
            context.tell(claims::about(claim), tell);
        }
    };
    let (before, after) = match tell.as_ref().is_some_and(|tell| tell.warning) {
        true => (tell, None),
        false => (None, tell),
    };
    told(before);
    let with = |volume: Volume| Next::With(Box::new(volume));
    let next = match step {
        Step::Nothing => Next::Pass(seen.wait(context, wake_at, &[])),
        Step::Report(report) => {
            let Some(claim) = &seen.claim else { return Ok(Next::Pass(Pass::Done)) };
            // The volume may have its size since: a cache that lags must not tell of what is over.
            if matches!(report, Report::Growing { .. } | Report::Infeasible { .. }) {
                let fresh = context.writes.read_volume(&volume.name).await?;
                if fresh.is_none_or(|fresh| fresh.resource_version != volume.resource_version) {
                    return Err(WriteError::Conflict(format!("volume {}", volume.name)));
                }
            }
            let ts = context.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            learnt.claim = Some(context.writes.report_resize(claim, &report, &ts).await?);
            if matches!(report, Report::Finished { .. } | Report::OnNode { .. }) {
                context.metrics.expanded(&volume.class);
            }
            Next::Again
        }
        Step::Start { attempt, size } => start(context, volume, seen, attempt, size).await?,
        Step::Grow { size } => with(context.writes.grow_volume(volume, size).await?),
        Step::Record(failed) => {
            context.metrics.expand_failed(&volume.class);
            with(context.writes.record_expansion(volume, Some(&failed)).await?)
        }
        Step::Forget => with(context.writes.record_expansion(volume, None).await?),
        Step::RemoveJob { job } => {
            let uid = seen.jobs.iter().find(|(candidate, _)| candidate.name == job).map(|(job, _)| job.uid.clone());
            context.writes.remove_job(&job, &uid.unwrap_or_default()).await?;
            learnt.removed.insert(job);
            Next::Again
        }
    };
    told(after);
    Ok(next)
}

async fn start(context: &Context, volume: &Volume, seen: &Seen, attempt: u32, size: u64) -> Result<Next, WriteError> {
    let (Ok(recipe), Some(claim)) = (&seen.recipe, &seen.claim) else { return Ok(Next::Pass(Pass::Done)) };
    // Storage must not grow by what a cache says.
    let fresh = context.writes.read_claim(&claim.name).await?;
    if fresh.as_ref().is_none_or(|fresh| fresh.uid != claim.uid || fresh.size != claim.size || fresh.deleting) {
        return Err(WriteError::Conflict(format!("claim {}", claim.name)));
    }
    let source = context.writes.volume_source(volume).await?;
    let run = (attempt, timestamp(context));
    let request = request(volume, &seen.node, recipe, &context.identity, &context.kube_api, run, source);
    let pinned = recipe.placement == Placement::SelectedNode && !seen.node.is_empty();
    let place = Place {
        namespace: recipe.config.namespace.clone(),
        node: pinned.then(|| seen.node.clone()),
        scope: scope(volume, size),
        volume: Some(volume.name.clone()),
        ..Place::default()
    };
    {
        let mut index = context.shared.index();
        // Another worker may have given away what was left since it was decided.
        if index.growth_is_refused(volume, claim, size, recipe).is_some() {
            return Ok(Next::Again);
        }
        index.promise_growth(&volume.name, size);
    }
    let (kind, cause) = match context.create_job(&job::job(recipe, &expand(request, size), &place)).await {
        Ok(()) => {
            let message = format!("run {attempt} to {}: image {}", contract::quantity::quantity(size).0, recipe.image);
            context.tell(claims::about(claim), Tell { warning: false, reason: reason::RESIZING, message });
            return Ok(Next::Pass(Pass::Started));
        }
        Err(error) => refused_job(error)?,
    };
    let woken = context.shared.index().take_back_growth(volume);
    woken.into_iter().for_each(|key| context.shared.queue.add(key));
    let decision = failed_start(volume, (attempt, size), recipe, &cause, kind, context.clock.now());
    if let Some(tell) = decision.tell {
        context.tell(claims::about(claim), tell);
    }
    let Step::Record(failed) = decision.step else { return Ok(Next::Pass(Pass::Done)) };
    context.metrics.expand_failed(&volume.class);
    Ok(Next::With(Box::new(context.writes.record_expansion(volume, Some(&failed)).await?)))
}

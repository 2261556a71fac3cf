//! The attributes of a volume: observed for the decision, and its steps carried out.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::names::reason;
use contract::request::Operation;

use super::claims::{self, timestamp};
use super::expansion::Next;
use super::volumes::pods_alive;
use super::{Context, Pass, refused_job};
use crate::attributes::{Attributes, wished};
use crate::claim::Claim;
use crate::claim::modification::Report;
use crate::cluster::index::EXPECTED;
use crate::cluster::writes::WriteError;
use crate::config::{Placement, Recipe};
use crate::decision::Tell;
use crate::node::Places;
use crate::object::ObjectName;
use crate::run::job::{self, Place};
use crate::run::state::RunState;
use crate::run::view::{Job, Pod};
use crate::volume::Volume;
use crate::volume::expand::Run;
use crate::volume::modify::{Decision, Observed, Step, failed_start, wish};
use crate::volume::request::{modify, request};

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
    wished: Result<Attributes, String>,
    node: String,
    jobs: Vec<(Job, RunState)>,
    starting: bool,
    alive_on: Vec<String>,
    pods_alive: bool,
    others_alive: bool,
}

/// Looks at all that concerns the attributes of a volume. `recipe` is how its runs work.
pub(super) fn look(
    context: &Context,
    volume: &Volume,
    (claim, recipe, node): (Option<Arc<Claim>>, &Result<Recipe, String>, &str),
    jobs: &[Arc<Job>],
    pods: &[Arc<Pod>],
    learnt: &Learnt,
) -> Seen {
    let of_it = |job: &&Arc<Job>| {
        job.marks.operation == Operation::Modify.as_str() && job.volume.as_deref() == Some(&volume.name)
    };
    let runs = jobs
        .iter()
        .filter(of_it)
        .map(|job| {
            let state = context.run_state(jobs, pods, &job.name.name);
            let deleting = job.deleting || learnt.removed.contains(&job.name);
            (Job { deleting, ..(**job).clone() }, state)
        })
        .collect();
    let claim = learnt.claim.clone().map(Arc::new).or(claim);
    let index = context.shared.index();
    let name = claim.as_deref().map(wish).unwrap_or_default();
    let provisioner = &context.identity.provisioner;
    let wished = recipe
        .as_ref()
        .map_err(|why| format!("the volume cannot be modified: {why}"))
        .and_then(|recipe| wished(name, index.attributes_class(name), recipe, provisioner));
    let starting = index.is_any_expected(&format!("{}-{}-", Operation::Modify, volume.id().unwrap_or_default()));
    drop(index);
    Seen {
        claim,
        recipe: recipe.clone(),
        wished,
        node: node.to_owned(),
        jobs: runs,
        starting,
        alive_on: pods
            .iter()
            .filter(|pod| pod.marks.operation == Operation::Modify.as_str() && !pod.is_over())
            .filter_map(|pod| pod.node.clone())
            .collect(),
        pods_alive: pods_alive(pods, Operation::Modify),
        others_alive: pods_alive(pods, Operation::Provision) || pods_alive(pods, Operation::Expand),
    }
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
            wished: self.wished.as_ref().map_err(String::clone),
            runs,
            starting: self.starting,
            pods_alive: self.pods_alive,
            lost: places.lost(&self.alive_on).map(String::as_str),
            others_alive: self.others_alive,
        }
    }

    /// Whether the end of what was started is waited for without an event.
    pub(super) fn is_starting(&self) -> bool {
        self.starting
    }
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
    let failed = tell.as_ref().is_some_and(|tell| tell.warning);
    let (before, after) = if failed { (tell, None) } else { (None, tell) };
    told(before);
    let with = |volume: Volume| Next::With(Box::new(volume));
    let next = match step {
        Step::Nothing => Next::Pass(match wake_at {
            None if seen.is_starting() => Pass::After(EXPECTED),
            wake_at => context.wait(wake_at, &[]),
        }),
        Step::Report(report) => {
            let Some(claim) = &seen.claim else { return Ok(Next::Pass(Pass::Done)) };
            // The volume may have its attributes since: a cache that lags must not tell of what is over.
            let fresh = context.writes.read_volume(&volume.name).await?;
            if fresh.is_none_or(|fresh| fresh.resource_version != volume.resource_version) {
                return Err(WriteError::Conflict(format!("volume {}", volume.name)));
            }
            let ts = context.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            learnt.claim = Some(context.writes.report_modification(claim, &report, &ts).await?);
            let changed = claim.modification.as_ref().is_some_and(|modification| modification.is_under_way());
            if matches!(report, Report::Finished { .. }) && changed {
                context.metrics.modified(&volume.class);
            }
            Next::Again
        }
        Step::Start { attempt, attributes } => start(context, volume, seen, attempt, attributes).await?,
        Step::Apply(applied) => with(context.writes.apply_attributes(volume, &applied).await?),
        Step::Note(note) => {
            if failed {
                context.metrics.modify_failed(&volume.class);
            }
            with(context.writes.note_modification(volume, Some(&note)).await?)
        }
        Step::Forget => with(context.writes.note_modification(volume, None).await?),
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

async fn start(
    context: &Context,
    volume: &Volume,
    seen: &Seen,
    attempt: u32,
    attributes: Attributes,
) -> Result<Next, WriteError> {
    let (Ok(recipe), Some(claim)) = (&seen.recipe, &seen.claim) else { return Ok(Next::Pass(Pass::Done)) };
    // Storage must not be changed by what a cache says.
    let fresh = context.writes.read_claim(&claim.name).await?;
    let changed = |fresh: &Claim| fresh.uid != claim.uid || wish(fresh) != wish(claim) || fresh.deleting;
    if fresh.as_ref().is_none_or(changed) {
        return Err(WriteError::Conflict(format!("claim {}", claim.name)));
    }
    let source = context.writes.volume_source(volume).await?;
    let run = (attempt, timestamp(context));
    let asked = request(volume, &seen.node, recipe, &context.identity, &context.kube_api, run, source);
    let asked = modify(asked, volume, recipe, &attributes);
    let pinned = recipe.placement == Placement::SelectedNode && !seen.node.is_empty();
    let place = Place {
        namespace: recipe.config.namespace.clone(),
        node: pinned.then(|| seen.node.clone()),
        // Each target has Jobs of its own: the success of one is never taken for that of another.
        scope: format!("{}-{}", volume.uid, attributes.hash()),
        volume: Some(volume.name.clone()),
        attributes: Some(attributes.clone()),
        ..Place::default()
    };
    let (kind, cause) = match context.create_job(&job::job(recipe, &asked, &place)).await {
        Ok(()) => {
            let message = format!("run {attempt} to {}: image {}", attributes.words(), recipe.image);
            context.tell(claims::about(claim), Tell { warning: false, reason: reason::MODIFYING, message });
            return Ok(Next::Pass(Pass::Started));
        }
        Err(error) => refused_job(error)?,
    };
    let decision = failed_start(volume, (attempt, &attributes), recipe, &cause, kind, context.clock.now());
    if let Some(tell) = decision.tell {
        context.tell(claims::about(claim), tell);
    }
    let Step::Note(note) = decision.step else { return Ok(Next::Pass(Pass::Done)) };
    context.metrics.modify_failed(&volume.class);
    Ok(Next::With(Box::new(context.writes.note_modification(volume, Some(&note)).await?)))
}

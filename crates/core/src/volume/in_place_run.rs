//! In-place runs: expand and modify runs. They change the size or the attributes of a volume that a claim uses. This is
//! their common part.

use flex_contract::exit::Reaction;

use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::failed_run::FailedRun;
use crate::model::phase::ClaimPhase;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::rules::NewEvent;
use crate::run;
use crate::run::backoff::{delay, next_try_at, not_before};
use crate::run::decide::{Goal, Next, Seen, SeenRun, What};
use crate::run::rule::Rule;
use crate::run::state::RunState;
use crate::run::view::Job;

/// The delay after which a volume checks again for the end of a pod, in seconds. A change of the pod requeues only the
/// volumes that the index finds by the pod's Job or id. Any other volume depends on this delay.
pub(super) const POD_END_POLL: i64 = 5;

/// One expand or modify run.
#[derive(Clone, Debug)]
pub struct InPlaceRun<'a> {
    /// The Job of the run.
    pub job: &'a Job,
    /// The state of the run.
    pub state: RunState,
}

impl InPlaceRun<'_> {
    /// Checks that no process of the run is running any more.
    fn is_over(&self) -> bool {
        self.job.is_over || matches!(self.state, RunState::Succeeded | RunState::Failed { pods_ended: true, .. })
    }
}

/// The runs of one operation for a volume.
#[derive(Clone, Debug)]
pub struct InPlaceRuns<'a> {
    /// The runs whose Jobs exist.
    pub all: &'a [InPlaceRun<'a>],
    /// The Job of the next run was created a moment ago and is not in the cache.
    pub is_starting: bool,
    /// A pod of one of the runs may still be running.
    pub has_running_pods: bool,
    /// The node of a pod of one of the runs, if the node is not reachable.
    pub node_not_reachable: Option<&'a str>,
    /// A pod of another run that makes or changes the volume may still be running.
    pub has_other_running_pods: bool,
}

impl<'a> InPlaceRuns<'a> {
    /// Checks whether a run is in progress.
    pub(super) fn is_in_progress(&self) -> bool {
        self.is_starting || self.has_running_pods || self.all.iter().any(|run| !run.is_over())
    }

    /// Returns the Jobs of the runs.
    pub(super) fn jobs(&self) -> Vec<&'a Job> {
        self.all.iter().map(|run| run.job).collect()
    }

    /// Returns the runs for [`InPlaceRuns::seen`]. `describe` adds what depends on the request and on the notes.
    pub(super) fn seen_runs(&self, describe: impl Fn(&Job, SeenRun<'a>) -> SeenRun<'a>) -> Vec<SeenRun<'a>> {
        let seen = |run: &'a InPlaceRun<'a>| SeenRun {
            job: Some(run.job),
            state: &run.state,
            is_over: run.is_over(),
            is_noted: false,
            is_needed: true,
            is_outdated: false,
        };
        self.all.iter().map(|run| describe(run.job, seen(run))).collect()
    }

    /// Returns the observation for the decision about runs.
    pub(super) fn seen<'s>(&'s self, runs: &'s [SeenRun<'s>]) -> Seen<'s> {
        Seen {
            runs,
            is_starting: self.is_starting,
            has_pods: self.has_running_pods,
            others_have_pods: self.has_other_running_pods,
            unreachable: self.node_not_reachable,
        }
    }

    /// Decides how all runs end: by a rule, and maybe with a Job to delete. Returns `None` if no run is left.
    pub(super) fn end(&self, now: i64) -> Option<(Rule, Option<ObjectName>)> {
        let runs = self.seen_runs(|_, run| run);
        let outcome = run::decide::decide(&Goal::End, &self.seen(&runs), now)?;
        let job = match outcome.what {
            What::Remove(job) => Some(job.name.clone()),
            _ => None,
        };
        Some((outcome.rule, job))
    }
}

/// Returns the next run, after a failure with the same target and recipe. It asks for a slot when it starts, and it is on
/// the node of the volume, which nothing replaces.
pub(super) fn next_run<'a>(
    volume: &Volume,
    failed: Option<impl Into<FailedRun<'a>>>,
    recipe: &Recipe,
    is_prepared: bool,
    now: i64,
) -> Next<'static> {
    let due = failed.map_or(now, |failed| {
        let FailedRun { reaction, at, failures, .. } = failed.into();
        next_try_at(volume.retry, reaction, at, failures, recipe, now)
    });
    Next { due, poll: Some(POD_END_POLL), has_slot: true, is_prepared, node: None }
}

/// Checks whether a run would not be started like this now: by another recipe, or on another node. An admin may have named
/// another node since the run began.
pub(super) fn is_outdated(volume: &Volume, recipe: &Result<&Recipe, String>, job: &Job) -> bool {
    let recorded = job.node.as_ref().and_then(|_| volume.origin_node());
    let is_elsewhere = recorded.is_some() && job.node != recorded;
    is_elsewhere || recipe.as_ref().is_ok_and(|recipe| recipe.version() != job.recipe_version)
}

/// A run that has failed because its Job could not be created.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedStart<N> {
    /// The note about it, for the volume.
    pub note: N,
    /// The event about it.
    pub event: NewEvent,
}

/// Returns the claim if it exists and is bound to the volume, and the volume is adopted and not terminating. Only then
/// can a run change the volume.
pub(super) fn bound_claim<'a>(volume: &Volume, claim: Option<&'a Claim>) -> Option<&'a Claim> {
    let bound = |claim: &&Claim| {
        claim.is_bound() && claim.phase == ClaimPhase::Bound && claim.volume_name.as_deref() == Some(&volume.name)
    };
    claim.filter(bound).filter(|claim| !claim.is_held() && volume.is_adopted() && !volume.terminating)
}

/// Says when the next try is. `another` is what the claim may request instead.
pub(super) fn next_try_text(reaction: Reaction, failures: u32, recipe: Option<&Recipe>, another: &str) -> String {
    match (reaction, recipe) {
        (Reaction::Never, _) => not_before(&format!("the claim asks for {another}, or the provisioner config changes")),
        (_, Some(recipe)) => format!("next try in {} s", delay(recipe, failures)),
        (_, None) => "next try when its provisioner config is known".to_owned(),
    }
}

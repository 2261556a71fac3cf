//! In-place runs: expand and modify runs. They change the size or the attributes of a volume that a claim uses. This is
//! their common part.

use flex_contract::exit::Reaction;

use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::phase::ClaimPhase;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::rules::NewEvent;
use crate::run::backoff::{delay, not_before};
use crate::run::state::{Cause, RunState};
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
    pub(super) fn is_over(&self) -> bool {
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
    /// Returns the run that is in progress or stuck.
    pub(super) fn current(&self) -> Option<&'a InPlaceRun<'a>> {
        self.all.iter().find(|run| !run.is_over() && run.state != RunState::NotCached)
    }

    /// Checks whether a run is in progress.
    pub(super) fn is_in_progress(&self) -> bool {
        self.is_starting || self.has_running_pods || self.current().is_some()
    }

    /// Checks whether a pod of any run may still work on the volume. Nothing else can begin then.
    pub(super) fn is_volume_busy(&self) -> bool {
        self.has_running_pods || self.has_other_running_pods
    }

    /// Returns the state of the run that comes first. `is_wanted` checks whether the request still asks for the target
    /// of a run, on its node; `recipe` is that of the next run.
    pub(super) fn progress(
        &self,
        recipe: &Result<&Recipe, String>,
        is_wanted: impl Fn(&Job) -> bool,
    ) -> Option<Progress<'a>> {
        let Some(InPlaceRun { job, state }) = self.current() else {
            return self.is_starting.then_some(Progress::Starting);
        };
        Some(match state {
            _ if job.terminating => Progress::Stopping,
            RunState::Stuck { cause, .. } => {
                let is_outdated = recipe.as_ref().is_ok_and(|recipe| recipe.version() != job.recipe_version);
                if is_outdated || !is_wanted(job) { Progress::Outdated(job) } else { Progress::Stuck(job, cause) }
            }
            _ => Progress::Running(job),
        })
    }

    /// Returns a run of a released volume that must end before anything else is done with the volume.
    pub(super) fn leftover(&self) -> Option<LeftoverRun> {
        if let Some(run) = self.all.iter().find(|run| !run.job.terminating) {
            return Some(LeftoverRun::InProgress(run.job.name.clone()));
        }
        let is_ending = self.is_starting || self.has_running_pods || self.all.iter().any(|run| !run.is_over());
        is_ending.then_some(LeftoverRun::Ending)
    }
}

/// The progress of the run that comes first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress<'a> {
    /// The Job of the run was created a moment ago, and is not in the cache.
    Starting,
    /// The Job of the run is terminating.
    Stopping,
    /// The run is stuck, and request, recipe or node have changed since.
    Outdated(&'a Job),
    /// The run is stuck, for this cause.
    Stuck(&'a Job, &'a Cause),
    /// The run is in progress.
    Running(&'a Job),
}

/// A run that must end before anything else is done with a released volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeftoverRun {
    /// This Job must be deleted.
    InProgress(ObjectName),
    /// All Jobs are terminating or gone, and a pod may still run.
    Ending,
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
    claim.filter(bound).filter(|claim| !claim.has_finalizer() && volume.is_adopted() && !volume.terminating)
}

/// Checks whether a run is on the node of the volume's record, if both name one. An admin may have named another node since
/// the run began.
pub(super) fn is_on_recorded_node(volume: &Volume, job: &Job) -> bool {
    let recorded = job.node.as_ref().and_then(|_| volume.origin_node());
    recorded.is_none() || job.node == recorded
}

/// Says when the next try is. `another` is what the claim may request instead.
pub(super) fn next_try_text(reaction: Reaction, failures: u32, recipe: Option<&Recipe>, another: &str) -> String {
    match (reaction, recipe) {
        (Reaction::Never, _) => not_before(&format!("the claim asks for {another}, or the provisioner config changes")),
        (_, Some(recipe)) => format!("next try in {} s", delay(recipe, failures)),
        (_, None) => "next try when its provisioner config is known".to_owned(),
    }
}

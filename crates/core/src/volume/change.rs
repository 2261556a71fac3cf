//! What runs that change a volume have in common, whether they change its size or its attributes.

use contract::exit::Failure;

use super::Volume;
use crate::claim::Claim;
use crate::config::Recipe;
use crate::decision::Decision;
use crate::object::ObjectName;
use crate::run::backoff::{SLOW, pause, seconds};
use crate::run::state::RunState;
use crate::run::view::Job;

/// The end of a pod concerns its claim; the volume looks again, in seconds.
pub(super) const POD_ENDS: i64 = 5;

/// One run that changes the volume.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Its Job.
    pub job: &'a Job,
    /// What became of it.
    pub state: RunState,
}

impl Run<'_> {
    /// Nothing works at it any more.
    pub(super) fn is_over(&self) -> bool {
        self.job.over || matches!(self.state, RunState::Succeeded | RunState::Failed { settled: true, .. })
    }
}

/// The runs of one operation for a volume.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// Those whose Jobs are there.
    pub all: &'a [Run<'a>],
    /// The Job of the next one was created a moment ago and is not seen yet.
    pub starting: bool,
    /// A pod of one of them may still be running.
    pub pods_alive: bool,
    /// The node of a pod of one of them, if it does not answer.
    pub lost: Option<&'a str>,
    /// A pod of another run that makes or changes the volume may still be running.
    pub others_alive: bool,
}

impl<'a> Runs<'a> {
    /// The one that goes on, or cannot.
    pub(super) fn current(&self) -> Option<&'a Run<'a>> {
        self.all.iter().find(|run| !run.is_over() && run.state != RunState::Absent)
    }

    /// One is being worked at.
    pub(super) fn is_under_way(&self) -> bool {
        self.starting || self.pods_alive || self.current().is_some()
    }

    /// Nothing else can begin: a pod may still be at the volume.
    pub(super) fn is_occupied(&self) -> bool {
        self.pods_alive || self.others_alive
    }

    /// What must end before anything else is done with a volume whose claim is gone. `now` is in seconds since 1970.
    pub(super) fn stopping<S: Default>(&self, remove: impl Fn(ObjectName) -> S, now: i64) -> Option<Decision<S>> {
        if let Some(run) = self.all.iter().find(|run| !run.job.deleting) {
            return Some(remove(run.job.name.clone()).into());
        }
        let goes_on = self.starting || self.pods_alive || self.all.iter().any(|run| !run.is_over());
        goes_on.then(|| Decision::from(S::default()).until(now + POD_ENDS))
    }
}

/// The claim, if it lives, is bound to the volume, and the volume is whole: only then is there something to change.
pub(super) fn of_bound<'a>(volume: &Volume, claim: Option<&'a Claim>) -> Option<&'a Claim> {
    let bound = |claim: &&Claim| {
        claim.is_bound() && claim.phase == "Bound" && claim.volume_name.as_deref() == Some(&volume.name)
    };
    claim.filter(bound).filter(|claim| !claim.is_held() && volume.is_adopted() && !volume.deleting)
}

/// When a run may be tried again that failed at a time for the last of so many tries, in seconds since 1970.
pub(super) fn due(kind: Failure, at: i64, tries: u32, recipe: &Recipe) -> i64 {
    at.saturating_add(match kind {
        Failure::Never => seconds(SLOW),
        Failure::Retry | Failure::NoRoom => pause(recipe, tries),
    })
}

/// The same in words. `another` is what the claim may ask for instead.
pub(super) fn next_try(kind: Failure, tries: u32, recipe: Option<&Recipe>, another: &str) -> String {
    match (kind, recipe) {
        (Failure::Never, _) => format!(
            "a retry would fail, too, so the next try is when the claim asks for {another}, the provisioner config changes, or in {} min",
            SLOW.as_secs() / 60
        ),
        (_, Some(recipe)) => format!("next try in {} s", pause(recipe, tries)),
        (_, None) => "next try when its provisioner config is known".to_owned(),
    }
}

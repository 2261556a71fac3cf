//! The orchestrator's judgement on a run that has ended, with its events.

use flex_contract::capacity::Answer;
use flex_contract::exit::Reaction;
use flex_contract::listing;
use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::reason::{self, Reason};
use flex_core::claim::decide::{ASK_SCHEDULER, failure_text, no_volume_cause, refusal_text};
use flex_core::claim::verify::mismatches;
use flex_core::config::Recipe;
use flex_core::config::classes::BindingMode;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::run::failure::LastFailure;
use flex_core::run::node::NodeLabels;
use flex_core::run::phase::PodPhase;
use flex_core::run::state::{Cause, RunState, state};
use flex_core::run::view::{ContainerEnd, Job, JobEnd, Pod};
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::desk::Ended;
use crate::setting::Setting;

/// The reason of Kubernetes for a Job that was in progress for too long.
const DEADLINE: &str = "DeadlineExceeded";
/// The reason of a `list` or `capacity` run without its answer.
const NO_ANSWER: &str = "NoAnswer";
/// The name of the run's Job and pod.
const RUN: &str = "desk";

/// An event as `kubectl describe` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Event {
    /// The type: `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The judgement about a run.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The failure, if the run has failed by its exit code or its deadline.
    pub failure: Option<Cause>,
    /// The reasons why the volume would be quarantined.
    pub mismatches: Vec<String>,
    /// The events that the users read.
    pub events: Vec<Event>,
}

impl Verdict {
    /// Checks whether the run succeeded and its volume fits.
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.mismatches.is_empty()
    }
}

/// Returns the state of the run, as the orchestrator derives it from Job and pod.
pub fn run_state(ended: &Ended) -> RunState {
    let success = ended.code == 0 && !ended.timed_out;
    let at = 1;
    let failed = (!success).then(|| JobEnd {
        reason: if ended.timed_out { DEADLINE } else { "BackoffLimitExceeded" }.into(),
        message: String::new(),
        at,
    });
    let job = Job { uid: RUN.into(), complete: success, failed, is_over: true, had_pods: true, ..Job::default() };
    let end = ContainerEnd {
        container: CONTAINER.into(),
        code: ended.code,
        reason: if ended.not_started.is_some() { "StartError" } else { "Error" }.into(),
        message: ended.not_started.clone().unwrap_or_else(|| ended.last_words()),
        at,
    };
    let pod = Pod {
        job: RUN.into(),
        job_uid: RUN.into(),
        phase: if success { PodPhase::Succeeded } else { PodPhase::Failed },
        terminated: Some(end),
        reads_log: ended.message_from_log,
        started: true,
        ..Pod::default()
    };
    state(Some(&job), &[&pod], &[])
}

/// Judges a run. `volume` is the PersistentVolume of the run's id, if there is one.
pub fn verdict(
    setting: &Setting,
    operation: Operation,
    claim: &Claim,
    volume: Option<&PersistentVolume>,
    ended: &Ended,
) -> Verdict {
    let failed = match run_state(ended) {
        RunState::Failed { cause, reaction, .. } => Some((cause, reaction)),
        _ => None,
    };
    let failed = failed.or_else(|| unanswered(operation, ended).map(|cause| (cause, Reaction::Retry)));
    if operation != Operation::Provision {
        let events = failed.iter().map(|(cause, _)| warning(reason_of(operation), cause.message.clone())).collect();
        return Verdict { failure: failed.map(|(cause, _)| cause), mismatches: Vec::new(), events };
    }
    let recipe = &*setting.recipe;
    let Some(volume) = volume.map(Volume::from) else {
        let name = flex_contract::names::pv_name(&claim.volume_id());
        let (cause, reaction) = failed.unwrap_or_else(|| (no_volume_cause(Some(recipe), &name), Reaction::Retry));
        let events = vec![warning(reason::PROVISIONING_FAILED, failure(setting, &cause, reaction, recipe))];
        return Verdict { failure: Some(cause), mismatches: Vec::new(), events };
    };
    let node = setting.node().map(|node| NodeLabels { node, labels: &setting.site.labels });
    let mismatches = mismatches(&volume, claim, recipe, node);
    let events = match mismatches.is_empty() {
        true => vec![Event {
            kind: "Normal",
            reason: reason::PROVISIONING_SUCCEEDED.name,
            message: format!("volume {} is bound", volume.name),
        }],
        false => vec![warning(reason::VOLUME_REFUSED, refusal_text(&volume.name, &mismatches.join("; ")))],
    };
    // A claim is bound as soon as its volume exists, even if the run fails afterwards.
    Verdict { failure: failed.map(|(cause, _)| cause), mismatches, events }
}

/// Returns why a run that must answer has not.
fn unanswered(operation: Operation, ended: &Ended) -> Option<Cause> {
    let error = match operation {
        Operation::List => listing::read(&ended.log).err()?.to_string(),
        Operation::Capacity => Answer::read(&ended.last_words()).err()?.to_string(),
        _ => return None,
    };
    Some(Cause::new(NO_ANSWER, error))
}

fn failure(setting: &Setting, cause: &Cause, reaction: Reaction, recipe: &Recipe) -> String {
    let waits = asks_scheduler(setting);
    let failure = LastFailure::new(Operation::Provision, 1, 0, cause, reaction);
    failure_text(&failure, waits.then_some(ASK_SCHEDULER), Some(recipe))
}

/// Checks whether the orchestrator asks the scheduler for another node if a provision run finds no room.
pub fn asks_scheduler(setting: &Setting) -> bool {
    setting.class.binding == BindingMode::WaitForFirstConsumer && setting.recipe.is_local()
}

fn warning(reason: &Reason, message: String) -> Event {
    Event { kind: "Warning", reason: reason.name, message }
}

/// Returns the reason of the event about a failed run.
fn reason_of(operation: Operation) -> &'static Reason {
    match operation {
        Operation::Provision | Operation::MoveIn | Operation::MoveOut => reason::PROVISIONING_FAILED,
        Operation::Delete => reason::VOLUME_FAILED_DELETE,
        Operation::Expand => reason::VOLUME_RESIZE_FAILED,
        Operation::Modify => reason::VOLUME_MODIFY_FAILED,
        Operation::Snapshot => reason::SNAPSHOT_CREATION_FAILED,
        Operation::DeleteSnapshot => reason::SNAPSHOT_DELETION_FAILED,
        Operation::Capacity | Operation::List => reason::CAPACITY_FAILED,
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

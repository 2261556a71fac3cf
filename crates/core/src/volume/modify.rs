//! Decides how a volume gets other attributes. This is a part of the table of rules for volumes, and concerns a volume
//! that is bound to an existing claim.
//!
//! The [rules](Rule) say when it takes which step. "The request" is the VolumeAttributesClass that the claim names. "A
//! run" is a Job of the operation `modify`.
//!
//! By the contract, a run that failed with *never for this request* has changed nothing. After any other failure the
//! volume may have some old and some new attributes, until a run succeeds. The same holds if the Job and the pods of a
//! run are gone, and its end was not seen. For this reason the orchestrator records a run on the volume before it
//! creates the Job. So a claim that returns to its old class after such a failure gets a run to the old class. Its
//! status says that the modification is finished only after that run has succeeded.
//!
//! Once a class is in effect, a claim cannot return to no class at all: the API refuses it.

use flex_contract::exit::Reaction;
use flex_contract::reason;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::config::Recipe;
use crate::config::modify::{Attributes, CAPABILITY};
use crate::model::claim::Claim;
use crate::model::modify_update::ModifyUpdate;
use crate::model::volume::Volume;
use crate::model::volume_notes::{AppliedAttributes, PendingModification};
use crate::object::ObjectName;
use crate::rules::NewEvent;
use crate::rules::{self, Rule as _};
use crate::run::backoff::{clamp_to_recent, next_asked_try_at};
use crate::run::node::unreachable_message;
use crate::run::state::{Cause, JobRefusal, RunState};
use crate::run::view::Job;
use crate::volume::in_place_run::{
    FailedStart, InPlaceRun, InPlaceRuns, POD_END_POLL, Progress, bound_claim, is_on_recorded_node, next_try_text,
};

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume's claim, if it exists.
    pub claim: Option<&'a Claim>,
    /// The recipe of a run, or the reason why it is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The attributes that the claim requests, or the reason why they are not available.
    pub requested_attributes: Result<&'a Attributes, String>,
    /// The modify runs of the volume.
    pub runs: InPlaceRuns<'a>,
}

/// The next step for a volume's attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Writes the state of the modification into the claim's status.
    WriteStatus(ModifyUpdate),
    /// Creates the Job of a run.
    Start {
        /// The number of the run.
        attempt: u32,
        /// The target attributes.
        attributes: Attributes,
    },
    /// Writes the new attributes on the volume.
    WriteAttributes(AppliedAttributes),
    /// Records that a run begins, or that one failed.
    Record(PendingModification),
    /// Removes the note on modify runs from the volume.
    ClearNote,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
}

/// The rules of a volume's attributes, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A run was started a moment ago. Waits until its Job is visible.
    ModifyRunStarting,
    /// A run is being stopped. Waits for its end.
    ModifyRunStopping,
    /// A run is stuck, and request, recipe or node have changed since. Deletes its Job.
    ModifyStuckRunOutdated,
    /// A run is stuck. Reports that on the claim, and emits an event.
    ModifyRunStuck,
    /// A run is in progress. Reports that on the claim, and waits for its end, whatever the request. Emits an event if
    /// its node does not answer.
    ModifyRunInProgress,
    /// A run has succeeded, and the volume does not have its attributes. Writes them on the volume.
    ModifyRunSucceeded,
    /// A run has ended, its result is recorded, and the volume has the requested attributes. Deletes its Job.
    ModifyJobNotNeeded,
    /// A run has failed, and a pod of it may still run. Waits for its end.
    ModifyFailedRunEnding,
    /// A run has failed. Records the failure, and emits an event.
    ModifyRunFailed,
    /// The volume has the requested attributes, and no later run may have changed some of them. Reports that on the
    /// claim.
    ModifyRequestReached,
    /// The request is reached, a note on modify runs is left, and no run is. Removes the note.
    ModifyNoteOutdated,
    /// The requested class does not exist, or is not one of the volume's driver. Reports that on the claim, and emits
    /// an event.
    ModifyRequestNotAvailable,
    /// A run is necessary, but the recipe is not known, or the image cannot modify. Reports that on the claim, and
    /// emits an event.
    ModifyNotSupported,
    /// A run is necessary, and the claim is terminating. Does nothing.
    ModifyClaimTerminating,
    /// The last run to these attributes failed, and the next is not due. Reports that on the claim, and waits.
    ModifyAttemptNotDue,
    /// A run is due, and a pod of another run that makes or changes the volume may still run. Waits for its end.
    ModifyPodRunning,
    /// A run is due. Reports on the claim that it begins.
    ReportModifyAttempt,
    /// A run is due, and reported. Records on the volume that it begins.
    RecordModifyAttempt,
    /// A run is due, reported, and recorded. Starts it.
    ModifyAttemptDue,
}

rules::table!(Rule, Step, "volume");

/// A decision about a volume's attributes.
pub type Decision = rules::Decision<Rule>;

/// Checks whether the volume has the requested attributes, as far as is known. A class cannot be removed.
fn has_requested_attributes(volume: &Volume, claim: &Claim) -> bool {
    claim.attributes_class.is_none() || claim.attributes_class == volume.attributes().class
}

/// Checks whether the volume may have some old and some new attributes. This is so after most failures, and while the
/// end of a recorded run is not known.
fn has_unknown_attributes(volume: &Volume) -> bool {
    volume
        .pending_modification
        .as_ref()
        .is_some_and(|note| note.has_unknown_attributes || note.begun_attempt > note.failed_attempt)
}

/// Checks whether the status of a bound claim must be updated, because it does not say that the claim has the requested
/// attributes.
pub fn needs_status_update(volume: &Volume, claim: &Claim) -> bool {
    let finished = ModifyUpdate::Finished { class: volume.attributes().class.clone() };
    claim.is_bound()
        && (!has_requested_attributes(volume, claim)
            || volume.pending_modification.is_some()
            || !finished.is_written(claim))
}

/// Decides the next step for the attributes of a volume; `None` if they need nothing. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Option<Decision> {
    let claim = bound_claim(volume, o.claim)?;
    running(volume, claim, o).or_else(|| ended(volume, claim, o, now)).or_else(|| {
        match (has_requested_attributes(volume, claim), has_unknown_attributes(volume)) {
            (true, false) => reached(volume, claim, o),
            // A run may have changed some of the attributes. Another run restores them.
            (true, true) => Some(decide_run(volume, claim, o, volume.attributes(), now)),
            (false, _) => Some(match &o.requested_attributes {
                Ok(attributes) => decide_run(volume, claim, o, attributes, now),
                Err(why) => pending(Rule::ModifyRequestNotAvailable, claim, why.clone()),
            }),
        }
    })
}

/// Decides to write a report, unless it is already written.
fn reporting(rule: Rule, claim: &Claim, report: ModifyUpdate) -> Decision {
    rule.step(if report.is_written(claim) { Step::Nothing } else { Step::WriteStatus(report) })
}

/// Reports that the request cannot be met, and emits an event.
fn pending(rule: Rule, claim: &Claim, why: String) -> Decision {
    reporting(rule, claim, ModifyUpdate::Pending { class: claim.attributes_class.clone() })
        .with_warning(reason::VOLUME_MODIFY_FAILED, why)
}

/// Returns the failure of the last run, if it had these target attributes.
fn last<'a>(volume: &'a Volume, attributes: &Attributes) -> Option<&'a PendingModification> {
    volume
        .pending_modification
        .as_deref()
        .filter(|note| note.failed_attempt > 0 && note.failed_target == attributes.hash())
}

/// Decides while a run is in progress or stuck.
fn running(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Option<Decision> {
    let is_asked_for = |job: &Job| match has_requested_attributes(volume, claim) {
        true => target_of(job) == *volume.attributes(),
        false => target_of(job).class == claim.attributes_class,
    };
    let is_wanted = |job: &Job| is_asked_for(job) && is_on_recorded_node(volume, job);
    Some(match o.runs.progress(&o.recipe, is_wanted)? {
        Progress::Starting => Rule::ModifyRunStarting.nothing(),
        Progress::Stopping => Rule::ModifyRunStopping.nothing(),
        Progress::Outdated(job) => Rule::ModifyStuckRunOutdated.step(Step::RemoveJob { job: job.name.clone() }),
        Progress::Stuck(job, cause) => {
            let target = target_of(job);
            let message = format!("the run to {} does not progress: {}", target.describe(), cause.message);
            let report = ModifyUpdate::Modifying { class: target.class, error: Some(cause.message.clone()) };
            reporting(Rule::ModifyRunStuck, claim, report).with_warning(reason::VOLUME_MODIFY_FAILED, message)
        }
        Progress::Running(job) => {
            let target = target_of(job);
            let error = last(volume, &target).map(|failed| failed.message.clone());
            let report = ModifyUpdate::Modifying { class: target.class, error };
            let waiting = reporting(Rule::ModifyRunInProgress, claim, report);
            match o.runs.node_not_reachable {
                Some(node) => waiting.with_warning(reason::VOLUME_MODIFY_FAILED, unreachable_message(node)),
                None => waiting,
            }
        }
    })
}

/// Returns the target attributes of a run.
fn target_of(job: &Job) -> Attributes {
    job.attributes.clone().unwrap_or_default()
}

/// Decides about runs that have ended.
fn ended(volume: &Volume, claim: &Claim, o: &Observed<'_>, now: i64) -> Option<Decision> {
    let failed = volume.pending_modification.as_ref().map_or(0, |failed| failed.failed_attempt);
    let known = volume.applied.as_ref().map_or(0, |applied| applied.run).max(failed);
    let is_unrecorded = |run: &&InPlaceRun<'_>| run.job.run_labels.attempt > known;
    let succeeded = o.runs.all.iter().filter(is_unrecorded).filter(|run| run.state == RunState::Succeeded);
    if let Some(run) = succeeded.max_by_key(|run| run.job.run_labels.attempt) {
        let applied = AppliedAttributes { attributes: target_of(run.job), run: run.job.run_labels.attempt };
        return Some(Rule::ModifyRunSucceeded.step(Step::WriteAttributes(applied)));
    }
    let settled = has_requested_attributes(volume, claim) && !has_unknown_attributes(volume);
    let can_remove_job = |run: &&InPlaceRun<'_>| run.is_over() && (settled || run.state == RunState::Succeeded);
    let mut unfinished = o.runs.all.iter().filter(|run| !run.job.terminating);
    if let Some(run) = unfinished.clone().filter(|run| !is_unrecorded(run)).find(can_remove_job) {
        return Some(Rule::ModifyJobNotNeeded.step(Step::RemoveJob { job: run.job.name.clone() }));
    }
    unfinished.find_map(|run| match &run.state {
        RunState::Failed { pods_ended: false, .. } if is_unrecorded(&run) => {
            Some(Rule::ModifyFailedRunEnding.nothing())
        }
        RunState::Failed { cause, reaction, at, .. } if is_unrecorded(&run) => {
            let target = target_of(run.job);
            let ended = ModifyRun { attempt: run.job.run_labels.attempt, target: &target };
            let recipe_version = run.job.recipe_version.clone();
            let note = failure(volume, ended, recipe_version, cause, *reaction, clamp_to_recent(*at, now));
            let has_unknown_attributes = *reaction != Reaction::Never || note.has_unknown_attributes;
            let note = PendingModification { has_unknown_attributes, ..note };
            let event = failure_event(&note, &target, o.recipe.as_ref().ok().copied());
            Some(Decision { event: Some(event), ..Rule::ModifyRunFailed.step(Step::Record(note)) })
        }
        _ => None,
    })
}

/// A modify run, by its number and its target attributes.
#[derive(Clone, Copy, Debug)]
pub struct ModifyRun<'a> {
    /// The number of the run.
    pub attempt: u32,
    /// The target attributes.
    pub target: &'a Attributes,
}

/// Makes the note of a failed run.
fn failure(
    volume: &Volume,
    ModifyRun { attempt, target }: ModifyRun<'_>,
    recipe_version: String,
    cause: &Cause,
    reaction: Reaction,
    at: i64,
) -> PendingModification {
    let before = last(volume, target)
        .filter(|failed| failed.recipe_version == recipe_version)
        .map_or(0, |failed| failed.consecutive_failures);
    // Nobody knows the result of an earlier run whose end was not seen.
    let outcome_unknown = |note: &PendingModification| {
        note.has_unknown_attributes || (note.begun_attempt > note.failed_attempt && note.begun_attempt < attempt)
    };
    let later = volume.pending_modification.as_deref().filter(|note| note.begun_attempt > attempt);
    PendingModification {
        begun_attempt: later.map_or(attempt, |note| note.begun_attempt),
        begun_target: later.map_or_else(|| target.hash(), |note| note.begun_target.clone()),
        failed_attempt: attempt,
        failed_target: target.hash(),
        recipe_version,
        consecutive_failures: before.saturating_add(1),
        at,
        reaction,
        has_unknown_attributes: volume.pending_modification.as_deref().is_some_and(outcome_unknown),
        reason: cause.reason.clone(),
        message: cause.message.clone(),
    }
}

/// Makes the note and the event of a run whose Job could not be created. Such a run has changed nothing.
pub fn failed_start(
    volume: &Volume,
    run: ModifyRun<'_>,
    recipe: &Recipe,
    refusal: &JobRefusal,
    now: i64,
) -> FailedStart<PendingModification> {
    let note = failure(volume, run, recipe.version(), &refusal.cause, refusal.reaction, now);
    let event = failure_event(&note, run.target, Some(recipe));
    FailedStart { note, event }
}

/// Makes the event about a failed run.
fn failure_event(note: &PendingModification, target: &Attributes, recipe: Option<&Recipe>) -> NewEvent {
    let next = next_try_text(note.reaction, note.consecutive_failures, recipe, "another class");
    let message = format!(
        "modify run {} to {} failed: {}; {next}; the claim can return to its former class",
        note.failed_attempt,
        target.describe(),
        note.message
    );
    NewEvent { warning: true, reason: reason::VOLUME_MODIFY_FAILED, message }
}

/// Decides about a volume that has the requested attributes.
fn reached(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Option<Decision> {
    let attributes = volume.attributes();
    let report = ModifyUpdate::Finished { class: attributes.class.clone() };
    if !report.is_written(claim) {
        let message = format!("the volume has the attributes of {}", attributes.describe());
        return Some(
            Rule::ModifyRequestReached
                .step(Step::WriteStatus(report))
                .with_event(reason::VOLUME_MODIFY_SUCCESSFUL, message),
        );
    }
    (volume.pending_modification.is_some() && o.runs.all.is_empty())
        .then(|| Rule::ModifyNoteOutdated.step(Step::ClearNote))
}

/// Decides about a volume that needs a run to these attributes.
fn decide_run(volume: &Volume, claim: &Claim, o: &Observed<'_>, target: &Attributes, now: i64) -> Decision {
    let not_supported =
        |why: String| pending(Rule::ModifyNotSupported, claim, format!("the volume cannot be modified: {why}"));
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return not_supported(why.clone()),
    };
    if !recipe.can(CAPABILITY) {
        return not_supported(format!(
            "the provisioner config {} does not declare that its image can modify volumes (`capabilities: modify`)",
            recipe.config
        ));
    }
    if claim.terminating {
        return Rule::ModifyClaimTerminating.nothing();
    }
    let failed = last(volume, target);
    let error = failed.map(|failed| failed.message.clone());
    let report = ModifyUpdate::Modifying { class: target.class.clone(), error };
    let waits = |failed: &&PendingModification| failed.recipe_version == recipe.version();
    if let Some(failed) = failed.filter(waits) {
        let due = next_asked_try_at(volume.retry, failed.reaction, failed.at, failed.consecutive_failures, recipe, now);
        if now < due {
            let (class, error) = (target.class.clone(), failed.message.clone());
            let report = match failed.reaction {
                Reaction::Never => ModifyUpdate::Infeasible { class, error },
                Reaction::Retry | Reaction::NoCapacity => report,
            };
            return reporting(Rule::ModifyAttemptNotDue, claim, report).requeue_at(due);
        }
    }
    if o.runs.is_volume_busy() {
        return Rule::ModifyPodRunning.nothing().requeue_at(now + POD_END_POLL);
    }
    if !report.is_written(claim) {
        return Rule::ReportModifyAttempt.step(Step::WriteStatus(report));
    }
    let jobs: Vec<&Job> = o.runs.all.iter().map(|run| run.job).collect();
    match begun(volume, &jobs, target) {
        Some(attempt) => Rule::ModifyAttemptDue.step(Step::Start { attempt, attributes: target.clone() }),
        None => Rule::RecordModifyAttempt.step(Step::Record(beginning(volume, attempt(volume, &jobs), target))),
    }
}

/// Returns the number of a recorded run to these attributes that has no Job.
fn begun(volume: &Volume, jobs: &[&Job], target: &Attributes) -> Option<u32> {
    let note = volume.pending_modification.as_deref()?;
    let observed = jobs.iter().any(|job| job.run_labels.attempt >= note.begun_attempt);
    (note.begun_attempt > note.failed_attempt && note.begun_target == target.hash() && !observed)
        .then_some(note.begun_attempt)
}

/// Makes the note that a run begins.
fn beginning(volume: &Volume, begun: u32, target: &Attributes) -> PendingModification {
    let to = target.hash();
    let outcome_unknown = has_unknown_attributes(volume);
    match volume.pending_modification.as_deref() {
        Some(note) => PendingModification {
            begun_attempt: begun,
            begun_target: to,
            has_unknown_attributes: outcome_unknown,
            ..note.clone()
        },
        None => PendingModification {
            begun_attempt: begun,
            begun_target: to,
            failed_attempt: 0,
            failed_target: String::new(),
            recipe_version: String::new(),
            consecutive_failures: 0,
            at: 0,
            reaction: Reaction::Retry,
            has_unknown_attributes: false,
            reason: String::new(),
            message: String::new(),
        },
    }
}

/// Returns the number of the next run. Numbers increase over all requests, so that no Job of an earlier request counts
/// for the next.
fn attempt(volume: &Volume, jobs: &[&Job]) -> u32 {
    let noted = volume.pending_modification.as_ref().map(|note| note.failed_attempt.max(note.begun_attempt));
    let applied = volume.applied.as_ref().map(|applied| applied.run);
    let before = jobs.iter().map(|job| job.run_labels.attempt).chain(noted).chain(applied).max();
    before.unwrap_or_default().saturating_add(1)
}

#[cfg(test)]
#[path = "modify_tests.rs"]
mod tests;

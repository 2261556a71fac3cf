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
use strum::{EnumIter, EnumMessage, IntoStaticStr};

use crate::config::Recipe;
use crate::config::modify::{Attributes, CAPABILITY};
use crate::model::claim::Claim;
use crate::model::modify_update::ModifyUpdate;
use crate::model::volume::Volume;
use crate::model::volume_notes::{AppliedAttributes, PendingModification};
use crate::object::ObjectName;
use crate::rules::NewEvent;
use crate::rules::{self, Rule as _};
use crate::run;
use crate::run::decide::{Goal, Next, Outcome, SeenRun, What};
use crate::run::node::unreachable_message;
use crate::run::rule::{Rule as RunRule, Target};
use crate::run::state::{Cause, JobRefusal, RunState};
use crate::run::view::Job;
use crate::volume::in_place_run::{FailedStart, InPlaceRuns, bound_claim, is_outdated, next_run, next_try_text};

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

/// The rules of a volume's attributes, in their order: the first that holds applies. Those about the next run come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
pub enum Rule {
    /// A rule about a modify run.
    #[strum(disabled)]
    Run(Target, RunRule),
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
}

crate::run::rule::table_with_runs!(Rule, Step, "volume", [Attributes]);

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
    let has_requested = has_requested_attributes(volume, claim);
    let is_asked_for = |job: &Job| match has_requested {
        true => target_of(job) == *volume.attributes(),
        false => target_of(job).class == claim.attributes_class,
    };
    let is_settled = has_requested && !has_unknown_attributes(volume);
    let failed = volume.pending_modification.as_ref().map_or(0, |failed| failed.failed_attempt);
    let known = volume.applied.as_ref().map_or(0, |applied| applied.run).max(failed);
    let runs = o.runs.seen_runs(|job, run| {
        let (is_known, has_succeeded) = (job.run_labels.attempt <= known, *run.state == RunState::Succeeded);
        SeenRun {
            is_noted: is_known || (job.terminating && !has_succeeded),
            is_needed: !is_known || !(is_settled || has_succeeded),
            is_outdated: !is_asked_for(job) || is_outdated(volume, &o.recipe, job),
            ..run
        }
    });
    let target = match &o.requested_attributes {
        Ok(attributes) if !has_requested => *attributes,
        // A run may have changed some of the attributes. Another run restores them.
        _ => volume.attributes(),
    };
    let hindrance = if is_settled { None } else { hindrance(volume, claim, o) };
    let goal = match &o.recipe {
        Ok(recipe) if !is_settled && hindrance.is_none() => Goal::Run(next(volume, claim, o, recipe, target, now)),
        _ => Goal::Keep,
    };
    match run::decide::decide(&goal, &o.runs.seen(&runs), now) {
        Some(outcome) => Some(of_runs(volume, claim, o, target, outcome)),
        None if is_settled => reached(volume, claim, o),
        None => hindrance,
    }
}

/// Decides what follows from a decision about runs. `target` are the attributes that the volume is to have.
fn of_runs(
    volume: &Volume,
    claim: &Claim,
    o: &Observed<'_>,
    target: &Attributes,
    Outcome { rule, what, requeue_at }: Outcome<'_>,
) -> Decision {
    let of_run = Rule::Run(Target::Attributes, rule);
    let decision = match what {
        What::Wait { run: Some(SeenRun { job: Some(job), is_over: false, .. }), unreachable } if !job.terminating => {
            let waiting = reporting(of_run, claim, modifying(volume, &target_of(job)));
            match unreachable {
                Some(node) => waiting.with_warning(reason::VOLUME_MODIFY_FAILED, unreachable_message(node)),
                None => waiting,
            }
        }
        What::Wait { .. } if rule == RunRule::RunNotDue => {
            let never = last(volume, target).filter(|failed| failed.reaction == Reaction::Never);
            let infeasible = |failed: &PendingModification| {
                let (class, error) = (target.class.clone(), failed.message.clone());
                ModifyUpdate::Infeasible { class, error }
            };
            reporting(of_run, claim, never.map_or_else(|| modifying(volume, target), infeasible))
        }
        What::Stuck { run: SeenRun { job: Some(job), .. }, cause } => {
            let target = target_of(job);
            let message = format!("the run to {} does not progress: {}", target.describe(), cause.message);
            let report = ModifyUpdate::Modifying { class: target.class, error: Some(cause.message.clone()) };
            reporting(of_run, claim, report).with_warning(reason::VOLUME_MODIFY_FAILED, message)
        }
        What::Remove(job) => of_run.step(Step::RemoveJob { job: job.name.clone() }),
        What::Succeeded(SeenRun { job: Some(job), .. }) => {
            let succeeded = o.runs.all.iter().filter(|run| run.state == RunState::Succeeded).map(|run| run.job);
            let latest = succeeded.max_by_key(|job| job.run_labels.attempt).unwrap_or(job);
            let (attributes, run) = (target_of(latest), latest.run_labels.attempt);
            of_run.step(Step::WriteAttributes(AppliedAttributes { attributes, run }))
        }
        What::Failed { run: SeenRun { job: Some(job), .. }, cause, reaction, at } => {
            let target = target_of(job);
            let ended = ModifyRun { attempt: job.run_labels.attempt, target: &target };
            let note = failure(volume, ended, job.recipe_version.clone(), cause, reaction, at);
            let has_unknown_attributes = reaction != Reaction::Never || note.has_unknown_attributes;
            let note = PendingModification { has_unknown_attributes, ..note };
            let event = failure_event(&note, &target, o.recipe.as_ref().ok().copied());
            Decision { event: Some(event), ..of_run.step(Step::Record(note)) }
        }
        What::Prepare | What::Start { .. } => of_run.step(begin(volume, claim, o, target)),
        _ => of_run.nothing(),
    };
    Decision { requeue_at, ..decision }
}

/// Returns the report about a run to these attributes. It names the last failure of such a run.
fn modifying(volume: &Volume, target: &Attributes) -> ModifyUpdate {
    let error = last(volume, target).map(|failed| failed.message.clone());
    ModifyUpdate::Modifying { class: target.class.clone(), error }
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

/// Returns the target attributes of a run.
fn target_of(job: &Job) -> Attributes {
    job.attributes.clone().unwrap_or_default()
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

/// Decides that a volume gets no run that it needs; `None` if nothing prevents it.
fn hindrance(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Option<Decision> {
    let not_supported =
        |why: &str| pending(Rule::ModifyNotSupported, claim, format!("the volume cannot be modified: {why}"));
    match (&o.requested_attributes, &o.recipe) {
        (Err(why), _) if !has_requested_attributes(volume, claim) => {
            Some(pending(Rule::ModifyRequestNotAvailable, claim, why.clone()))
        }
        (_, Err(why)) => Some(not_supported(why)),
        (_, Ok(recipe)) if !recipe.can(CAPABILITY) => Some(not_supported(&format!(
            "the provisioner config {} does not declare that its image can modify volumes (`capabilities: modify`)",
            recipe.config
        ))),
        _ => claim.terminating.then(|| Rule::ModifyClaimTerminating.nothing()),
    }
}

/// Returns the next run, which is to these attributes.
fn next(
    volume: &Volume,
    claim: &Claim,
    o: &Observed<'_>,
    recipe: &Recipe,
    target: &Attributes,
    now: i64,
) -> Next<'static> {
    let failed = last(volume, target).filter(|failed| failed.recipe_version == recipe.version());
    let is_prepared = matches!(begin(volume, claim, o, target), Step::Start { .. });
    next_run(volume, failed, recipe, is_prepared, now)
}

/// Returns the step with which a run to these attributes begins: it is reported on the claim, then recorded on the volume,
/// and then started.
fn begin(volume: &Volume, claim: &Claim, o: &Observed<'_>, target: &Attributes) -> Step {
    let (report, jobs) = (modifying(volume, target), o.runs.jobs());
    match begun(volume, &jobs, target) {
        _ if !report.is_written(claim) => Step::WriteStatus(report),
        None => Step::Record(beginning(volume, attempt(volume, &jobs), target)),
        Some(attempt) => Step::Start { attempt, attributes: target.clone() },
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

//! Decides how a volume gets other attributes. This is a part of the table of volumes, for a volume that is bound to an
//! existing claim.
//!
//! The first row that holds applies. "The request" is the VolumeAttributesClass that the claim names. "A run" is a Job
//! of the operation `modify`.
//!
//! | # | | and | step |
//! |---|---|---|---|
//! | 1 | the claim is not bound to the volume, or the volume is not adopted or is terminating | | nothing |
//! | 2 | a run is stuck | request or recipe have changed | [`Step::RemoveJob`] |
//! | 3 | a run is stuck | | an event, [`Step::Report`] |
//! | 4 | a run is in progress, or is being stopped | | [`Step::Report`], then wait for its end, whatever the request; an event if its node does not answer |
//! | 5 | a run has succeeded | the volume does not say so | [`Step::Apply`] |
//! | 6 | a run has failed | the failure is not recorded | [`Step::Record`], when all its pods have ended |
//! | 7 | a run has ended | its result is recorded, and the volume has the requested attributes | [`Step::RemoveJob`] |
//! | 8 | the volume has the requested attributes, and no run has left it in between | the claim's status does not say so | [`Step::Report`] |
//! | 9 | the same | a failure is recorded, and no run is left | [`Step::Forget`] |
//! | 10 | the same | | nothing |
//! | 11 | the volume has the requested attributes, but a run may have left it in between | | as from row 13, to the attributes that it had |
//! | 12 | the volume has other attributes | the request cannot be met: the class does not exist, belongs to another driver, or the image cannot modify | [`Step::Report`] and an event |
//! | 13 | | the claim is terminating | nothing |
//! | 14 | | the last run with this target failed, and the next is not due | [`Step::Report`], then wait |
//! | 15 | | a pod of the volume may still run | wait for its end |
//! | 16 | | | [`Step::Report`], then [`Step::Record`], then [`Step::Start`] |
//!
//! By the contract, a run that failed with *never for this request* has changed nothing. After any other failure the
//! volume may be in between, until a run succeeds. The same holds for a run of which no trace is left. For this reason
//! the volume records a run before its Job exists. So a claim that returns to its old class after such a failure gets a
//! run to the old class. Its status says that it has the old class when that run has succeeded.
//!
//! Once a class is in effect, a claim cannot return to no class at all: the API refuses it.

use flex_contract::exit::Failure;
use flex_contract::names::reason;

use crate::attributes::{Attributes, CAPABILITY};
use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::modification::StatusUpdate;
use crate::model::volume::Volume;
use crate::model::volume_notes::{AppliedAttributes, PendingModification};
use crate::node::unreachable_message;
use crate::object::ObjectName;
use crate::run::backoff::clamp_to_recent;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;
use crate::volume::change::{POD_END_POLL, Run, Runs, bound_claim, due, next_try};

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
    pub runs: Runs<'a>,
}

/// The next step for a volume's attributes.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Writes the state of the modification into the claim's status.
    Report(StatusUpdate),
    /// Creates the Job of a run.
    Start {
        /// The number of the run.
        attempt: u32,
        /// The target attributes.
        attributes: Attributes,
    },
    /// Writes the new attributes on the volume.
    Apply(AppliedAttributes),
    /// Records that a run begins, or that one failed.
    Record(PendingModification),
    /// Removes the record from the volume.
    Forget,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
}

/// A decision about a volume's attributes: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

/// Returns the class that a claim requests; empty for none.
pub fn requested_class(claim: &Claim) -> &str {
    claim.attributes_class.as_deref().unwrap_or_default()
}

/// Checks whether the volume has the requested attributes, as far as is known. A class cannot be removed.
fn has_request(volume: &Volume, claim: &Claim) -> bool {
    let class = volume.attributes().class.as_str();
    let requested_class = requested_class(claim);
    requested_class == class || requested_class.is_empty()
}

/// Checks whether a run may have left the volume in between.
fn has_unknown_attributes(volume: &Volume) -> bool {
    volume.modification.as_ref().is_some_and(|note| note.has_unknown_attributes || note.begun > note.attempt)
}

/// Checks whether a bound claim does not say in its status that it has the requested attributes.
pub fn concerns(volume: &Volume, claim: &Claim) -> bool {
    let finished = StatusUpdate::Finished { class: volume.attributes().class.clone() };
    claim.is_bound() && (!has_request(volume, claim) || volume.modification.is_some() || !finished.is_written(claim))
}

/// Decides the next step for the attributes of a volume. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Decision {
    let Some(claim) = bound_claim(volume, o.claim) else { return Step::Nothing.into() };
    if let Some(decision) = running(volume, claim, o).or_else(|| ended(volume, claim, o, now)) {
        return decision;
    }
    match (has_request(volume, claim), has_unknown_attributes(volume)) {
        (true, false) => target_reached(volume, claim, o),
        (true, true) => change(volume, claim, o, volume.attributes(), now),
        (false, _) => match &o.requested_attributes {
            Ok(attributes) => change(volume, claim, o, attributes, now),
            Err(why) => pending(claim, why.clone()),
        },
    }
}

/// Returns the report, unless it is already written.
fn reporting(claim: &Claim, report: StatusUpdate) -> Decision {
    if report.is_written(claim) { Step::Nothing.into() } else { Step::Report(report).into() }
}

/// Decides row 12.
fn pending(claim: &Claim, why: String) -> Decision {
    reporting(claim, StatusUpdate::Pending { class: requested_class(claim).to_owned() })
        .with_warning(reason::MODIFY_FAILED, why)
}

/// Returns the failure of the last run, if it had these target attributes.
fn last<'a>(volume: &'a Volume, attributes: &Attributes) -> Option<&'a PendingModification> {
    volume.modification.as_deref().filter(|note| note.attempt > 0 && note.hash == attributes.hash())
}

/// Decides rows 2 to 4.
fn running(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Option<Decision> {
    let Some(run) = o.runs.current() else {
        return o.runs.is_starting.then(|| Step::Nothing.into());
    };
    if run.job.deleting {
        return Some(Step::Nothing.into());
    }
    let target = run.job.attributes.clone().unwrap_or_default();
    let class = target.class.clone();
    if let RunState::Stuck { cause, .. } = &run.state {
        let stale = o.recipe.as_ref().is_ok_and(|recipe| recipe.version() != run.job.config);
        let back = has_request(volume, claim);
        let wanted = if back { target == *volume.attributes() } else { requested_class(claim) == class };
        if stale || !wanted {
            return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
        }
        let message = format!("the run to {} does not progress: {}", target.describe(), cause.message);
        let report = StatusUpdate::Modifying { class, error: Some(cause.message.clone()) };
        return Some(reporting(claim, report).with_warning(reason::MODIFY_FAILED, message));
    }
    let error = last(volume, &target).map(|failed| failed.message.clone());
    let waiting = reporting(claim, StatusUpdate::Modifying { class, error });
    Some(match o.runs.unreachable_node {
        Some(node) => waiting.with_warning(reason::MODIFY_FAILED, unreachable_message(node)),
        None => waiting,
    })
}

/// Decides rows 5 to 7.
fn ended(volume: &Volume, claim: &Claim, o: &Observed<'_>, now: i64) -> Option<Decision> {
    let failed = volume.modification.as_ref().map_or(0, |failed| failed.attempt);
    let known = volume.applied.as_ref().map_or(0, |applied| applied.run).max(failed);
    let news = |run: &&Run<'_>| run.job.run_labels.attempt > known;
    let succeeded = o.runs.all.iter().filter(news).filter(|run| run.state == RunState::Succeeded);
    if let Some(run) = succeeded.max_by_key(|run| run.job.run_labels.attempt) {
        let attributes = run.job.attributes.clone().unwrap_or_default();
        return Some(Step::Apply(AppliedAttributes { attributes, run: run.job.run_labels.attempt }).into());
    }
    let settled = has_request(volume, claim) && !has_unknown_attributes(volume);
    let told = |run: &&Run<'_>| run.is_over() && (settled || run.state == RunState::Succeeded);
    let mut leftovers = o.runs.all.iter().filter(|run| !run.job.deleting);
    if let Some(run) = leftovers.clone().filter(|run| !news(run)).find(told) {
        return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
    }
    leftovers.find_map(|run| match &run.state {
        RunState::Failed { pods_ended: false, .. } if news(&run) => Some(Step::Nothing.into()),
        RunState::Failed { cause, kind, at, .. } if news(&run) => {
            let target = run.job.attributes.clone().unwrap_or_default();
            let (number, config) = ((run.job.run_labels.attempt, &target), run.job.config.clone());
            let note = failure(volume, number, config, cause, *kind, clamp_to_recent(*at, now));
            let has_unknown_attributes = *kind != Failure::Never || note.has_unknown_attributes;
            Some(record(
                PendingModification { has_unknown_attributes, ..note },
                &target,
                o.recipe.as_ref().ok().copied(),
            ))
        }
        _ => None,
    })
}

/// Makes the record of a failed run.
fn failure(
    volume: &Volume,
    (attempt, target): (u32, &Attributes),
    config: String,
    cause: &Cause,
    kind: Failure,
    at: i64,
) -> PendingModification {
    let before = last(volume, target).filter(|failed| failed.config == config).map_or(0, |failed| failed.tries);
    // Nobody knows the result of an earlier run whose end was not seen.
    let lost =
        |note: &PendingModification| note.has_unknown_attributes || (note.begun > note.attempt && note.begun < attempt);
    let later = volume.modification.as_deref().filter(|note| note.begun > attempt);
    PendingModification {
        begun: later.map_or(attempt, |note| note.begun),
        to: later.map_or_else(|| target.hash(), |note| note.to.clone()),
        attempt,
        hash: target.hash(),
        config,
        tries: before.saturating_add(1),
        at,
        kind,
        has_unknown_attributes: volume.modification.as_deref().is_some_and(lost),
        reason: cause.reason.clone(),
        message: cause.message.clone(),
    }
}

/// Records that a run has failed without a change because its Job could not be created.
pub fn failed_start(
    volume: &Volume,
    run: (u32, &Attributes),
    recipe: &Recipe,
    cause: &Cause,
    kind: Failure,
    now: i64,
) -> Decision {
    record(failure(volume, run, recipe.version(), cause, kind, now), run.1, Some(recipe))
}

fn record(note: PendingModification, target: &Attributes, recipe: Option<&Recipe>) -> Decision {
    let next = next_try(note.kind, note.tries, recipe, "another class");
    let message = format!(
        "run {} to {} failed: {}; {next}; the claim can return to its former class",
        note.attempt,
        target.describe(),
        note.message
    );
    Decision::from(Step::Record(note)).with_warning(reason::MODIFY_FAILED, message)
}

/// Decides rows 8 to 10.
fn target_reached(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Decision {
    let attributes = volume.attributes();
    let report = StatusUpdate::Finished { class: attributes.class.clone() };
    if !report.is_written(claim) {
        let message = format!("the volume has the attributes of {}", attributes.describe());
        return Decision::from(Step::Report(report)).with_event(reason::MODIFY_SUCCEEDED, message);
    }
    match volume.modification.is_some() && o.runs.all.is_empty() {
        true => Step::Forget.into(),
        false => Step::Nothing.into(),
    }
}

/// Decides rows 13 to 16.
fn change(volume: &Volume, claim: &Claim, o: &Observed<'_>, target: &Attributes, now: i64) -> Decision {
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return pending(claim, format!("the volume cannot be modified: {why}")),
    };
    if !recipe.can(CAPABILITY) {
        return pending(
            claim,
            format!(
                "the volume cannot be modified: the provisioner config {} does not declare that its image can modify volumes (`capabilities: modify`)",
                recipe.config
            ),
        );
    }
    if claim.deleting {
        return Step::Nothing.into();
    }
    let class = || target.class.clone();
    if let Some(failed) = last(volume, target).filter(|failed| failed.config == recipe.version()) {
        let due = due(failed.kind, failed.at, failed.tries, recipe);
        if now < due {
            let error = failed.message.clone();
            let report = match failed.kind {
                Failure::Never => StatusUpdate::Infeasible { class: class(), error },
                Failure::Retry | Failure::NoCapacity => StatusUpdate::Modifying { class: class(), error: Some(error) },
            };
            return reporting(claim, report).requeue_at(due);
        }
    }
    if o.runs.has_running_pods() {
        return Decision::from(Step::Nothing).requeue_at(now + POD_END_POLL);
    }
    let error = last(volume, target).map(|failed| failed.message.clone());
    let report = StatusUpdate::Modifying { class: class(), error };
    if !report.is_written(claim) {
        return Step::Report(report).into();
    }
    let jobs: Vec<&Job> = o.runs.all.iter().map(|run| run.job).collect();
    match begun(volume, &jobs, target) {
        Some(attempt) => Step::Start { attempt, attributes: target.clone() }.into(),
        None => Step::Record(beginning(volume, attempt(volume, &jobs), target)).into(),
    }
}

/// Returns the number of a recorded run to these attributes that has no Job.
fn begun(volume: &Volume, jobs: &[&Job], target: &Attributes) -> Option<u32> {
    let note = volume.modification.as_deref()?;
    let observed = jobs.iter().any(|job| job.run_labels.attempt >= note.begun);
    (note.begun > note.attempt && note.to == target.hash() && !observed).then_some(note.begun)
}

/// Makes the record that a run begins.
fn beginning(volume: &Volume, begun: u32, target: &Attributes) -> PendingModification {
    let to = target.hash();
    let lost = has_unknown_attributes(volume);
    match volume.modification.as_deref() {
        Some(note) => PendingModification { begun, to, has_unknown_attributes: lost, ..note.clone() },
        None => PendingModification {
            begun,
            to,
            attempt: 0,
            hash: String::new(),
            config: String::new(),
            tries: 0,
            at: 0,
            kind: Failure::Retry,
            has_unknown_attributes: false,
            reason: String::new(),
            message: String::new(),
        },
    }
}

/// Returns the number of the next run. Numbers increase over all requests, so that no Job of an earlier request counts
/// for the next.
fn attempt(volume: &Volume, jobs: &[&Job]) -> u32 {
    let noted = volume.modification.as_ref().map(|note| note.attempt.max(note.begun));
    let applied = volume.applied.as_ref().map(|applied| applied.run);
    let before = jobs.iter().map(|job| job.run_labels.attempt).chain(noted).chain(applied).max();
    before.unwrap_or_default().saturating_add(1)
}

#[cfg(test)]
#[path = "modify_tests.rs"]
mod tests;

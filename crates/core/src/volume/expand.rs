//! Decides how a volume is expanded. This is a part of the table of rules for volumes, and concerns a volume that is
//! bound to an existing claim.
//!
//! The [rules](Rule) say when it takes which step. "The request" is the size that the claim requests. "A run" is a Job
//! of the operation `expand`.
//!
//! A failure delays only runs with the same target and recipe. A run to another size, also to a smaller one, or with
//! another recipe is tried at once. A change of the request does not stop a run in progress, because half a resize is
//! worse than a whole one.
//!
//! When the claim is gone, the rules of volumes end all runs before anything else is done with the volume.

use flex_contract::exit::Reaction;
use flex_contract::quantity::quantity;
use flex_contract::reason;
use strum::{EnumIter, EnumMessage, IntoStaticStr};

use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::expand_update::ExpandUpdate;
use crate::model::volume::Volume;
use crate::model::volume_notes::FailedExpansion;
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

/// The capability with which a config declares expand runs.
pub const CAPABILITY: &str = crate::config::capability::EXPAND;

/// Returns the target size of a run, in bytes.
fn size_of(job: &Job) -> u64 {
    job.size.unwrap_or_default()
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume's claim, if it exists.
    pub claim: Option<&'a Claim>,
    /// The recipe of a run, or the reason why it is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The expand runs of the volume.
    pub runs: InPlaceRuns<'a>,
    /// The reason why a quota does not allow the requested size.
    pub quota_refusal: Option<&'a str>,
}

/// The next step for a volume's size.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Writes the state of the expansion into the claim's status.
    WriteStatus(ExpandUpdate),
    /// Creates the Job of a run.
    Start {
        /// The number of the run.
        attempt: u32,
        /// The target size, in bytes.
        size: u64,
    },
    /// Writes the new size on the volume.
    WriteCapacity {
        /// The size, in bytes.
        size: u64,
    },
    /// Records that a run failed.
    Record(FailedExpansion),
    /// Removes the note of the last failed run from the volume.
    ClearFailure,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
}

/// The rules of a volume's size, in their order: the first that holds applies. Those about the next run come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
pub enum Rule {
    /// A rule about an expand run.
    #[strum(disabled)]
    Run(Target, RunRule),
    /// The storage has the requested size, and the kubelet must grow the file system. Reports that on the claim.
    ExpandFileSystemPending,
    /// The request is reached. Reports that on the claim.
    ExpandRequestReached,
    /// The request is reached, a failure is recorded, and no run is left. Removes the record.
    ExpandFailureOutdated,
    /// The request is larger, but the recipe is not known, or the image cannot expand. Emits an event.
    ExpandNotSupported,
    /// The request is larger than the largest volume of the class. Emits an event.
    ExpandAboveMaxSize,
    /// The request is larger, and the claim is terminating. Does nothing.
    ExpandClaimTerminating,
    /// The request is larger, and a quota does not allow it. Emits an event.
    ExpandQuotaReached,
}

crate::run::rule::table_with_runs!(Rule, Step, "volume", [Size]);

/// A decision about a volume's size.
pub type Decision = rules::Decision<Rule>;

/// Returns the number of the next run. Numbers increase over all requests, so that no Job of an earlier request counts
/// for the next.
pub fn attempt(volume: &Volume, runs: &[&Job]) -> u32 {
    let recorded = volume.last_failed_expansion.as_ref().map_or(0, |failed| failed.attempt);
    runs.iter().map(|job| job.run_labels.attempt).chain([recorded]).max().unwrap_or_default().saturating_add(1)
}

/// Returns the size that the claim requests, if it is larger than the volume.
pub fn requested_size(volume: &Volume, claim: &Claim) -> Option<u64> {
    let (requested_size, size) = (*claim.size.as_ref().ok()?, *volume.size.as_ref().ok()?);
    (requested_size > size).then_some(requested_size)
}

/// Checks whether the status of a bound claim must be updated, because it does not say that the claim has the requested
/// size.
pub fn needs_status_update(volume: &Volume, claim: &Claim) -> bool {
    claim.is_bound()
        && (claim.expand_status.is_some()
            || requested_size(volume, claim).is_some()
            || volume.size.as_ref().is_ok_and(|size| claim.capacity.is_some_and(|reported| reported < *size)))
}

fn text(size: u64) -> String {
    quantity(size).0
}

/// Decides the next step for the size of a volume; `None` if its size needs nothing. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Option<Decision> {
    let claim = bound_claim(volume, o.claim)?;
    let size = volume.size.as_ref().ok().copied()?;
    let requested_size = requested_size(volume, claim);
    let recorded = volume.last_failed_expansion.as_ref().map_or(0, |failed| failed.attempt);
    let runs = o.runs.seen_runs(|job, run| SeenRun {
        is_noted: match run.state {
            RunState::Succeeded => size_of(job) <= size,
            _ => job.terminating || job.run_labels.attempt <= recorded,
        },
        is_needed: size_of(job) > size && requested_size.is_some(),
        is_outdated: requested_size != Some(size_of(job)) || is_outdated(volume, &o.recipe, job),
        ..run
    });
    let hindrance = requested_size.and_then(|requested_size| hindrance(claim, o, requested_size));
    let goal = match (requested_size, &o.recipe) {
        (Some(size), Ok(recipe)) if hindrance.is_none() => Goal::Run(next(volume, claim, recipe, size, now)),
        _ => Goal::Keep,
    };
    match run::decide::decide(&goal, &o.runs.seen(&runs), now) {
        Some(outcome) => Some(of_runs(volume, claim, o, requested_size.unwrap_or(size), outcome)),
        None => hindrance.or_else(|| reached(volume, claim, o, size)),
    }
}

/// Decides what follows from a decision about runs. `size` is the size that the volume is to have.
fn of_runs(
    volume: &Volume,
    claim: &Claim,
    o: &Observed<'_>,
    size: u64,
    Outcome { rule, what, requeue_at }: Outcome<'_>,
) -> Decision {
    let of_run = Rule::Run(Target::Size, rule);
    let decision = match what {
        What::Wait { run: Some(SeenRun { job: Some(job), is_over: false, .. }), unreachable } if !job.terminating => {
            let waiting = reporting(of_run, claim, in_progress(volume, size_of(job)));
            match unreachable {
                Some(node) => waiting.with_warning(reason::VOLUME_RESIZE_FAILED, unreachable_message(node)),
                None => waiting,
            }
        }
        What::Wait { .. } if rule == RunRule::RunNotDue => {
            let never = last(volume, size).filter(|failed| failed.reaction == Reaction::Never);
            let infeasible = never.map(|failed| ExpandUpdate::Infeasible { size, error: failed.message.clone() });
            reporting(of_run, claim, infeasible.unwrap_or_else(|| in_progress(volume, size)))
        }
        What::Stuck { run: SeenRun { job: Some(job), .. }, cause } => {
            let size = size_of(job);
            let message = format!("the run to {} does not progress: {}", text(size), cause.message);
            let report = ExpandUpdate::InProgress { size, error: Some(cause.message.clone()) };
            reporting(of_run, claim, report).with_warning(reason::VOLUME_RESIZE_FAILED, message)
        }
        What::Remove(job) => of_run.step(Step::RemoveJob { job: job.name.clone() }),
        What::Succeeded(_) => {
            let succeeded = o.runs.all.iter().filter(|run| run.state == RunState::Succeeded);
            let size = succeeded.map(|run| size_of(run.job)).max().unwrap_or(size);
            of_run.step(Step::WriteCapacity { size })
        }
        What::Failed { run: SeenRun { job: Some(job), .. }, cause, reaction, at } => {
            let ended = ExpandRun { attempt: job.run_labels.attempt, size: size_of(job) };
            let failed = failure(volume, ended, job.recipe_version.clone(), cause, reaction, at);
            let event = failure_event(&failed, o.recipe.as_ref().ok().copied());
            Decision { event: Some(event), ..of_run.step(Step::Record(failed)) }
        }
        What::Prepare => of_run.step(Step::WriteStatus(in_progress(volume, size))),
        What::Start { .. } => of_run.step(Step::Start { attempt: attempt(volume, &o.runs.jobs()), size }),
        _ => of_run.nothing(),
    };
    Decision { requeue_at, ..decision }
}

/// Returns the report about a run to a size. It names the last failure of such a run.
fn in_progress(volume: &Volume, size: u64) -> ExpandUpdate {
    ExpandUpdate::InProgress { size, error: last(volume, size).map(|failed| failed.message.clone()) }
}

/// Decides to write a report, unless it is already written.
fn reporting(rule: Rule, claim: &Claim, report: ExpandUpdate) -> Decision {
    rule.step(if report.is_written(claim) { Step::Nothing } else { Step::WriteStatus(report) })
}

/// Returns the failure of the last run, if its target was this size.
fn last(volume: &Volume, size: u64) -> Option<&FailedExpansion> {
    volume.last_failed_expansion.as_deref().filter(|failed| failed.size == size)
}

/// An expand run, by its number and its target size.
#[derive(Clone, Copy, Debug)]
pub struct ExpandRun {
    /// The number of the run.
    pub attempt: u32,
    /// The target size, in bytes.
    pub size: u64,
}

/// Makes the note of a failed run.
fn failure(
    volume: &Volume,
    ExpandRun { attempt, size }: ExpandRun,
    recipe_version: String,
    cause: &Cause,
    reaction: Reaction,
    at: i64,
) -> FailedExpansion {
    let before = last(volume, size)
        .filter(|failed| failed.recipe_version == recipe_version)
        .map_or(0, |failed| failed.consecutive_failures);
    FailedExpansion {
        attempt,
        size,
        recipe_version,
        consecutive_failures: before.saturating_add(1),
        at,
        reaction,
        reason: cause.reason.clone(),
        message: cause.message.clone(),
    }
}

/// Makes the note and the event of a run that has failed because its Job could not be created.
pub fn failed_start(
    volume: &Volume,
    run: ExpandRun,
    recipe: &Recipe,
    refusal: &JobRefusal,
    now: i64,
) -> FailedStart<FailedExpansion> {
    let note = failure(volume, run, recipe.version(), &refusal.cause, refusal.reaction, now);
    let event = failure_event(&note, Some(recipe));
    FailedStart { note, event }
}

/// Makes the event about a failed run.
fn failure_event(failed: &FailedExpansion, recipe: Option<&Recipe>) -> NewEvent {
    let next = next_try_text(failed.reaction, failed.consecutive_failures, recipe, "another size");
    let message = format!(
        "expand run {} to {} failed: {}; {next}; to stop the expansion, request less, but more than `status.capacity`",
        failed.attempt,
        text(failed.size),
        failed.message
    );
    NewEvent { warning: true, reason: reason::VOLUME_RESIZE_FAILED, message }
}

/// Decides about a volume that has the requested size.
fn reached(volume: &Volume, claim: &Claim, o: &Observed<'_>, size: u64) -> Option<Decision> {
    let behind = claim.capacity.is_some_and(|reported| reported < size);
    let begun = claim.expand_status.as_ref().is_some_and(|status| status.is_of_storage());
    let file_system_pending = claim.expand_status.as_ref().is_some_and(|status| status.file_system_pending);
    if volume.kubelet_finishes_resize && behind && (begun || !file_system_pending) {
        let message = format!("the storage has {}; its file system grows when a pod uses the volume", text(size));
        let decision = Rule::ExpandFileSystemPending.step(Step::WriteStatus(ExpandUpdate::FileSystemPending { size }));
        return Some(decision.with_event(reason::FILE_SYSTEM_RESIZE_REQUIRED, message));
    }
    if begun || (behind && !volume.kubelet_finishes_resize) {
        let message = format!("the volume has {}", text(size));
        let decision = Rule::ExpandRequestReached.step(Step::WriteStatus(ExpandUpdate::Finished { size }));
        return Some(decision.with_event(reason::VOLUME_RESIZE_SUCCESSFUL, message));
    }
    (volume.last_failed_expansion.is_some() && o.runs.all.is_empty())
        .then(|| Rule::ExpandFailureOutdated.step(Step::ClearFailure))
}

/// Decides that a claim that requests a larger volume gets no run; `None` if nothing prevents it.
fn hindrance(claim: &Claim, o: &Observed<'_>, requested_size: u64) -> Option<Decision> {
    let not_supported = |why: &str| {
        Rule::ExpandNotSupported.warn(reason::VOLUME_RESIZE_FAILED, format!("the volume cannot grow: {why}"))
    };
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return Some(not_supported(why)),
    };
    if !recipe.can(CAPABILITY) {
        return Some(not_supported(&format!(
            "the provisioner config {} does not declare that its image can expand volumes (`capabilities: expand`)",
            recipe.config
        )));
    }
    if let Some(max) = recipe.max_size.filter(|max| requested_size > *max) {
        let message = format!(
            "the claim asks for {}, and class {} provides at most {}; ask for less",
            text(requested_size),
            recipe.class,
            text(max)
        );
        return Some(Rule::ExpandAboveMaxSize.warn(reason::VOLUME_RESIZE_FAILED, message));
    }
    if claim.terminating {
        return Some(Rule::ExpandClaimTerminating.nothing());
    }
    o.quota_refusal.map(|why| Rule::ExpandQuotaReached.warn(reason::LIMIT_REACHED, why))
}

/// Returns the next run, which is to this size.
fn next(volume: &Volume, claim: &Claim, recipe: &Recipe, size: u64, now: i64) -> Next<'static> {
    let failed = last(volume, size).filter(|failed| failed.recipe_version == recipe.version());
    next_run(volume, failed, recipe, in_progress(volume, size).is_written(claim), now)
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;

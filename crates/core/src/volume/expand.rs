//! Decides how a volume is expanded. This is a part of the table of volumes, for a volume that is bound to an existing
//! claim.
//!
//! The first row that holds applies. "The request" is the size that the claim requests. "A run" is a Job of the
//! operation `expand`.
//!
//! | # | | and | step |
//! |---|---|---|---|
//! | 1 | the claim is not bound to the volume, or the volume is not adopted or is terminating | | nothing |
//! | 2 | a run is stuck | request or recipe have changed | [`Step::RemoveJob`] |
//! | 3 | a run is stuck | | an event, [`Step::Report`] |
//! | 4 | a run is in progress, or is being stopped | | [`Step::Report`], then wait for its end, whatever the request; an event if its node does not answer |
//! | 5 | a run has succeeded | the volume is smaller than the run's target | [`Step::Grow`] |
//! | 6 | a run has failed | the failure is not recorded | [`Step::Record`], when all its pods have ended |
//! | 7 | a run has ended | its target or the request is reached | [`Step::RemoveJob`] |
//! | 8 | the request is reached | the claim's status does not say so | [`Step::Report`] |
//! | 9 | the request is reached | a failure is recorded, and no run is left | [`Step::Forget`] |
//! | 10 | the request is reached | | nothing |
//! | 11 | the request is larger | the image cannot expand, or the class does not allow it | an event |
//! | 12 | the request is larger | the claim is terminating | nothing |
//! | 13 | the request is larger | the last run with this target failed, and the next is not due | [`Step::Report`], then wait |
//! | 14 | the request is larger | a pod of the volume may still run | wait for its end |
//! | 15 | the request is larger | | [`Step::Report`], then [`Step::Start`] |
//!
//! A failure counts for its own target only. Another request, also a smaller one, is tried at once, and so is another
//! recipe. A change of the request does not stop a run in progress, because half a resize is worse than a whole one.
//!
//! When the claim is gone, `Runs::stopping` ends all runs before anything else is done with the volume.

use std::sync::Arc;

use flex_contract::exit::Failure;
use flex_contract::names::reason;
use flex_contract::quantity::quantity;

use crate::config::Recipe;
use crate::config::keys::{self, STORAGE_MOUNTS};
use crate::config::record::EffectiveConfig;
use crate::config::values::list;
use crate::model::claim::Claim;
use crate::model::resize::StatusUpdate;
use crate::model::volume::Volume;
use crate::model::volume_notes::FailedExpansion;
use crate::node::unreachable_message;
use crate::object::ObjectName;
use crate::run::backoff::clamp_to_recent;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;
use crate::volume::change::{POD_END_POLL, Run, Runs, bound_claim, due, next_try};

/// The capability with which a config declares expand runs.
pub const CAPABILITY: &str = crate::config::capability::EXPAND;

/// Returns the record of an expand or delete run: the volume's own, with the program of its class. If another ConfigMap
/// serves the class now, the class does not count, because its image belongs to another vendor.
pub fn record(provenance: &EffectiveConfig, class: Option<&EffectiveConfig>) -> EffectiveConfig {
    let mut record = provenance.clone();
    if let Some(class) = class.filter(|class| class.config == provenance.config && class.class == provenance.class) {
        for key in keys::ALL.iter().filter(|key| key.follows_class) {
            record.data.remove(key.name);
            record.data.extend(class.data.get(key.name).map(|value| (key.name.to_owned(), value.clone())));
        }
        narrow(&mut record, class);
    }
    record
}

/// Takes from the class the part of the storage that a run sees. The volume must be in the storage that the class
/// names.
fn narrow(record: &mut EffectiveConfig, class: &EffectiveConfig) {
    let Some(now) = class.data.get(STORAGE_MOUNTS.name) else {
        record.data.remove(STORAGE_MOUNTS.name);
        return;
    };
    let own = record.data.remove(STORAGE_MOUNTS.name);
    let with = |paths: String| {
        let mut record = record.clone();
        record.data.insert(STORAGE_MOUNTS.name.into(), paths);
        record
    };
    // The class may have got further storage since.
    let paths = list(now).unwrap_or_default().into_iter().filter(|path| with(path.clone()).checked().is_ok());
    let paths = paths.collect::<Vec<_>>().join(", ");
    let narrowed = if paths.is_empty() { own } else { Some(paths) };
    record.data.extend(narrowed.map(|paths| (STORAGE_MOUNTS.name.to_owned(), paths)));
}

/// Returns a recipe with the program of its class, as [`record`] does.
pub fn with_program_of(recipe: Arc<Recipe>, class: Option<&EffectiveConfig>) -> Arc<Recipe> {
    let merged = record(&recipe.record, class);
    if merged == recipe.record { recipe } else { merged.checked().unwrap_or(recipe) }
}

/// Returns the target size of a run, in bytes.
fn size_of(run: &Run<'_>) -> u64 {
    run.job.size.unwrap_or_default()
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume's claim, if it exists.
    pub claim: Option<&'a Claim>,
    /// The recipe of a run, or the reason why it is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The expand runs of the volume.
    pub runs: Runs<'a>,
    /// The reason why a quota does not allow the requested size.
    pub quota_error: Option<&'a str>,
}

/// The next step for a volume's size.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Writes the state of the expansion into the claim's status.
    Report(StatusUpdate),
    /// Creates the Job of a run.
    Start {
        /// The number of the run.
        attempt: u32,
        /// The target size, in bytes.
        size: u64,
    },
    /// Writes the new size on the volume.
    Grow {
        /// The size, in bytes.
        size: u64,
    },
    /// Records that a run failed.
    Record(FailedExpansion),
    /// Removes the record of the last failed run from the volume.
    Forget,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
}

/// A decision about a volume's size: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

/// Returns the number of the next run. Numbers increase over all requests, so that no Job of an earlier request counts
/// for the next.
pub fn attempt(volume: &Volume, runs: &[&Job]) -> u32 {
    let recorded = volume.expansion.as_ref().map_or(0, |failed| failed.attempt);
    runs.iter().map(|job| job.run_labels.attempt).chain([recorded]).max().unwrap_or_default().saturating_add(1)
}

/// Returns the size that the claim requests, if it is larger than the volume.
pub fn requested_size(volume: &Volume, claim: &Claim) -> Option<u64> {
    let (requested_size, size) = (*claim.size.as_ref().ok()?, *volume.size.as_ref().ok()?);
    (requested_size > size).then_some(requested_size)
}

/// Checks whether a bound claim does not say in its status that it has the requested size.
pub fn concerns(volume: &Volume, claim: &Claim) -> bool {
    claim.is_bound()
        && (claim.resize.is_some()
            || requested_size(volume, claim).is_some()
            || volume.size.as_ref().is_ok_and(|size| claim.capacity.is_some_and(|now| now < *size)))
}

fn text(size: u64) -> String {
    quantity(size).0
}

/// Decides the next step for the size of a volume. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Decision {
    let (Some(claim), Ok(size)) = (bound_claim(volume, o.claim), volume.size.as_ref().copied()) else {
        return Step::Nothing.into();
    };
    let requested_size = requested_size(volume, claim);
    running(volume, claim, o, requested_size).or_else(|| ended(volume, o, size, requested_size, now)).unwrap_or_else(
        || match requested_size {
            None => target_reached(volume, claim, o, size),
            Some(requested_size) => grow(volume, claim, o, requested_size, now),
        },
    )
}

/// Decides rows 2 to 4.
fn running(volume: &Volume, claim: &Claim, o: &Observed<'_>, requested_size: Option<u64>) -> Option<Decision> {
    if let Some(run) = o.runs.current() {
        let target = size_of(run);
        if run.job.deleting {
            return Some(Step::Nothing.into());
        }
        if let RunState::Stuck { cause, .. } = &run.state {
            let stale = o.recipe.as_ref().is_ok_and(|recipe| recipe.version() != run.job.config);
            if stale || requested_size != Some(target) {
                return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
            }
            let message = format!("the run to {} does not progress: {}", text(target), cause.message);
            let report = StatusUpdate::Growing { size: target, error: Some(cause.message.clone()) };
            return Some(reporting(claim, report).with_warning(reason::RESIZE_FAILED, message));
        }
        let error = last(volume, target).map(|failed| failed.message.clone());
        let waiting = reporting(claim, StatusUpdate::Growing { size: target, error });
        return Some(match o.runs.unreachable_node {
            Some(node) => waiting.with_warning(reason::RESIZE_FAILED, unreachable_message(node)),
            None => waiting,
        });
    }
    o.runs.is_starting.then(|| Step::Nothing.into())
}

/// Returns the report, unless it is already written.
fn reporting(claim: &Claim, report: StatusUpdate) -> Decision {
    if report.is_written(claim) { Step::Nothing.into() } else { Step::Report(report).into() }
}

/// Returns the failure of the last run, if its target was this size.
fn last(volume: &Volume, size: u64) -> Option<&FailedExpansion> {
    volume.expansion.as_deref().filter(|failed| failed.size == size)
}

/// Decides rows 5 to 7.
fn ended(volume: &Volume, o: &Observed<'_>, size: u64, requested_size: Option<u64>, now: i64) -> Option<Decision> {
    let target_reached = o.runs.all.iter().filter(|run| run.state == RunState::Succeeded).map(size_of).max();
    if let Some(target_reached) = target_reached.filter(|target_reached| *target_reached > size) {
        return Some(Step::Grow { size: target_reached }.into());
    }
    let recorded = volume.expansion.as_ref().map_or(0, |failed| failed.attempt);
    for run in o.runs.all.iter().filter(|run| !run.job.deleting) {
        if size_of(run) <= size || (requested_size.is_none() && run.is_over()) {
            return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
        }
        if let RunState::Failed { cause, kind, at, pods_ended } = &run.state
            && run.job.run_labels.attempt > recorded
        {
            if !pods_ended {
                return Some(Step::Nothing.into());
            }
            let Run { job, .. } = run;
            let failed = failure(
                volume,
                (job.run_labels.attempt, size_of(run)),
                job.config.clone(),
                cause,
                *kind,
                clamp_to_recent(*at, now),
            );
            return Some(record_failure(failed, o.recipe.as_ref().ok().copied()));
        }
    }
    None
}

/// Makes the record of a failed run.
fn failure(
    volume: &Volume,
    (attempt, size): (u32, u64),
    config: String,
    cause: &Cause,
    kind: Failure,
    at: i64,
) -> FailedExpansion {
    let before = last(volume, size).filter(|failed| failed.config == config).map_or(0, |failed| failed.tries);
    FailedExpansion {
        attempt,
        size,
        config,
        tries: before.saturating_add(1),
        at,
        kind,
        reason: cause.reason.clone(),
        message: cause.message.clone(),
    }
}

/// Records that a run has failed because its Job could not be created.
pub fn failed_start(
    volume: &Volume,
    run: (u32, u64),
    recipe: &Recipe,
    cause: &Cause,
    kind: Failure,
    now: i64,
) -> Decision {
    record_failure(failure(volume, run, recipe.version(), cause, kind, now), Some(recipe))
}

fn record_failure(failed: FailedExpansion, recipe: Option<&Recipe>) -> Decision {
    let next = next_try(failed.kind, failed.tries, recipe, "another size");
    let message = format!(
        "run {} to {} failed: {}; {next}; a smaller request above the capacity ends this expansion",
        failed.attempt,
        text(failed.size),
        failed.message
    );
    Decision::from(Step::Record(failed)).with_warning(reason::RESIZE_FAILED, message)
}

/// Decides rows 8 to 10.
fn target_reached(volume: &Volume, claim: &Claim, o: &Observed<'_>, size: u64) -> Decision {
    let behind = claim.capacity.is_some_and(|now| now < size);
    let begun = claim.resize.as_ref().is_some_and(|resize| resize.is_of_storage());
    let on_node = claim.resize.as_ref().is_some_and(|resize| resize.on_node);
    if volume.kubelet_finishes_resize && behind && (begun || !on_node) {
        let message = format!("the storage has {}; its file system grows when a pod uses the volume", text(size));
        return Decision::from(Step::Report(StatusUpdate::OnNode { size })).with_event(reason::RESIZE_ON_NODE, message);
    }
    if begun || (behind && !volume.kubelet_finishes_resize) {
        let message = format!("the volume has {}", text(size));
        return Decision::from(Step::Report(StatusUpdate::Finished { size }))
            .with_event(reason::RESIZE_SUCCEEDED, message);
    }
    match volume.expansion.is_some() && o.runs.all.is_empty() {
        true => Step::Forget.into(),
        false => Step::Nothing.into(),
    }
}

/// Decides rows 11 to 15.
fn grow(volume: &Volume, claim: &Claim, o: &Observed<'_>, requested_size: u64, now: i64) -> Decision {
    let refused = |why: String| Decision::from(Step::Nothing).with_warning(reason::RESIZE_FAILED, why);
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return refused(format!("the volume cannot grow: {why}")),
    };
    if !recipe.can(CAPABILITY) {
        return refused(format!(
            "the volume cannot grow: the provisioner config {} does not declare that its image can expand volumes (`capabilities: expand`)",
            recipe.config
        ));
    }
    if let Some(max) = recipe.max_size.filter(|max| requested_size > *max) {
        return refused(format!(
            "the claim asks for {}, and class {} provides at most {}; ask for less",
            text(requested_size),
            recipe.class,
            text(max)
        ));
    }
    if claim.deleting {
        return Step::Nothing.into();
    }
    if let Some(why) = o.quota_error {
        return Decision::from(Step::Nothing).with_warning(reason::LIMIT_REACHED, why);
    }
    if let Some(failed) = last(volume, requested_size).filter(|failed| failed.config == recipe.version()) {
        let due = due(failed.kind, failed.at, failed.tries, recipe);
        if now < due {
            let error = failed.message.clone();
            let report = match failed.kind {
                Failure::Never => StatusUpdate::Infeasible { size: requested_size, error },
                Failure::Retry | Failure::NoCapacity => {
                    StatusUpdate::Growing { size: requested_size, error: Some(error) }
                }
            };
            return reporting(claim, report).requeue_at(due);
        }
    }
    if o.runs.has_running_pods() {
        return Decision::from(Step::Nothing).requeue_at(now + POD_END_POLL);
    }
    let error = last(volume, requested_size).map(|failed| failed.message.clone());
    let report = StatusUpdate::Growing { size: requested_size, error };
    if !report.is_written(claim) {
        return Step::Report(report).into();
    }
    let jobs: Vec<&Job> = o.runs.all.iter().map(|run| run.job).collect();
    Step::Start { attempt: attempt(volume, &jobs), size: requested_size }.into()
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;

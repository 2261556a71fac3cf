//! How a volume grows: a part of the table of volumes, for one whose claim lives and is bound to it.
//!
//! The first row that holds is taken. "The wish" is what the claim asks for, "a run" a Job of the
//! operation `expand`.
//!
//! | # | | and | step |
//! |---|---|---|---|
//! | 1 | the claim is not bound to the volume, the volume is not adopted, or is going | | nothing |
//! | 2 | a run cannot go on | wish or recipe have changed | [`Step::RemoveJob`] |
//! | 3 | a run cannot go on | | told, [`Step::Report`] |
//! | 4 | a run goes on, or is being stopped | | [`Step::Report`], then wait for its end, whatever the wish; told where its node does not answer |
//! | 5 | a run has succeeded | the volume is smaller than its target | [`Step::Grow`] |
//! | 6 | a run has failed | it is not recorded | [`Step::Record`], when all its pods are over |
//! | 7 | a run is over | its target is reached, or the wish is | [`Step::RemoveJob`] |
//! | 8 | the wish is reached | the claim's status does not say so | [`Step::Report`] |
//! | 9 | the wish is reached | a failure is recorded, and no run is left | [`Step::Forget`] |
//! | 10 | the wish is reached | | nothing |
//! | 11 | the wish is larger | the image cannot, or the class does not allow it | told |
//! | 12 | the wish is larger | the claim is going | nothing |
//! | 13 | the wish is larger | the last run to it failed, and the next is not due | [`Step::Report`], then wait |
//! | 14 | the wish is larger | a pod of the volume may still run | wait for its end |
//! | 15 | the wish is larger | | [`Step::Report`], then [`Step::Start`] |
//!
//! A failed run counts for its own target: another wish, also a smaller one, is tried at once, and so is
//! another recipe. A run that goes on is not stopped for a change of mind, because half a resize is worse
//! than a whole one.
//!
//! Once the claim is gone, [`stopping`] comes before all else that is done with the volume.

use std::sync::Arc;

use contract::exit::Failure;
use contract::names::reason;
use contract::quantity::quantity;

use super::Volume;
use super::change::{POD_ENDS, Run, Runs, due, next_try, of_bound};
use crate::claim::Claim;
use crate::claim::resize::Report;
use crate::config::Recipe;
use crate::config::record::Record;
use crate::config::values::list;
use crate::node::lost_words;
use crate::object::ObjectName;
use crate::run::backoff::just_now;
use crate::run::failure::MOST_ATTEMPTS;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// The capability that a config declares.
pub const CAPABILITY: &str = "expand";

/// The keys that say which program runs, as whom, where and at which pace. An expand or delete run takes them from the class as it
/// is now; all others say where the storage is and how it is reached, and stay the volume's.
const OF_THE_CLASS: &[&str] = &[
    "image",
    "command",
    "args",
    "image-pull-policy",
    "image-pull-secrets",
    "service-account-name",
    "node-selector",
    "tolerations",
    "capabilities",
    "timeout",
    "retries",
    "backoff",
    "max-in-flight",
    "max-in-flight-per-namespace",
    "max-in-flight-per-node",
    "max-size",
    "max-bytes",
    "max-bytes-per-namespace",
];

/// The key for what a run sees of the storage.
const STORAGE_MOUNTS: &str = "storage-mounts";

/// What is remembered of the last failed expand run, on the volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failed {
    /// Its number.
    pub attempt: u32,
    /// The size that it was to reach, in bytes.
    pub size: u64,
    /// The recipe, as `namespace/name@hash`.
    pub config: String,
    /// So many failed for this size and this recipe.
    pub tries: u32,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What follows from it.
    pub kind: Failure,
    /// A short reason.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl Failed {
    /// As it stands on a volume; none if nobody but us could have written it so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|failed: &Failed| failed.attempt < MOST_ATTEMPTS)
    }
}

/// The record that an expand or delete run works by: the volume's own, with the program of its class. A class that
/// is served from another ConfigMap by now has no say: its image is another vendor's.
pub fn record(provenance: &Record, class: Option<&Record>) -> Record {
    let mut record = provenance.clone();
    if let Some(class) = class.filter(|class| class.config == provenance.config && class.class == provenance.class) {
        for key in OF_THE_CLASS {
            record.data.remove(*key);
            record.data.extend(class.data.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        }
        narrow(&mut record, class);
    }
    record
}

/// The class says what a run sees of the storage as well, where the volume is in the storage that the class speaks of.
fn narrow(record: &mut Record, class: &Record) {
    let Some(now) = class.data.get(STORAGE_MOUNTS) else {
        record.data.remove(STORAGE_MOUNTS);
        return;
    };
    let own = record.data.remove(STORAGE_MOUNTS);
    let with = |paths: String| {
        let mut record = record.clone();
        record.data.insert(STORAGE_MOUNTS.into(), paths);
        record
    };
    // The class may have come to more storage since.
    let paths = list(now).unwrap_or_default().into_iter().filter(|path| with(path.clone()).checked().is_ok());
    let paths = paths.collect::<Vec<_>>().join(", ");
    let narrowed = if paths.is_empty() { own } else { Some(paths) };
    record.data.extend(narrowed.map(|paths| (STORAGE_MOUNTS.to_owned(), paths)));
}

/// A recipe with the program of its class, as [`record`] has it.
pub fn with_program_of(recipe: Arc<Recipe>, class: Option<&Record>) -> Arc<Recipe> {
    let merged = record(&recipe.record, class);
    if merged == recipe.record { recipe } else { merged.checked().unwrap_or(recipe) }
}

/// The size that a run is to reach, in bytes.
fn size_of(run: &Run<'_>) -> u64 {
    run.job.size.unwrap_or_default()
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume's claim, if it lives.
    pub claim: Option<&'a Claim>,
    /// How the run would work, or why that is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The expand runs.
    pub runs: Runs<'a>,
    /// Why its class has no room for what the claim asks for.
    pub limit: Option<&'a str>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Nothing; the next event decides again.
    #[default]
    Nothing,
    /// Write into the claim's status how it stands.
    Report(Report),
    /// Create the Job of a run.
    Start {
        /// Its number.
        attempt: u32,
        /// The size to reach, in bytes.
        size: u64,
    },
    /// Write on the volume that it has this size.
    Grow {
        /// In bytes.
        size: u64,
    },
    /// Remember that a run failed.
    Record(Failed),
    /// Take the note of the last failed run off the volume.
    Forget,
    /// Remove a Job with its pods.
    RemoveJob {
        /// The Job.
        job: ObjectName,
    },
}

/// A decision about a volume's size.
pub type Decision = crate::decision::Decision<Step>;

/// The number of the next run. It counts on over all wishes, so that no Job of an earlier wish is taken
/// for the next.
pub fn attempt(volume: &Volume, runs: &[&Job]) -> u32 {
    let recorded = volume.expansion.as_ref().map_or(0, |failed| failed.attempt);
    runs.iter().map(|job| job.marks.attempt).chain([recorded]).max().unwrap_or_default().saturating_add(1)
}

/// The claim's wish, if it is larger than the volume.
pub fn wish(volume: &Volume, claim: &Claim) -> Option<u64> {
    let (wish, size) = (*claim.size.as_ref().ok()?, *volume.size.as_ref().ok()?);
    (wish > size).then_some(wish)
}

/// A claim that is bound to its volume and does not say that it has the size it asks for.
pub fn concerns(volume: &Volume, claim: &Claim) -> bool {
    claim.is_bound()
        && (claim.resize.is_some()
            || wish(volume, claim).is_some()
            || volume.size.as_ref().is_ok_and(|size| claim.capacity.is_some_and(|now| now < *size)))
}

fn text(size: u64) -> String {
    quantity(size).0
}

/// The next step for the size of a volume. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Decision {
    let (Some(claim), Ok(size)) = (of_bound(volume, o.claim), volume.size.as_ref().copied()) else {
        return Step::Nothing.into();
    };
    let wish = wish(volume, claim);
    running(volume, claim, o, wish).or_else(|| ended(volume, o, size, wish, now)).unwrap_or_else(|| match wish {
        None => reached(volume, claim, o, size),
        Some(wish) => larger(volume, claim, o, wish, now),
    })
}

/// Rows 2 to 4.
fn running(volume: &Volume, claim: &Claim, o: &Observed<'_>, wish: Option<u64>) -> Option<Decision> {
    if let Some(run) = o.runs.current() {
        let target = size_of(run);
        if run.job.deleting {
            return Some(Step::Nothing.into());
        }
        if let RunState::Stuck { cause, .. } = &run.state {
            let stale = o.recipe.as_ref().is_ok_and(|recipe| recipe.version() != run.job.config);
            if stale || wish != Some(target) {
                return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
            }
            let message = format!("the run to {} does not progress: {}", text(target), cause.message);
            let report = Report::Growing { size: target, error: Some(cause.message.clone()) };
            return Some(reporting(claim, report).saying(true, reason::RESIZE_FAILED, message));
        }
        let error = last(volume, target).map(|failed| failed.message.clone());
        let waiting = reporting(claim, Report::Growing { size: target, error });
        return Some(match o.runs.lost {
            Some(node) => waiting.saying(true, reason::RESIZE_FAILED, lost_words(node)),
            None => waiting,
        });
    }
    o.runs.starting.then(|| Step::Nothing.into())
}

/// The report, unless it stands.
fn reporting(claim: &Claim, report: Report) -> Decision {
    if report.stands(claim) { Step::Nothing.into() } else { Step::Report(report).into() }
}

/// The failure of the last run, if it was for this size.
fn last(volume: &Volume, size: u64) -> Option<&Failed> {
    volume.expansion.as_deref().filter(|failed| failed.size == size)
}

/// Rows 5 to 7.
fn ended(volume: &Volume, o: &Observed<'_>, size: u64, wish: Option<u64>, now: i64) -> Option<Decision> {
    let reached = o.runs.all.iter().filter(|run| run.state == RunState::Succeeded).map(size_of).max();
    if let Some(reached) = reached.filter(|reached| *reached > size) {
        return Some(Step::Grow { size: reached }.into());
    }
    let recorded = volume.expansion.as_ref().map_or(0, |failed| failed.attempt);
    for run in o.runs.all.iter().filter(|run| !run.job.deleting) {
        if size_of(run) <= size || (wish.is_none() && run.is_over()) {
            return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
        }
        if let RunState::Failed { cause, kind, at, settled } = &run.state
            && run.job.marks.attempt > recorded
        {
            if !settled {
                return Some(Step::Nothing.into());
            }
            let Run { job, .. } = run;
            let failed = failure(
                volume,
                (job.marks.attempt, size_of(run)),
                job.config.clone(),
                cause,
                *kind,
                just_now(*at, now),
            );
            return Some(record_failure(failed, o.recipe.as_ref().ok().copied()));
        }
    }
    None
}

/// What is remembered of a failed run.
fn failure(
    volume: &Volume,
    (attempt, size): (u32, u64),
    config: String,
    cause: &Cause,
    kind: Failure,
    at: i64,
) -> Failed {
    let before = last(volume, size).filter(|failed| failed.config == config).map_or(0, |failed| failed.tries);
    Failed {
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

/// The Job of a run could not be created: the run has failed.
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

fn record_failure(failed: Failed, recipe: Option<&Recipe>) -> Decision {
    let next = next_try(failed.kind, failed.tries, recipe, "another size");
    let told = format!(
        "run {} to {} failed: {}; {next}; a smaller request above the capacity ends this expansion",
        failed.attempt,
        text(failed.size),
        failed.message
    );
    Decision::from(Step::Record(failed)).saying(true, reason::RESIZE_FAILED, told)
}

/// Rows 8 to 10.
fn reached(volume: &Volume, claim: &Claim, o: &Observed<'_>, size: u64) -> Decision {
    let behind = claim.capacity.is_some_and(|now| now < size);
    let begun = claim.resize.as_ref().is_some_and(|resize| resize.is_of_storage());
    let on_node = claim.resize.as_ref().is_some_and(|resize| resize.on_node);
    if volume.ends_on_node && behind && (begun || !on_node) {
        let message = format!("the storage has {}; its file system grows when a pod uses the volume", text(size));
        return Decision::from(Step::Report(Report::OnNode { size })).saying(false, reason::RESIZE_ON_NODE, message);
    }
    if begun || (behind && !volume.ends_on_node) {
        let message = format!("the volume has {}", text(size));
        return Decision::from(Step::Report(Report::Finished { size })).saying(
            false,
            reason::RESIZE_SUCCEEDED,
            message,
        );
    }
    match volume.expansion.is_some() && o.runs.all.is_empty() {
        true => Step::Forget.into(),
        false => Step::Nothing.into(),
    }
}

/// Rows 11 to 15.
fn larger(volume: &Volume, claim: &Claim, o: &Observed<'_>, wish: u64, now: i64) -> Decision {
    let refused = |why: String| Decision::from(Step::Nothing).saying(true, reason::RESIZE_FAILED, why);
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
    if let Some(max) = recipe.max_size.filter(|max| wish > *max) {
        return refused(format!(
            "the claim asks for {}, and class {} provides at most {}; ask for less",
            text(wish),
            recipe.class,
            text(max)
        ));
    }
    if claim.deleting {
        return Step::Nothing.into();
    }
    if let Some(why) = o.limit {
        return Decision::from(Step::Nothing).saying(true, reason::LIMIT_REACHED, why);
    }
    if let Some(failed) = last(volume, wish).filter(|failed| failed.config == recipe.version()) {
        let due = due(failed.kind, failed.at, failed.tries, recipe);
        if now < due {
            let error = failed.message.clone();
            let report = match failed.kind {
                Failure::Never => Report::Infeasible { size: wish, error },
                Failure::Retry | Failure::NoRoom => Report::Growing { size: wish, error: Some(error) },
            };
            return reporting(claim, report).until(due);
        }
    }
    if o.runs.is_occupied() {
        return Decision::from(Step::Nothing).until(now + POD_ENDS);
    }
    let error = last(volume, wish).map(|failed| failed.message.clone());
    let report = Report::Growing { size: wish, error };
    if !report.stands(claim) {
        return Step::Report(report).into();
    }
    let jobs: Vec<&Job> = o.runs.all.iter().map(|run| run.job).collect();
    Step::Start { attempt: attempt(volume, &jobs), size: wish }.into()
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;

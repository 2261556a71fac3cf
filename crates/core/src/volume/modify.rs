//! How a volume gets other attributes: a part of the table of volumes, for one whose claim lives and is bound to it.
//!
//! The first row that holds is taken. "The wish" is the VolumeAttributesClass that the claim names, "a run" a Job of the
//! operation `modify`.
//!
//! | # | | and | step |
//! |---|---|---|---|
//! | 1 | the claim is not bound to the volume, the volume is not adopted, or is going | | nothing |
//! | 2 | a run cannot go on | wish or recipe have changed | [`Step::RemoveJob`] |
//! | 3 | a run cannot go on | | told, [`Step::Report`] |
//! | 4 | a run goes on, or is being stopped | | [`Step::Report`], then wait for its end, whatever the wish; told where its node does not answer |
//! | 5 | a run has succeeded | the volume does not say so | [`Step::Apply`] |
//! | 6 | a run has failed | it is not recorded | [`Step::Note`], when all its pods are over |
//! | 7 | a run is over | what it did is recorded, and the volume has what is wished | [`Step::RemoveJob`] |
//! | 8 | the volume has what is wished, and no run has left it in between | the claim's status does not say so | [`Step::Report`] |
//! | 9 | the same | a failure is recorded, and no run is left | [`Step::Forget`] |
//! | 10 | the same | | nothing |
//! | 11 | the volume has what is wished, but a run may have left it in between | | as from row 13, to what it had |
//! | 12 | the volume has something else | the wish cannot be had: no such class, not ours, the image cannot | [`Step::Report`], and told |
//! | 13 | | the claim is going | nothing |
//! | 14 | | the last run to it failed, and the next is not due | [`Step::Report`], then wait |
//! | 15 | | a pod of the volume may still run | wait for its end |
//! | 16 | | | [`Step::Report`], then [`Step::Note`], then [`Step::Start`] |
//!
//! A run that failed with *never for this request* has changed nothing, by the contract; after any other failure the
//! volume may be in between, until a run succeeds; and so it may after a run of which nothing is seen any more. That is why
//! a run is noted on the volume before its Job exists. So a claim that goes back to its old class after such a failure gets a
//! run to the old one, and the user is told that it has it when that has succeeded.
//!
//! There is no way back to no class at all once a class is in effect: the API refuses it.

use contract::exit::Failure;
use contract::names::reason;

use super::Volume;
use super::change::{POD_ENDS, Run, Runs, due, next_try, of_bound};
use crate::attributes::{Attributes, CAPABILITY};
use crate::claim::Claim;
use crate::claim::modification::Report;
use crate::config::Recipe;
use crate::node::lost_words;
use crate::object::ObjectName;
use crate::run::backoff::just_now;
use crate::run::failure::MOST_ATTEMPTS;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// The attributes that a volume has, as they are noted on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Applied {
    /// What they are.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// The number of the modify run that gave it these; 0 for the provision run.
    #[serde(default)]
    pub run: u32,
}

impl Applied {
    /// As they stand on a volume; none if nobody but us could have written them so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|applied: &Applied| applied.run < MOST_ATTEMPTS)
    }
}

/// What is remembered of modify runs on the volume, until one has succeeded: which has begun, and the last that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Note {
    /// The number of the last run that may have begun.
    pub begun: u32,
    /// The hash of the attributes that it was to give the volume.
    pub to: String,
    /// The number of the last run that failed; 0 for none, and then what follows is empty.
    pub attempt: u32,
    /// The hash of the attributes that it was to give the volume.
    pub hash: String,
    /// The recipe, as `namespace/name@hash`.
    pub config: String,
    /// So many failed for these attributes and this recipe.
    pub tries: u32,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What follows from it.
    pub kind: Failure,
    /// A run up to that one may have changed a part.
    pub between: bool,
    /// A short reason.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl Note {
    /// As it stands on a volume; none if nobody but us could have written it so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|note: &Note| note.attempt.max(note.begun) < MOST_ATTEMPTS)
    }
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume's claim, if it lives.
    pub claim: Option<&'a Claim>,
    /// How the run would work, or why that is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// What the claim's class stands for, or why it cannot be had.
    pub wished: Result<&'a Attributes, String>,
    /// The modify runs.
    pub runs: Runs<'a>,
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
        /// What it is to give the volume.
        attributes: Attributes,
    },
    /// Write on the volume that it has these attributes.
    Apply(Applied),
    /// Remember that a run begins, or that one failed.
    Note(Note),
    /// Take the note off the volume.
    Forget,
    /// Remove a Job with its pods.
    RemoveJob {
        /// The Job.
        job: ObjectName,
    },
}

/// A decision about a volume's attributes.
pub type Decision = crate::decision::Decision<Step>;

/// The class that a claim asks for; empty for none.
pub fn wish(claim: &Claim) -> &str {
    claim.attributes_class.as_deref().unwrap_or_default()
}

/// The volume has what the claim asks for, as far as it is known. A class cannot be taken off.
fn has_wish(volume: &Volume, claim: &Claim) -> bool {
    let class = volume.attributes().class.as_str();
    let wish = wish(claim);
    wish == class || wish.is_empty()
}

/// A run may have left the volume in between.
fn is_between(volume: &Volume) -> bool {
    volume.modification.as_ref().is_some_and(|note| note.between || note.begun > note.attempt)
}

/// A claim that is bound to its volume and does not say that it has the attributes it asks for.
pub fn concerns(volume: &Volume, claim: &Claim) -> bool {
    let finished = Report::Finished { class: volume.attributes().class.clone() };
    claim.is_bound() && (!has_wish(volume, claim) || volume.modification.is_some() || !finished.stands(claim))
}

/// The next step for the attributes of a volume. `now` is in seconds since 1970.
pub fn decide(volume: &Volume, o: &Observed<'_>, now: i64) -> Decision {
    let Some(claim) = of_bound(volume, o.claim) else { return Step::Nothing.into() };
    if let Some(decision) = running(volume, claim, o).or_else(|| ended(volume, claim, o, now)) {
        return decision;
    }
    match (has_wish(volume, claim), is_between(volume)) {
        (true, false) => reached(volume, claim, o),
        (true, true) => changing(volume, claim, o, volume.attributes(), now),
        (false, _) => match &o.wished {
            Ok(attributes) => changing(volume, claim, o, attributes, now),
            Err(why) => pending(claim, why.clone()),
        },
    }
}

/// The report, unless it stands.
fn reporting(claim: &Claim, report: Report) -> Decision {
    if report.stands(claim) { Step::Nothing.into() } else { Step::Report(report).into() }
}

/// Row 12.
fn pending(claim: &Claim, why: String) -> Decision {
    reporting(claim, Report::Pending { class: wish(claim).to_owned() }).saying(true, reason::MODIFY_FAILED, why)
}

/// The failure of the last run, if it was for these attributes.
fn last<'a>(volume: &'a Volume, attributes: &Attributes) -> Option<&'a Note> {
    volume.modification.as_deref().filter(|note| note.attempt > 0 && note.hash == attributes.hash())
}

/// Rows 2 to 4.
fn running(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Option<Decision> {
    let Some(run) = o.runs.current() else {
        return o.runs.starting.then(|| Step::Nothing.into());
    };
    if run.job.deleting {
        return Some(Step::Nothing.into());
    }
    let target = run.job.attributes.clone().unwrap_or_default();
    let class = target.class.clone();
    if let RunState::Stuck { cause, .. } = &run.state {
        let stale = o.recipe.as_ref().is_ok_and(|recipe| recipe.version() != run.job.config);
        let back = has_wish(volume, claim);
        let wanted = if back { target == *volume.attributes() } else { wish(claim) == class };
        if stale || !wanted {
            return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
        }
        let message = format!("the run to {} does not progress: {}", target.words(), cause.message);
        let report = Report::Modifying { class, error: Some(cause.message.clone()) };
        return Some(reporting(claim, report).saying(true, reason::MODIFY_FAILED, message));
    }
    let error = last(volume, &target).map(|failed| failed.message.clone());
    let waiting = reporting(claim, Report::Modifying { class, error });
    Some(match o.runs.lost {
        Some(node) => waiting.saying(true, reason::MODIFY_FAILED, lost_words(node)),
        None => waiting,
    })
}

/// Rows 5 to 7.
fn ended(volume: &Volume, claim: &Claim, o: &Observed<'_>, now: i64) -> Option<Decision> {
    let failed = volume.modification.as_ref().map_or(0, |failed| failed.attempt);
    let known = volume.applied.as_ref().map_or(0, |applied| applied.run).max(failed);
    let news = |run: &&Run<'_>| run.job.marks.attempt > known;
    let succeeded = o.runs.all.iter().filter(news).filter(|run| run.state == RunState::Succeeded);
    if let Some(run) = succeeded.max_by_key(|run| run.job.marks.attempt) {
        let attributes = run.job.attributes.clone().unwrap_or_default();
        return Some(Step::Apply(Applied { attributes, run: run.job.marks.attempt }).into());
    }
    let settled = has_wish(volume, claim) && !is_between(volume);
    let told = |run: &&Run<'_>| run.is_over() && (settled || run.state == RunState::Succeeded);
    let mut left = o.runs.all.iter().filter(|run| !run.job.deleting);
    if let Some(run) = left.clone().filter(|run| !news(run)).find(told) {
        return Some(Step::RemoveJob { job: run.job.name.clone() }.into());
    }
    left.find_map(|run| match &run.state {
        RunState::Failed { settled: false, .. } if news(&run) => Some(Step::Nothing.into()),
        RunState::Failed { cause, kind, at, .. } if news(&run) => {
            let target = run.job.attributes.clone().unwrap_or_default();
            let (number, config) = ((run.job.marks.attempt, &target), run.job.config.clone());
            let note = failure(volume, number, config, cause, *kind, just_now(*at, now));
            let between = *kind != Failure::Never || note.between;
            Some(record(Note { between, ..note }, &target, o.recipe.as_ref().ok().copied()))
        }
        _ => None,
    })
}

/// What is remembered of a failed run that has changed nothing.
fn failure(
    volume: &Volume,
    (attempt, target): (u32, &Attributes),
    config: String,
    cause: &Cause,
    kind: Failure,
    at: i64,
) -> Note {
    let before = last(volume, target).filter(|failed| failed.config == config).map_or(0, |failed| failed.tries);
    // Of a run that began before it, and was not seen to end, nobody knows what it did.
    let lost = |note: &Note| note.between || (note.begun > note.attempt && note.begun < attempt);
    let later = volume.modification.as_deref().filter(|note| note.begun > attempt);
    Note {
        begun: later.map_or(attempt, |note| note.begun),
        to: later.map_or_else(|| target.hash(), |note| note.to.clone()),
        attempt,
        hash: target.hash(),
        config,
        tries: before.saturating_add(1),
        at,
        kind,
        between: volume.modification.as_deref().is_some_and(lost),
        reason: cause.reason.clone(),
        message: cause.message.clone(),
    }
}

/// The Job of a run could not be created: the run has failed, and changed nothing.
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

fn record(note: Note, target: &Attributes, recipe: Option<&Recipe>) -> Decision {
    let next = next_try(note.kind, note.tries, recipe, "another class");
    let told = format!(
        "run {} to {} failed: {}; {next}; the claim can return to its former class",
        note.attempt,
        target.words(),
        note.message
    );
    Decision::from(Step::Note(note)).saying(true, reason::MODIFY_FAILED, told)
}

/// Rows 8 to 10.
fn reached(volume: &Volume, claim: &Claim, o: &Observed<'_>) -> Decision {
    let attributes = volume.attributes();
    let report = Report::Finished { class: attributes.class.clone() };
    if !report.stands(claim) {
        let message = format!("the volume has the attributes of {}", attributes.words());
        return Decision::from(Step::Report(report)).saying(false, reason::MODIFY_SUCCEEDED, message);
    }
    match volume.modification.is_some() && o.runs.all.is_empty() {
        true => Step::Forget.into(),
        false => Step::Nothing.into(),
    }
}

/// Rows 13 to 16.
fn changing(volume: &Volume, claim: &Claim, o: &Observed<'_>, target: &Attributes, now: i64) -> Decision {
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
                Failure::Never => Report::Infeasible { class: class(), error },
                Failure::Retry | Failure::NoRoom => Report::Modifying { class: class(), error: Some(error) },
            };
            return reporting(claim, report).until(due);
        }
    }
    if o.runs.is_occupied() {
        return Decision::from(Step::Nothing).until(now + POD_ENDS);
    }
    let error = last(volume, target).map(|failed| failed.message.clone());
    let report = Report::Modifying { class: class(), error };
    if !report.stands(claim) {
        return Step::Report(report).into();
    }
    let jobs: Vec<&Job> = o.runs.all.iter().map(|run| run.job).collect();
    match begun(volume, &jobs, target) {
        Some(attempt) => Step::Start { attempt, attributes: target.clone() }.into(),
        None => Step::Note(beginning(volume, attempt(volume, &jobs), target)).into(),
    }
}

/// The number of a run to these attributes that is noted and has no Job.
fn begun(volume: &Volume, jobs: &[&Job], target: &Attributes) -> Option<u32> {
    let note = volume.modification.as_deref()?;
    let seen = jobs.iter().any(|job| job.marks.attempt >= note.begun);
    (note.begun > note.attempt && note.to == target.hash() && !seen).then_some(note.begun)
}

/// The note that a run begins.
fn beginning(volume: &Volume, begun: u32, target: &Attributes) -> Note {
    let to = target.hash();
    let lost = is_between(volume);
    match volume.modification.as_deref() {
        Some(note) => Note { begun, to, between: lost, ..note.clone() },
        None => Note {
            begun,
            to,
            attempt: 0,
            hash: String::new(),
            config: String::new(),
            tries: 0,
            at: 0,
            kind: Failure::Retry,
            between: false,
            reason: String::new(),
            message: String::new(),
        },
    }
}

/// The number of the next run. It counts on over all wishes, so that no Job of an earlier one is taken for the next.
fn attempt(volume: &Volume, jobs: &[&Job]) -> u32 {
    let noted = volume.modification.as_ref().map(|note| note.attempt.max(note.begun));
    let applied = volume.applied.as_ref().map(|applied| applied.run);
    let before = jobs.iter().map(|job| job.marks.attempt).chain(noted).chain(applied).max();
    before.unwrap_or_default().saturating_add(1)
}

#[cfg(test)]
#[path = "modify_tests.rs"]
mod tests;

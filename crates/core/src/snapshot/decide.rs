//! What is stored for a VolumeSnapshotContent, and taken away again: a pure function of what was observed and of the
//! time.
//!
//! The first row that holds is taken. "Held" means that our finalizer is on the content.
//!
//! | # | the content is | and | step |
//! |---|---|---|---|
//! | 1 | not of this orchestrator | | nothing, but that it is not kept longer for claims that are filled from it: [`Step::LetGo`] |
//! | 2 | going | nothing of ours keeps it | nothing |
//! | 3 | going | an admin lets go of it | [`Step::Release`], told |
//! | 4 | going | whether its VolumeSnapshot lives is not sure | [`Step::ConfirmSnapshot`] |
//! | 5 | going | its VolumeSnapshot lives | nothing, and told: it is deleted with that |
//! | 6 | going | claims are being filled from it | as row 14; wait for them, and told |
//! | 7 | going | a snapshot Job is left | [`Step::RemoveJob`], which stops its pod; wait for its end |
//! | 8 | going | nothing was begun for it, or it is ready and to stay | [`Step::Release`] |
//! | 9 | going | how it was made is not known | nothing, and told |
//! | 10 | going | its node is not in the cache | [`Step::ConfirmNode`] |
//! | 11 | going | its node is gone | by `node-gone`: nothing, and told; [`Step::Release`]; or as the next row, elsewhere |
//! | 12 | going | by the state of the delete-snapshot run: absent, failed, done | [`Step::StartDelete`], [`Step::RecordFailure`], [`Step::Release`] |
//! | 13 | of a snapshot that exists, or begun | it is not held | [`Step::Hold`] |
//! | 13 | of a snapshot that exists | it is not ready | [`Step::Finish`] |
//! | 14 | ready | it is kept for claims that are filled, or given up | [`Step::LetGo`] |
//! | 15 | ready | a snapshot Job is over | [`Step::RemoveJob`] |
//! | 16 | not ready | whether its VolumeSnapshot lives is not sure | [`Step::ConfirmSnapshot`] |
//! | 17 | not ready | its VolumeSnapshot is gone, and nothing was begun for it | [`Step::Remove`] if we made it |
//! | 18 | not ready | its VolumeSnapshot is going, or gone, and no run is under way | nothing: it goes, too |
//! | 19 | not ready | no attempt is under way, and none can begin; or one was begun of a claim that is gone | [`Step::Report`], and told |
//! | 20 | not ready | the next attempt is not due | [`Step::Report`], wait |
//! | 21 | not ready | the next attempt is due | [`Step::Stamp`]; for want of a place for its run [`Step::StandInLine`], told after a while |
//! | 22 | begun | the source is not kept | [`Step::KeepSource`] |
//! | 23 | begun | no Job | [`Step::StartRun`], on a content that was just read |
//! | 24 | begun | by the state of the run: stuck, failed, done | told; [`Step::RecordFailure`]; [`Step::Finish`] |
//!
//! The source is kept as long as the content is there and not ready, and is let go by the decision about its claim.

use contract::exit::Failure;
use contract::names::{self, reason};
use contract::request::Operation;

use super::{CAPABILITY, Content, Provenance};
use crate::claim::origin::Copying;
use crate::config::{NodeGone, Recipe};
use crate::node::{NodeState, Places, lost_words};
use crate::object::ObjectName;
use crate::run::backoff::{SLOW, just_now, pause, seconds, stand_in_line};
use crate::run::failure::LastFailure;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// What is known of a content's VolumeSnapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// It is bound to none.
    Unbound,
    /// It is there.
    Alive,
    /// It is being deleted.
    Going,
    /// The cache does not have it.
    Missing,
    /// The API does not have it.
    Gone,
}

/// What a snapshot run would be of, and by what.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// What is recorded of it.
    pub provenance: &'a Provenance,
    /// The recipe in that.
    pub recipe: &'a Recipe,
    /// Its claim is being deleted.
    pub going: bool,
    /// Its claim is kept for this snapshot.
    pub kept: bool,
    /// There is a place for a run of its class.
    pub room: bool,
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The content.
    pub content: &'a Content,
    /// It is of our driver, and no other instance's.
    pub ours: bool,
    /// It was read or written a moment ago, not taken from the cache.
    pub fresh: bool,
    /// Its VolumeSnapshot.
    pub snapshot: SnapshotState,
    /// What a run would be of, or why there can be none.
    pub source: Result<Source<'a>, String>,
    /// How it was made, or why that is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// Where it is, if that matters.
    pub home: &'a str,
    /// The snapshot Jobs of it.
    pub jobs: &'a [&'a Job],
    /// The run of the last attempt that was begun.
    pub run: RunState,
    /// A pod of a snapshot run may still be running.
    pub pods_alive: bool,
    /// Where pods are placed that may still be running, of whatever run.
    pub alive_on: &'a [String],
    /// The nodes that it and its pods depend on.
    pub places: &'a Places,
    /// What the class says now about nodes that are gone.
    pub node_gone: NodeGone,
    /// The delete-snapshot run of number [`delete_attempt`].
    pub delete_run: RunState,
    /// The claims for whose sake it is kept.
    pub filling: &'a [Copying],
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Nothing; the next event decides again.
    #[default]
    Nothing,
    /// Put the finalizer on.
    Hold,
    /// Wait for a place for a run, in the line of its class.
    StandInLine,
    /// Finalizer, provenance and number of an attempt, in one write.
    Stamp {
        /// The number, from 1.
        attempt: u32,
        /// What is recorded.
        provenance: Box<Provenance>,
    },
    /// Put a finalizer on the claim that the snapshot is of.
    KeepSource,
    /// Read the content anew and decide again.
    Refresh,
    /// Create the Job of the stamped attempt.
    StartRun,
    /// Remove a Job with its pods.
    RemoveJob {
        /// The Job.
        job: ObjectName,
    },
    /// Write into the status what went wrong.
    Report {
        /// In words.
        error: String,
    },
    /// Remember that a run failed.
    RecordFailure(LastFailure),
    /// Write into the status that it can be restored.
    Finish {
        /// The size of the volume, in bytes, where it is known.
        size: Option<u64>,
    },
    /// Take off the finalizers that kept it for claims, when the API says that nothing is under way for them.
    LetGo {
        /// Their UIDs.
        claims: Vec<String>,
    },
    /// Ask the API, not the cache, for the VolumeSnapshot, and decide again.
    ConfirmSnapshot,
    /// Ask the API, not the cache, whether a node exists, and decide again.
    ConfirmNode {
        /// The node.
        node: String,
    },
    /// Create the Job of a delete-snapshot run.
    StartDelete {
        /// Its number, from 1.
        attempt: u32,
        /// It need not run where the snapshot is: the node is gone.
        elsewhere: bool,
    },
    /// Take our finalizers off: nothing is stored for it any more, or what is stays.
    Release,
    /// Delete it: nothing is stored for it.
    Remove,
}

/// A decision about a content.
pub type Decision = crate::decision::Decision<Step>;

fn by_hand(why: &str) -> Decision {
    let message = format!(
        "the snapshot cannot be deleted: {why}; clean up by hand, then annotate its VolumeSnapshotContent with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    Decision::warning(Step::Nothing, reason::SNAPSHOT_DELETE_FAILED, message)
}

/// The last failure of an operation.
fn last(content: &Content, operation: Operation) -> Option<&LastFailure> {
    content.last_failure.as_ref().filter(|failure| failure.operation == operation)
}

/// The number of the delete-snapshot run that is due or under way.
pub fn delete_attempt(content: &Content) -> u32 {
    last(content, Operation::DeleteSnapshot).map_or(1, |failure| failure.attempt.saturating_add(1))
}

/// The next step for a content. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if !o.ours {
        return let_go(o).map_or(Step::Nothing, |claims| Step::LetGo { claims }).into();
    }
    if content.deleting {
        return if content.is_kept() { leaving(o, now) } else { Step::Nothing.into() };
    }
    match (content.handle.is_some(), content.ready) {
        (true, _) if !content.is_held() => Step::Hold.into(),
        (true, false) => Step::Finish { size: None }.into(),
        (_, true) => finished(o).into(),
        (false, false) => making(o, now),
    }
}

/// Rows 14 and 15.
fn finished(o: &Observed<'_>) -> Step {
    if let Some(claims) = let_go(o) {
        return Step::LetGo { claims };
    }
    match o.jobs.iter().find(|job| job.over && !job.deleting) {
        Some(job) => Step::RemoveJob { job: job.name.clone() },
        None => Step::Nothing,
    }
}

/// The claims for whose sake it is kept, and need not be.
fn let_go(o: &Observed<'_>) -> Option<Vec<String>> {
    let done: Vec<_> =
        o.filling.iter().filter(|claim| claim.under_way.is_none()).map(|claim| claim.uid.clone()).collect();
    (!done.is_empty()).then_some(done)
}

/// Rows 3 to 12.
fn leaving(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if content.abandoned {
        let told = "released by annotation; the provisioner did not delete the stored snapshot";
        return Decision::warning(Step::Release, reason::SNAPSHOT_DELETE_FAILED, told);
    }
    match o.snapshot {
        SnapshotState::Missing => return Step::ConfirmSnapshot.into(),
        SnapshotState::Alive => {
            let told = format!(
                "the VolumeSnapshotContent {} stays as long as its VolumeSnapshot exists; delete that",
                content.name
            );
            return Decision::warning(Step::Nothing, reason::SNAPSHOT_IN_USE, told);
        }
        SnapshotState::Unbound | SnapshotState::Going | SnapshotState::Gone => {}
    }
    if let Some(claims) = let_go(o) {
        return Step::LetGo { claims }.into();
    }
    let filling: Vec<_> =
        o.filling.iter().filter_map(|claim| claim.under_way.as_ref()).map(ToString::to_string).collect();
    if !filling.is_empty() {
        let told = format!("the snapshot stays until these claims are filled from it: {}", filling.join(", "));
        return Decision::from(Step::Nothing).saying(false, reason::SNAPSHOT_IN_USE, told);
    }
    if let Some(stop) = stopping(o) {
        return stop;
    }
    let begun = content.provenance.is_some() || content.handle.is_some();
    if !begun || (content.policy != "Delete" && content.ready) {
        return Step::Release.into();
    }
    match &o.recipe {
        Ok(recipe) => deleting(o, recipe, now),
        Err(why) => by_hand(why),
    }
}

/// Row 7: what must end before anything is deleted.
fn stopping(o: &Observed<'_>) -> Option<Decision> {
    if let Some(job) = o.jobs.iter().find(|job| !job.deleting) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    let goes_on = !matches!(o.run, RunState::Absent) || o.pods_alive || !o.jobs.is_empty();
    goes_on.then(|| lost(o, reason::SNAPSHOT_DELETE_FAILED))
}

/// Nothing is to be done; told where a pod is on a node that does not answer.
fn lost(o: &Observed<'_>, reason: &'static str) -> Decision {
    match o.places.lost(o.alive_on) {
        Some(node) => Decision::warning(Step::Nothing, reason, lost_words(node)),
        None => Step::Nothing.into(),
    }
}

/// Rows 10 to 12.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let failed = last(o.content, Operation::DeleteSnapshot);
    let attempt = delete_attempt(o.content);
    match &o.delete_run {
        RunState::Absent => {
            let waits = failed.filter(|failure| !failure.is_of_other(recipe));
            let due = waits.map_or(now, |failure| failure.at.saturating_add(pause(recipe, failure.attempt)));
            match now < due {
                true => Decision::from(Step::Nothing).until(due),
                false => start(o, attempt),
            }
        }
        RunState::Running | RunState::Failed { settled: false, .. } => lost(o, reason::SNAPSHOT_DELETE_FAILED),
        RunState::Stuck { cause, .. } => Decision::warning(
            Step::Nothing,
            reason::SNAPSHOT_DELETE_FAILED,
            format!("delete-snapshot run: {}", cause.message),
        ),
        RunState::Succeeded => Step::Release.into(),
        RunState::Failed { cause, at, .. } => {
            let failure =
                LastFailure::of_deletion(Operation::DeleteSnapshot, attempt, just_now(*at, now), cause, failed);
            let failure = failure.by(recipe);
            let told = format!(
                "delete-snapshot run {attempt} failed: {}; next try in {} s",
                cause.message,
                pause(recipe, attempt)
            );
            Decision::warning(Step::RecordFailure(failure), reason::SNAPSHOT_DELETE_FAILED, told)
        }
    }
}

/// A delete-snapshot run begins on its node; where that is gone, by what the class says.
fn start(o: &Observed<'_>, attempt: u32) -> Decision {
    let node = o.home;
    match (o.places.state(node), o.node_gone) {
        (NodeState::Ready | NodeState::Unreachable, _) => Step::StartDelete { attempt, elsewhere: false }.into(),
        (NodeState::Missing, _) => Step::ConfirmNode { node: node.to_owned() }.into(),
        (NodeState::Gone, NodeGone::RunElsewhere) => Step::StartDelete { attempt, elsewhere: true }.into(),
        (NodeState::Gone, NodeGone::Forget) => {
            let told = format!("node {node} is gone, and with it the snapshot that it stored (node-gone: forget)");
            Decision::warning(Step::Release, reason::SNAPSHOT_DELETE_FAILED, told)
        }
        (NodeState::Gone, NodeGone::Hold) => by_hand(&format!(
            "node {node}, which stores it, is gone; the provisioner deletes it when the node is back, or set `node-gone` in the provisioner config"
        )),
    }
}

/// Rows 16 to 24.
fn making(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    let begun = content.attempt > 0 && content.provenance.is_some();
    if begun && !content.is_held() {
        return Step::Hold.into();
    }
    let failed = last(content, Operation::Snapshot);
    let under_way = begun && failed.is_none_or(|failure| failure.attempt < content.attempt);
    let absent = o.run == RunState::Absent && o.jobs.iter().all(|job| job.marks.attempt != content.attempt);
    match o.snapshot {
        SnapshotState::Missing => return Step::ConfirmSnapshot.into(),
        SnapshotState::Gone if content.provenance.is_none() && content.instance.is_some() => {
            return Step::Remove.into();
        }
        SnapshotState::Gone | SnapshotState::Going if !under_way || absent => return Step::Nothing.into(),
        SnapshotState::Unbound => return Step::Nothing.into(),
        SnapshotState::Gone | SnapshotState::Going | SnapshotState::Alive => {}
    }
    if under_way && !absent {
        return running(o, now);
    }
    let source = match able(o) {
        Ok(source) => source,
        Err(why) => return reporting(content, why),
    };
    if !under_way {
        if let Some(wait) = not_due(content, failed, source.recipe, now) {
            return wait;
        }
        if o.pods_alive || o.jobs.iter().any(|job| !job.over) {
            return lost(o, reason::SNAPSHOT_FAILED);
        }
        if !source.room {
            return stand_in_line(Step::StandInLine, content.created, now);
        }
        let attempt = content.attempt.max(failed.map_or(0, |failure| failure.attempt)).saturating_add(1);
        return Step::Stamp { attempt, provenance: Box::new(source.provenance.clone()) }.into();
    }
    match (source.kept, o.fresh) {
        (false, _) => Step::KeepSource.into(),
        (true, false) => Step::Refresh.into(),
        (true, true) => Step::StartRun.into(),
    }
}

/// Row 19: what a run would be of.
fn able<'a, 'o>(o: &'o Observed<'a>) -> Result<&'o Source<'a>, String> {
    let source = o.source.as_ref().map_err(String::clone)?;
    if !source.recipe.can(CAPABILITY) {
        return Err(format!(
            "no snapshot can be made: the provisioner config {} does not declare that its image can do that (`capabilities: {CAPABILITY}`)",
            source.recipe.config
        ));
    }
    let begun = o.content.made_by().filter(|made_by| made_by.volume_id != source.provenance.volume_id);
    if let Some(made_by) = begun {
        return Err(format!(
            "a run was started to snapshot the volume {}, whose claim is gone, and another claim now has its name: delete the VolumeSnapshot, and make a new one",
            made_by.pv_name
        ));
    }
    if source.going && !source.kept {
        return Err("the source claim of the snapshot is being deleted".into());
    }
    Ok(source)
}

/// The status says why it is not ready; the event is there as well.
fn reporting(content: &Content, error: String) -> Decision {
    let step = match content.error.as_ref() == Some(&error) {
        true => Step::Nothing,
        false => Step::Report { error: error.clone() },
    };
    Decision::warning(step, reason::SNAPSHOT_FAILED, error)
}

/// Row 20.
fn not_due(content: &Content, failed: Option<&LastFailure>, recipe: &Recipe, now: i64) -> Option<Decision> {
    let failure = failed?;
    // Another version of the config is tried at once.
    let is_newer = || content.made_by().is_none_or(|made_by| made_by.record != recipe.record);
    let wait = match failure.kind {
        Failure::Never if is_newer() => 0,
        Failure::Never => seconds(SLOW),
        Failure::Retry | Failure::NoRoom => pause(recipe, failure.attempt),
    };
    let due = failure.at.saturating_add(wait);
    if content.error.as_ref() != Some(&failure.message) {
        return Some(Step::Report { error: failure.message.clone() }.into());
    }
    (now < due).then(|| Decision::from(Step::Nothing).until(due))
}

/// Row 24.
fn running(o: &Observed<'_>, now: i64) -> Decision {
    match &o.run {
        RunState::Absent | RunState::Running | RunState::Failed { settled: false, .. } => {
            lost(o, reason::SNAPSHOT_FAILED)
        }
        RunState::Stuck { cause, .. } => reporting(o.content, cause.message.clone()),
        RunState::Succeeded => Step::Finish { size: o.content.made_by().map(|made_by| made_by.size) }.into(),
        RunState::Failed { cause, kind, at, .. } => {
            failed_run(o.content, cause, *kind, o.recipe.as_ref().ok().copied(), just_now(*at, now))
        }
    }
}

/// An attempt has failed, or its Job could not be created.
pub fn failed_run(content: &Content, cause: &Cause, kind: Failure, recipe: Option<&Recipe>, at: i64) -> Decision {
    let attempt = content.attempt;
    let failure = LastFailure {
        operation: Operation::Snapshot,
        attempt,
        at,
        kind,
        reason: cause.reason.clone(),
        message: cause.message.clone(),
        without_account: false,
        config: String::new(),
        idle_attempts: 0,
    };
    let next = match (kind, recipe) {
        (Failure::Never, _) => format!(
            "a retry would fail, too, so the next try is when the provisioner config changes, or in {} min",
            SLOW.as_secs() / 60
        ),
        (_, Some(recipe)) => format!("next try in {} s", pause(recipe, attempt)),
        (_, None) => "next try when there is a provisioner config".to_owned(),
    };
    let told = format!("snapshot run {attempt} failed: {}; {next}", cause.message);
    Decision::warning(Step::RecordFailure(failure), reason::SNAPSHOT_FAILED, told)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! Decides when the snapshot of a VolumeSnapshotContent is stored and deleted: a pure function of the observation and
//! the time.
//!
//! The first row that holds applies. "Held" means that the content has the orchestrator's finalizer.
//!
//! | # | the content is | and | step |
//! |---|---|---|---|
//! | 1 | not of this orchestrator | | nothing, except that claims do not keep it any longer than needed: [`Step::UnprotectSource`] |
//! | 2 | terminating | it has no finalizer of the orchestrator | nothing |
//! | 3 | terminating | an admin has set the abandon annotation | [`Step::RemoveFinalizer`] and an event |
//! | 4 | terminating | it is not certain whether its VolumeSnapshot exists | [`Step::ConfirmSnapshot`] |
//! | 5 | terminating | its VolumeSnapshot exists | an event: the content is deleted together with the VolumeSnapshot |
//! | 6 | terminating | claims are being restored from it | as row 14; wait for them, and an event |
//! | 7 | terminating | a snapshot Job is left | [`Step::RemoveJob`], which stops its pod; wait for its end |
//! | 8 | terminating | no attempt has begun for it, or it is ready and must stay | [`Step::RemoveFinalizer`] |
//! | 9 | terminating | its provenance is not known | an event |
//! | 10 | terminating | its node is not in the cache | [`Step::ConfirmNode`] |
//! | 11 | terminating | its node is gone | by `node-gone`: an event; [`Step::RemoveFinalizer`]; or as the next row, on another node |
//! | 12 | terminating | the delete-snapshot run is absent, failed, or done | [`Step::StartDelete`], [`Step::RecordFailure`], or [`Step::RemoveFinalizer`] |
//! | 13 | of an existing snapshot, or begun | it is not held | [`Step::AddFinalizer`] |
//! | 13a | of an existing snapshot | it is not ready | [`Step::MarkReady`] |
//! | 14 | ready | it is kept for claims that are restored or abandoned | [`Step::UnprotectSource`] |
//! | 15 | ready | a snapshot Job has ended | [`Step::RemoveJob`] |
//! | 16 | not ready | it is not certain whether its VolumeSnapshot exists | [`Step::ConfirmSnapshot`] |
//! | 17 | not ready | its VolumeSnapshot is gone, and no attempt has begun | [`Step::DeleteContent`] if the orchestrator made the content |
//! | 18 | not ready | its VolumeSnapshot is terminating or gone, and no run is in progress | nothing: the content is deleted too |
//! | 19 | not ready | no attempt is in progress and none can begin; or the claim of the attempt is gone | [`Step::Report`] and an event |
//! | 20 | not ready | the next attempt is not due | [`Step::Report`], wait |
//! | 21 | not ready | the next attempt is due | [`Step::Stamp`]; without a free slot [`Step::WaitForSlot`], with an event after a while |
//! | 22 | begun | its source is not protected | [`Step::ProtectSource`] |
//! | 23 | begun | it has no Job | [`Step::StartRun`], on a content that was just read |
//! | 24 | begun | the run is stuck, failed, or done | an event; [`Step::RecordFailure`]; or [`Step::MarkReady`] |
//!
//! The source is protected as long as the content exists and is not ready. The decision about the source's claim ends
//! the protection.

use flex_contract::exit::Failure;
use flex_contract::names::{self, reason};
use flex_contract::reason::Reason;
use flex_contract::request::Operation;

use crate::config::{NodeGone, Recipe};
use crate::model::data_source::SourceUser;
use crate::model::snapshot::CAPABILITY;
use crate::model::snapshot::Content;
use crate::model::snapshot::Provenance;
use crate::node::{NodeState, NodeStates, unreachable_message};
use crate::object::ObjectName;
use crate::run::backoff::{DELAY_AFTER_RETRIES, clamp_to_recent, delay, seconds, wait_for_slot};
use crate::run::failure::LastFailure;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// The state of a content's VolumeSnapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// The content is bound to no VolumeSnapshot.
    Unbound,
    /// The VolumeSnapshot exists.
    Alive,
    /// The VolumeSnapshot is terminating.
    Terminating,
    /// The cache does not have the VolumeSnapshot.
    Missing,
    /// The API does not have the VolumeSnapshot.
    Gone,
}

/// The source of a snapshot run, and its recipe.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The provenance of the source.
    pub provenance: &'a Provenance,
    /// The recipe in that provenance.
    pub recipe: &'a Recipe,
    /// The claim of the source is terminating.
    pub is_terminating: bool,
    /// The claim of the source is protected for this snapshot.
    pub is_protected: bool,
    /// The class has a free slot for a run.
    pub has_slot: bool,
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The content.
    pub content: &'a Content,
    /// The content belongs to the orchestrator's driver, and to no other instance.
    pub ours: bool,
    /// The content was just read or written, and does not come from the cache.
    pub fresh: bool,
    /// The VolumeSnapshot of the content.
    pub snapshot: SnapshotState,
    /// The source of a run, or the reason why there can be no run.
    pub source: Result<Source<'a>, String>,
    /// The recipe by which the snapshot was made, or the reason why it is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The node of the snapshot, if that matters.
    pub home_node: &'a str,
    /// The snapshot Jobs of the content.
    pub jobs: &'a [&'a Job],
    /// The run of the last attempt.
    pub run: RunState,
    /// A pod of a snapshot run may still be running.
    pub has_running_pods: bool,
    /// The nodes of all pods that may still be running, whatever their run.
    pub nodes_with_pods: &'a [String],
    /// The states of the nodes that the content and its pods depend on.
    pub node_states: &'a NodeStates,
    /// The class's present treatment of nodes that are gone.
    pub node_gone: NodeGone,
    /// The delete-snapshot run with the number [`delete_attempt`].
    pub delete_run: RunState,
    /// The claims for which the content is kept.
    pub source_users: &'a [SourceUser],
}

/// The next step for a content.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Adds the finalizer.
    AddFinalizer,
    /// Waits for a slot, in the queue of the class.
    WaitForSlot,
    /// Writes finalizer, provenance and number of an attempt, all at once.
    Stamp {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The provenance to write.
        provenance: Box<Provenance>,
    },
    /// Adds a finalizer to the claim of which the snapshot is made.
    ProtectSource,
    /// Reads the content from the API and decides again.
    Refresh,
    /// Creates the Job of the stamped attempt.
    StartRun,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
    /// Writes an error into the status.
    Report {
        /// The error message.
        error: String,
    },
    /// Records that a run failed.
    RecordFailure(LastFailure),
    /// Writes into the status that the snapshot is ready to be restored.
    MarkReady {
        /// The size of the volume, in bytes, where it is known.
        size: Option<u64>,
    },
    /// Removes the finalizers that keep the content for claims, if the API shows that none of them is in progress.
    UnprotectSource {
        /// The UIDs of the claims.
        claims: Vec<String>,
    },
    /// Asks the API, not the cache, for the VolumeSnapshot, and decides again.
    ConfirmSnapshot,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Creates the Job of a delete-snapshot run.
    StartDelete {
        /// The number of the run, from 1.
        attempt: u32,
        /// The run need not be on the node of the snapshot, because the node is gone.
        on_any_node: bool,
    },
    /// Removes the orchestrator's finalizers: the stored snapshot is deleted, or must stay.
    RemoveFinalizer,
    /// Deletes the content, for which no snapshot is stored.
    DeleteContent,
}

/// A decision about a content: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

fn needs_manual_cleanup(why: &str) -> Decision {
    let message = format!(
        "the snapshot cannot be deleted: {why}; clean up by hand, then annotate its VolumeSnapshotContent with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    Decision::warning(Step::Nothing, reason::SNAPSHOT_DELETE_FAILED, message)
}

/// Returns the last failure of an operation.
fn last(content: &Content, operation: Operation) -> Option<&LastFailure> {
    content.last_failure.as_ref().filter(|failure| failure.operation == operation)
}

/// Returns the number of the delete-snapshot run that is due or in progress.
pub fn delete_attempt(content: &Content) -> u32 {
    last(content, Operation::DeleteSnapshot).map_or(1, |failure| failure.attempt.saturating_add(1))
}

/// Decides the next step for a content. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if !o.ours {
        return unprotect_source(o).map_or(Step::Nothing, |claims| Step::UnprotectSource { claims }).into();
    }
    if content.deleting {
        return if content.is_kept() { leaving(o, now) } else { Step::Nothing.into() };
    }
    match (content.handle.is_some(), content.ready) {
        (true, _) if !content.has_finalizer() => Step::AddFinalizer.into(),
        (true, false) => Step::MarkReady { size: None }.into(),
        (_, true) => finished(o).into(),
        (false, false) => making(o, now),
    }
}

/// Decides rows 14 and 15.
fn finished(o: &Observed<'_>) -> Step {
    if let Some(claims) = unprotect_source(o) {
        return Step::UnprotectSource { claims };
    }
    match o.jobs.iter().find(|job| job.is_over && !job.deleting) {
        Some(job) => Step::RemoveJob { job: job.name.clone() },
        None => Step::Nothing,
    }
}

/// Returns the claims for which the content is kept without need.
fn unprotect_source(o: &Observed<'_>) -> Option<Vec<String>> {
    let done: Vec<_> =
        o.source_users.iter().filter(|claim| claim.in_progress.is_none()).map(|claim| claim.uid.clone()).collect();
    (!done.is_empty()).then_some(done)
}

/// Decides rows 3 to 12.
fn leaving(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if content.abandoned {
        let message = "released by annotation; the provisioner did not delete the stored snapshot";
        return Decision::warning(Step::RemoveFinalizer, reason::SNAPSHOT_DELETE_FAILED, message);
    }
    match o.snapshot {
        SnapshotState::Missing => return Step::ConfirmSnapshot.into(),
        SnapshotState::Alive => {
            let message = format!(
                "the VolumeSnapshotContent {} stays as long as its VolumeSnapshot exists; delete that",
                content.name
            );
            return Decision::warning(Step::Nothing, reason::SNAPSHOT_IN_USE, message);
        }
        SnapshotState::Unbound | SnapshotState::Terminating | SnapshotState::Gone => {}
    }
    if let Some(claims) = unprotect_source(o) {
        return Step::UnprotectSource { claims }.into();
    }
    let filling: Vec<_> =
        o.source_users.iter().filter_map(|claim| claim.in_progress.as_ref()).map(ToString::to_string).collect();
    if !filling.is_empty() {
        let message = format!("the snapshot stays until these claims are filled from it: {}", filling.join(", "));
        return Decision::from(Step::Nothing).with_event(reason::SNAPSHOT_IN_USE, message);
    }
    if let Some(stop) = stopping(o) {
        return stop;
    }
    let begun = content.provenance.is_some() || content.handle.is_some();
    if !begun || (content.policy != "Delete" && content.ready) {
        return Step::RemoveFinalizer.into();
    }
    match &o.recipe {
        Ok(recipe) => deleting(o, recipe, now),
        Err(why) => needs_manual_cleanup(why),
    }
}

/// Decides row 7: ends what must end before the snapshot is deleted.
fn stopping(o: &Observed<'_>) -> Option<Decision> {
    if let Some(job) = o.jobs.iter().find(|job| !job.deleting) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    let goes_on = !matches!(o.run, RunState::Absent) || o.has_running_pods || !o.jobs.is_empty();
    goes_on.then(|| unreachable_node(o, reason::SNAPSHOT_DELETE_FAILED))
}

/// Waits. Emits an event if a pod is on a node that does not answer.
fn unreachable_node(o: &Observed<'_>, reason: &'static Reason) -> Decision {
    match o.node_states.unreachable_node(o.nodes_with_pods) {
        Some(node) => Decision::warning(Step::Nothing, reason, unreachable_message(node)),
        None => Step::Nothing.into(),
    }
}

/// Decides rows 10 to 12.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let failed = last(o.content, Operation::DeleteSnapshot);
    let attempt = delete_attempt(o.content);
    match &o.delete_run {
        RunState::Absent => {
            let waits = failed.filter(|failure| !failure.is_from_other_config(recipe));
            let due = waits.map_or(now, |failure| failure.at.saturating_add(delay(recipe, failure.attempt)));
            match now < due {
                true => Decision::from(Step::Nothing).requeue_at(due),
                false => start(o, attempt),
            }
        }
        RunState::Running | RunState::Failed { pods_ended: false, .. } => {
            unreachable_node(o, reason::SNAPSHOT_DELETE_FAILED)
        }
        RunState::Stuck { cause, .. } => Decision::warning(
            Step::Nothing,
            reason::SNAPSHOT_DELETE_FAILED,
            format!("delete-snapshot run: {}", cause.message),
        ),
        RunState::Succeeded => Step::RemoveFinalizer.into(),
        RunState::Failed { cause, at, .. } => {
            let failure =
                LastFailure::of_deletion(Operation::DeleteSnapshot, attempt, clamp_to_recent(*at, now), cause, failed);
            let failure = failure.by(recipe);
            let message = format!(
                "delete-snapshot run {attempt} failed: {}; next try in {} s",
                cause.message,
                delay(recipe, attempt)
            );
            Decision::warning(Step::RecordFailure(failure), reason::SNAPSHOT_DELETE_FAILED, message)
        }
    }
}

/// Starts a delete-snapshot run on its node. If that node is gone, follows the class's `node-gone`.
fn start(o: &Observed<'_>, attempt: u32) -> Decision {
    let node = o.home_node;
    match (o.node_states.state(node), o.node_gone) {
        (NodeState::Ready | NodeState::Unreachable, _) => Step::StartDelete { attempt, on_any_node: false }.into(),
        (NodeState::Missing, _) => Step::ConfirmNode { node: node.to_owned() }.into(),
        (NodeState::Gone, NodeGone::RunElsewhere) => Step::StartDelete { attempt, on_any_node: true }.into(),
        (NodeState::Gone, NodeGone::Forget) => {
            let message = format!("node {node} is gone, and with it the snapshot that it stored (node-gone: forget)");
            Decision::warning(Step::RemoveFinalizer, reason::SNAPSHOT_DELETE_FAILED, message)
        }
        (NodeState::Gone, NodeGone::Hold) => needs_manual_cleanup(&format!(
            "node {node}, which stores the snapshot, is gone; the provisioner deletes the snapshot when the node is back; else set `node-gone` in the provisioner config"
        )),
    }
}

/// Decides rows 16 to 24.
fn making(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    let begun = content.attempt > 0 && content.provenance.is_some();
    if begun && !content.has_finalizer() {
        return Step::AddFinalizer.into();
    }
    let failed = last(content, Operation::Snapshot);
    let in_progress = begun && failed.is_none_or(|failure| failure.attempt < content.attempt);
    let absent = o.run == RunState::Absent && o.jobs.iter().all(|job| job.run_labels.attempt != content.attempt);
    match o.snapshot {
        SnapshotState::Missing => return Step::ConfirmSnapshot.into(),
        SnapshotState::Gone if content.provenance.is_none() && content.instance.is_some() => {
            return Step::DeleteContent.into();
        }
        SnapshotState::Gone | SnapshotState::Terminating if !in_progress || absent => return Step::Nothing.into(),
        SnapshotState::Unbound => return Step::Nothing.into(),
        SnapshotState::Gone | SnapshotState::Terminating | SnapshotState::Alive => {}
    }
    if in_progress && !absent {
        return running(o, now);
    }
    let source = match able(o) {
        Ok(source) => source,
        Err(why) => return reporting(content, why),
    };
    if !in_progress {
        if let Some(wait) = not_due(content, failed, source.recipe, now) {
            return wait;
        }
        if o.has_running_pods || o.jobs.iter().any(|job| !job.is_over) {
            return unreachable_node(o, reason::SNAPSHOT_FAILED);
        }
        if !source.has_slot {
            return wait_for_slot(Step::WaitForSlot, content.created, now);
        }
        let attempt = content.attempt.max(failed.map_or(0, |failure| failure.attempt)).saturating_add(1);
        return Step::Stamp { attempt, provenance: Box::new(source.provenance.clone()) }.into();
    }
    match (source.is_protected, o.fresh) {
        (false, _) => Step::ProtectSource.into(),
        (true, false) => Step::Refresh.into(),
        (true, true) => Step::StartRun.into(),
    }
}

/// Decides row 19: returns the source of a run, or the reason why there can be no run.
fn able<'a, 'o>(o: &'o Observed<'a>) -> Result<&'o Source<'a>, String> {
    let source = o.source.as_ref().map_err(String::clone)?;
    if !source.recipe.can(CAPABILITY) {
        return Err(format!(
            "no snapshot can be made: the provisioner config {} does not declare that its image can make snapshots (`capabilities: {CAPABILITY}`)",
            source.recipe.config
        ));
    }
    let begun = o.content.made_by().filter(|made_by| made_by.volume_id != source.provenance.volume_id);
    if let Some(made_by) = begun {
        return Err(format!(
            "a run began to snapshot the volume {}, but its claim is gone, and another claim now has that name; delete the VolumeSnapshot, and create a new one",
            made_by.pv_name
        ));
    }
    if source.is_terminating && !source.is_protected {
        return Err("the source claim of the snapshot is being deleted".into());
    }
    Ok(source)
}

/// Writes into the status why the content is not ready, and emits an event.
fn reporting(content: &Content, error: String) -> Decision {
    let step = match content.error.as_ref() == Some(&error) {
        true => Step::Nothing,
        false => Step::Report { error: error.clone() },
    };
    Decision::warning(step, reason::SNAPSHOT_FAILED, error)
}

/// Decides row 20.
fn not_due(content: &Content, failed: Option<&LastFailure>, recipe: &Recipe, now: i64) -> Option<Decision> {
    let failure = failed?;
    // A new version of the config is tried at once.
    let is_newer = || content.made_by().is_none_or(|made_by| made_by.record != recipe.record);
    let wait = match failure.kind {
        Failure::Never if is_newer() => 0,
        Failure::Never => seconds(DELAY_AFTER_RETRIES),
        Failure::Retry | Failure::NoCapacity => delay(recipe, failure.attempt),
    };
    let due = failure.at.saturating_add(wait);
    if content.error.as_ref() != Some(&failure.message) {
        return Some(Step::Report { error: failure.message.clone() }.into());
    }
    (now < due).then(|| Decision::from(Step::Nothing).requeue_at(due))
}

/// Decides row 24.
fn running(o: &Observed<'_>, now: i64) -> Decision {
    match &o.run {
        RunState::Absent | RunState::Running | RunState::Failed { pods_ended: false, .. } => {
            unreachable_node(o, reason::SNAPSHOT_FAILED)
        }
        RunState::Stuck { cause, .. } => reporting(o.content, cause.message.clone()),
        RunState::Succeeded => Step::MarkReady { size: o.content.made_by().map(|made_by| made_by.size) }.into(),
        RunState::Failed { cause, kind, at, .. } => {
            failed_run(o.content, cause, *kind, o.recipe.as_ref().ok().copied(), clamp_to_recent(*at, now))
        }
    }
}

/// Records that an attempt has failed, or that its Job could not be created.
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
        unstarted_attempts: 0,
    };
    let next = match (kind, recipe) {
        (Failure::Never, _) => format!(
            "a retry would fail, too, so the next try is when the provisioner config changes, or in {} min",
            DELAY_AFTER_RETRIES.as_secs() / 60
        ),
        (_, Some(recipe)) => format!("next try in {} s", delay(recipe, attempt)),
        (_, None) => "next try when there is a provisioner config".to_owned(),
    };
    let message = format!("snapshot run {attempt} failed: {}; {next}", cause.message);
    Decision::warning(Step::RecordFailure(failure), reason::SNAPSHOT_FAILED, message)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! Decides when the snapshot of a VolumeSnapshotContent is stored and deleted: a pure function of the observation and
//! the time.
//!
//! The [rules](Rule) say when it takes which step.
//!
//! The source is protected as long as the content exists and is not ready. The decision about the source's claim ends
//! the protection.

mod rule;

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;
use flex_contract::reason::Reason;

use crate::config::{NodeGone, Recipe};
use crate::limits;
use crate::model::data_source::SourceUser;
use crate::model::snapshot::CAPABILITY;
use crate::model::snapshot::Content;
use crate::model::snapshot::SnapshotProvenance;
use crate::rules::Rule as _;
use crate::run::backoff::{clamp_to_recent, delay, delay_after, due_after, not_before, shortened};
use crate::run::failure::LastFailure;
use crate::run::node::{NodeState, NodeStates, unreachable_message};
use crate::run::slot_wait::until_slot_is_free;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;
use crate::status_reason::message_of;

pub use self::rule::{Decision, Rule, Step};

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
    NotCached,
    /// The API does not have the VolumeSnapshot.
    NotFound,
}

/// The source of a snapshot run, and its recipe.
#[derive(Clone, Debug)]
pub struct RunSource<'a> {
    /// The provenance of the source.
    pub provenance: &'a SnapshotProvenance,
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
    pub source: Result<RunSource<'a>, String>,
    /// The recipe by which the snapshot was made, or the reason why it is not known.
    pub recipe: Result<&'a Recipe, String>,
    /// The node of the snapshot, if that matters.
    pub origin_node: Option<&'a str>,
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

/// Says why no run can get the id of a snapshot.
fn long_id() -> String {
    format!("its id in the storage is longer than {} bytes, and no run can get it", limits::HANDLE)
}

fn manual_cleanup(rule: Rule, why: &str) -> Decision {
    let message = format!(
        "the snapshot cannot be deleted: {why}; clean up by hand, then annotate its VolumeSnapshotContent with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    rule.warn(reason::SNAPSHOT_DELETION_FAILED, message)
}

/// Checks whether the content may come from a backup: it has the record of another content or no status, and neither its
/// VolumeSnapshot nor any run is known.
fn is_restored(o: &Observed<'_>) -> bool {
    let has_no_run = o.jobs.is_empty() && o.run == RunState::NotCached && !o.has_running_pods;
    // A tool may lose the UID in the reference to the VolumeSnapshot.
    let is_gone = matches!(o.snapshot, SnapshotState::NotFound | SnapshotState::Unbound);
    is_gone && has_no_run && o.delete_run == RunState::NotCached && o.content.may_be_restored()
}

/// Keeps the stored snapshot of a content that may come from a backup.
fn restored(content: &Content) -> Decision {
    let message = format!(
        "a backup may have restored VolumeSnapshotContent {}: it has the record of a stored snapshot, but not its VolumeSnapshot; the provisioner keeps what is stored: {}",
        content.name,
        content.remedy_of_restored()
    );
    Rule::Restored.warn(reason::SNAPSHOT_RESTORED, message)
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
        return unprotect_source(o).unwrap_or_else(|| Rule::NotOurs.nothing());
    }
    if content.terminating {
        return if content.is_kept() { terminating(o, now) } else { Rule::KeptByOtherFinalizers.nothing() };
    }
    match (content.handle.is_some(), content.ready) {
        (true, _) if !content.has_finalizer() => Rule::ProtectContent.step(Step::AddFinalizer),
        (true, false) if content.has_long_id() => {
            reporting(Rule::NotPossible, content, format!("the snapshot cannot be restored: {}", long_id()))
        }
        (true, false) => Rule::ExistingSnapshot.step(Step::MarkReady { size: None }),
        (_, true) => finished(o),
        (false, false) => making(o, now),
    }
}

/// Decides about a content that is ready.
fn finished(o: &Observed<'_>) -> Decision {
    if let Some(unprotect) = unprotect_source(o) {
        return unprotect;
    }
    if o.content.may_be_restored() && o.snapshot == SnapshotState::NotCached {
        return Rule::ConfirmSnapshotGone.step(Step::ConfirmSnapshot);
    }
    if is_restored(o) {
        return restored(o.content);
    }
    match o.jobs.iter().find(|job| job.is_over && !job.terminating) {
        Some(job) => Rule::JobNotNeeded.step(Step::RemoveJob { job: job.name.clone() }),
        None => Rule::Ready.nothing(),
    }
}

/// Decides to remove the finalizers of claims for which the content is kept without need.
fn unprotect_source(o: &Observed<'_>) -> Option<Decision> {
    let claims: Vec<_> =
        o.source_users.iter().filter(|claim| claim.in_progress.is_none()).map(|claim| claim.uid.clone()).collect();
    (!claims.is_empty()).then(|| Rule::UnprotectContent.step(Step::UnprotectSource { claims }))
}

/// Decides about a terminating content with a finalizer.
fn terminating(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if content.abandoned {
        // A Job that outlives the content would be a late run, whose storage is deleted.
        if let Some(stop) = stop_run(o) {
            return stop;
        }
        let message = "abandoned by annotation: the provisioner does not delete the stored snapshot";
        let decision = Rule::Abandoned.step(Step::RemoveFinalizer);
        return decision.with_warning(reason::STORAGE_ABANDONED, message);
    }
    match o.snapshot {
        SnapshotState::NotCached => return Rule::ConfirmSnapshotGone.step(Step::ConfirmSnapshot),
        SnapshotState::Alive => {
            let message = format!(
                "the VolumeSnapshotContent {} stays as long as its VolumeSnapshot exists; delete that",
                content.name
            );
            return Rule::SnapshotExists.warn(reason::SNAPSHOT_IN_USE, message);
        }
        SnapshotState::Unbound | SnapshotState::Terminating | SnapshotState::NotFound => {}
    }
    if let Some(unprotect) = unprotect_source(o) {
        return unprotect;
    }
    let filling: Vec<_> =
        o.source_users.iter().filter_map(|claim| claim.in_progress.as_ref()).map(ToString::to_string).collect();
    if !filling.is_empty() {
        let message = format!("the snapshot stays until these claims are filled from it: {}", filling.join(", "));
        return Rule::RestoreInProgress.nothing().with_event(reason::SNAPSHOT_IN_USE, message);
    }
    if let Some(stop) = stopping(o) {
        return stop;
    }
    if content.provenance.is_none() && content.handle.is_none() {
        return Rule::NothingStored.step(Step::RemoveFinalizer);
    }
    if is_restored(o) {
        return restored(content);
    }
    // A snapshot that somebody else stored is whole before its content is marked as ready.
    if content.policy != ReclaimPolicy::Delete && (content.ready || content.handle.is_some()) {
        return Rule::DeletedButRetained.step(Step::RemoveFinalizer);
    }
    // A script that gets an empty id could delete the directory of all snapshots.
    if content.id().is_empty() {
        return manual_cleanup(Rule::ProvenanceUnknown, "nothing names the id of the stored snapshot");
    }
    if content.has_long_id() {
        return manual_cleanup(Rule::ProvenanceUnknown, &long_id());
    }
    match &o.recipe {
        Ok(recipe) => deleting(o, recipe, now),
        Err(why) => manual_cleanup(Rule::ProvenanceUnknown, why),
    }
}

/// Ends the runs that must end before the snapshot is deleted.
fn stopping(o: &Observed<'_>) -> Option<Decision> {
    let has_run = !matches!(o.run, RunState::NotCached) || o.has_running_pods || !o.jobs.is_empty();
    stop_run(o).or_else(|| has_run.then(|| waiting(o, Rule::SnapshotRunEnding, reason::SNAPSHOT_DELETION_FAILED)))
}

/// Deletes a Job of a snapshot run.
fn stop_run(o: &Observed<'_>) -> Option<Decision> {
    let job = o.jobs.iter().find(|job| !job.terminating)?;
    Some(Rule::StopSnapshotRun.step(Step::RemoveJob { job: job.name.clone() }))
}

/// Waits. Emits an event if a pod is on a node that does not answer.
fn waiting(o: &Observed<'_>, rule: Rule, reason: &'static Reason) -> Decision {
    match o.node_states.first_not_reachable(o.nodes_with_pods) {
        Some(node) => rule.warn(reason, unreachable_message(node)),
        None => rule.nothing(),
    }
}

/// Decides by the state of the delete-snapshot run.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let failed = last(o.content, Operation::DeleteSnapshot);
    let attempt = delete_attempt(o.content);
    match &o.delete_run {
        RunState::NotCached => {
            let due = failed.map_or(now, |failure| failure.next_deletion(recipe, o.content.retry, now));
            match now < due {
                true => Rule::DeleteRunNotDue.nothing().requeue_at(due),
                false => start(o, attempt),
            }
        }
        RunState::MayBeRunning | RunState::Failed { pods_ended: false, .. } => {
            waiting(o, Rule::DeleteRunInProgress, reason::SNAPSHOT_DELETION_FAILED)
        }
        RunState::Stuck { cause, .. } => {
            let message = format!("delete-snapshot run: {}", o.node_states.why_stuck(o.origin_node, &cause.message));
            Rule::DeleteRunStuck.warn(reason::SNAPSHOT_DELETION_FAILED, message)
        }
        RunState::Succeeded => Rule::StorageDeleted.step(Step::RemoveFinalizer),
        RunState::Failed { cause, at, .. } => {
            let failure = LastFailure::of_deleting_run(
                Operation::DeleteSnapshot,
                attempt,
                clamp_to_recent(*at, now),
                cause,
                failed,
            );
            let failure = failure.with_recipe(recipe);
            let message = format!(
                "delete-snapshot run {attempt} failed: {}; next try in {} s",
                cause.message,
                delay(recipe, attempt)
            );
            let decision = Rule::DeleteRunFailed.step(Step::RecordFailure(failure));
            decision.with_warning(reason::SNAPSHOT_DELETION_FAILED, message)
        }
    }
}

/// Starts a delete-snapshot run on its node. If that node is gone, follows the class's `node-gone`.
fn start(o: &Observed<'_>, attempt: u32) -> Decision {
    let begin = |on_any_node| Step::StartDelete { attempt, on_any_node };
    let Some(node) = o.origin_node else { return Rule::DeleteRunDue.step(begin(false)) };
    match (o.node_states.state(node), o.node_gone) {
        (NodeState::Reachable | NodeState::Unreachable, _) => Rule::DeleteRunDue.step(begin(false)),
        (NodeState::NotCached, _) => Rule::ConfirmNodeGone.step(Step::ConfirmNode { node: node.to_owned() }),
        (NodeState::NotFound, NodeGone::RunElsewhere) => Rule::NodeGoneRunElsewhere.step(begin(true)),
        (NodeState::NotFound, NodeGone::Forget) => {
            let message = format!("node {node} is gone, and with it the snapshot that it stored (node-gone: forget)");
            let decision = Rule::NodeGoneForget.step(Step::RemoveFinalizer);
            decision.with_warning(reason::STORAGE_ABANDONED, message)
        }
        (NodeState::NotFound, NodeGone::Hold) => {
            let why = format!(
                "node {node}, which stores the snapshot, is gone; the provisioner deletes the snapshot when the node is back; else set `node-gone` in the provisioner config"
            );
            manual_cleanup(Rule::NodeGoneHold, &why)
        }
    }
}

/// Decides about a content that is not ready.
fn making(o: &Observed<'_>, now: i64) -> Decision {
    let content = o.content;
    if o.snapshot == SnapshotState::NotCached {
        return Rule::ConfirmSnapshotGone.step(Step::ConfirmSnapshot);
    }
    if is_restored(o) {
        return restored(content);
    }
    let begun = content.attempt > 0 && content.provenance.is_some();
    if begun && !content.has_finalizer() {
        return Rule::ProtectContent.step(Step::AddFinalizer);
    }
    let failed = last(content, Operation::Snapshot);
    let in_progress = begun && failed.is_none_or(|failure| failure.attempt < content.attempt);
    let absent = o.run == RunState::NotCached && o.jobs.iter().all(|job| job.run_labels.attempt != content.attempt);
    match o.snapshot {
        SnapshotState::NotFound if content.provenance.is_none() && content.instance.is_some() => {
            return Rule::SnapshotGone.step(Step::DeleteContent);
        }
        SnapshotState::NotFound | SnapshotState::Terminating if !in_progress || absent => {
            return Rule::SnapshotTerminating.nothing();
        }
        SnapshotState::Unbound => return Rule::Unbound.nothing(),
        SnapshotState::NotFound | SnapshotState::Terminating | SnapshotState::Alive | SnapshotState::NotCached => {}
    }
    if in_progress && !absent {
        return running(o, now);
    }
    let source = match able(o) {
        Ok(source) => source,
        Err(why) => return reporting(Rule::NotPossible, content, why),
    };
    if !in_progress {
        return attempt(o, source, failed, now);
    }
    match (source.is_protected, o.fresh) {
        (false, _) => Rule::ProtectSource.step(Step::ProtectSource),
        (true, false) => Rule::ConfirmContent.step(Step::Refresh),
        (true, true) => Rule::RunDue.step(Step::StartRun),
    }
}

/// Decides when the next attempt begins.
fn attempt(o: &Observed<'_>, source: &RunSource<'_>, failed: Option<&LastFailure>, now: i64) -> Decision {
    let content = o.content;
    if let Some(wait) = not_due(content, failed, source.recipe, now) {
        return wait;
    }
    if o.has_running_pods || o.jobs.iter().any(|job| !job.is_over) {
        return waiting(o, Rule::EarlierRunEnding, reason::SNAPSHOT_CREATION_FAILED);
    }
    if !source.has_slot {
        return until_slot_is_free(Rule::NoFreeSlot.step(Step::WaitForSlot), content.created, now);
    }
    let attempt = content.attempt.max(failed.map_or(0, |failure| failure.attempt)).saturating_add(1);
    Rule::AttemptDue.step(Step::Stamp { attempt, provenance: Box::new(source.provenance.clone()) })
}

/// Returns the source of a run, or the reason why there can be no run.
fn able<'a, 'o>(o: &'o Observed<'a>) -> Result<&'o RunSource<'a>, String> {
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
fn reporting(rule: Rule, content: &Content, error: String) -> Decision {
    let step = match content.error.as_ref() == Some(&message_of(&error)) {
        true => Step::Nothing,
        false => Step::WriteStatus { error: error.clone() },
    };
    rule.step(step).with_warning(reason::SNAPSHOT_CREATION_FAILED, error)
}

/// Waits after a failed attempt.
fn not_due(content: &Content, failed: Option<&LastFailure>, recipe: &Recipe, now: i64) -> Option<Decision> {
    let failure = failed?;
    // A new version of the config is tried at once.
    let is_newer = || content.made_by().is_none_or(|made_by| made_by.effective_config != recipe.effective_config);
    let wait = match failure.reaction {
        Reaction::Never if is_newer() => 0,
        reaction => shortened(delay_after(reaction, recipe, failure.attempt), content.retry),
    };
    let due = due_after(failure.at, wait, now);
    if content.error.as_ref() != Some(&message_of(&failure.message)) {
        return Some(Rule::ReportFailure.step(Step::WriteStatus { error: failure.message.clone() }));
    }
    (now < due).then(|| Rule::AttemptNotDue.nothing().requeue_at(due))
}

/// Decides by the state of the snapshot run.
fn running(o: &Observed<'_>, now: i64) -> Decision {
    match &o.run {
        RunState::NotCached | RunState::MayBeRunning | RunState::Failed { pods_ended: false, .. } => {
            waiting(o, Rule::RunInProgress, reason::SNAPSHOT_CREATION_FAILED)
        }
        RunState::Stuck { cause, .. } => reporting(Rule::RunStuck, o.content, cause.message.clone()),
        RunState::Succeeded => {
            Rule::RunSucceeded.step(Step::MarkReady { size: o.content.made_by().map(|made_by| made_by.size) })
        }
        RunState::Failed { cause, reaction, at, .. } => {
            failed_run(o.content, cause, *reaction, o.recipe.as_ref().ok().copied(), clamp_to_recent(*at, now))
        }
    }
}

/// Records that an attempt has failed, or that its Job could not be created.
pub fn failed_run(content: &Content, cause: &Cause, reaction: Reaction, recipe: Option<&Recipe>, at: i64) -> Decision {
    let attempt = content.attempt;
    let failure = LastFailure::new(Operation::Snapshot, attempt, at, cause, reaction);
    let next = match (reaction, recipe) {
        (Reaction::Never, _) => not_before("the provisioner config changes"),
        (_, Some(recipe)) => format!("next try in {} s", delay(recipe, attempt)),
        (_, None) => "next try when there is a provisioner config".to_owned(),
    };
    let message = format!("snapshot run {attempt} failed: {}; {next}", cause.message);
    Rule::RunFailed.step(Step::RecordFailure(failure)).with_warning(reason::SNAPSHOT_CREATION_FAILED, message)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

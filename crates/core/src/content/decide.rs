//! Decides when the snapshot of a VolumeSnapshotContent is stored and deleted: a pure function of the observation and
//! the time.
//!
//! The [rules](Rule) say when it takes which step.
//!
//! The source is protected as long as the content exists and is not ready. The decision about the source's claim ends
//! the protection.

mod rule;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use crate::config::{NodeGone, Recipe};
use crate::limits;
use crate::model::data_source::SourceUser;
use crate::model::snapshot::{CAPABILITY, Content, SnapshotProvenance};
use crate::rules::Rule as _;
use crate::run;
use crate::run::backoff::{delay, delay_after, due_after, not_before, shortened};
use crate::run::decide::{Goal, Next, NodeOfRun, Outcome, Seen, SeenRun, What, decide_next};
use crate::run::failure::LastFailure;
use crate::run::node::{NodeStates, unreachable_message};
use crate::run::rule::{Rule as RunRule, Target};
use crate::run::slot_wait::{NoSlot, until_slot_is_free};
use crate::run::state::{Cause, JobRefusal, RunState};
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
    /// The reason why the class has no slot for a run; `None` if it has one.
    pub no_slot: Option<NoSlot>,
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
    /// The Jobs of all delete-snapshot runs of the content.
    pub delete_jobs: &'a [&'a Job],
    /// The claims for which the content is kept.
    pub source_users: &'a [SourceUser],
}

/// Says why no run can get the id of a snapshot.
fn long_id() -> String {
    format!("its id in the storage is longer than {} bytes, and no run can get it", limits::HANDLE)
}

fn manual_cleanup(content: &Content, rule: Rule, why: &str) -> Decision {
    let let_go = content.how_to_abandon();
    let message = format!("the snapshot cannot be deleted: {why}; clean up by hand, then {let_go}");
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
        (_, true) => finished(o, now),
        (false, false) => making(o, now),
    }
}

/// Decides about a content that is ready.
fn finished(o: &Observed<'_>, now: i64) -> Decision {
    if let Some(unprotect) = unprotect_source(o) {
        return unprotect;
    }
    if o.content.may_be_restored() && o.snapshot == SnapshotState::NotCached {
        return Rule::ConfirmSnapshotGone.step(Step::ConfirmSnapshot);
    }
    if is_restored(o) {
        return restored(o.content);
    }
    let over = o.jobs.iter().filter(|job| job.is_over).map(|&job| SeenRun::of_deletion(Some(job), &o.run));
    let runs: Vec<_> = over.map(|run| SeenRun { is_over: true, is_noted: true, is_needed: false, ..run }).collect();
    let outcome = run::decide::decide(&Goal::Keep, &seen(o, &runs), now);
    outcome.map_or_else(|| Rule::Ready.nothing(), |outcome| storing(o, outcome, now))
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
        // A Job that outlives the content would be a late run, whose storage is deleted, or it deletes the storage itself.
        let stop = stopping(o, now).filter(|stop| stop.step != Step::Nothing);
        if let Some(stop) = stop.or_else(|| end_deletion(o, now)) {
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
    if let Some(stop) = stopping(o, now) {
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
        return end_deletion(o, now).unwrap_or_else(|| Rule::DeletedButRetained.step(Step::RemoveFinalizer));
    }
    // A script that gets an empty id could delete the directory of all snapshots.
    if content.id().is_empty() {
        return manual_cleanup(content, Rule::ProvenanceUnknown, "nothing names the id of the stored snapshot");
    }
    if content.has_long_id() {
        return manual_cleanup(content, Rule::ProvenanceUnknown, &long_id());
    }
    match &o.recipe {
        Ok(recipe) => deleting(o, recipe, now),
        Err(why) => manual_cleanup(content, Rule::ProvenanceUnknown, why),
    }
}

/// Returns the runs of these Jobs, all of which must end. A run is left as long as its Job is.
fn to_end<'a>(jobs: &[&'a Job], state: &'a RunState) -> Vec<SeenRun<'a>> {
    let runs = jobs.iter().map(|&job| SeenRun::of_deletion(Some(job), state));
    runs.map(|run| SeenRun { is_over: false, ..run }).collect()
}

/// Ends the runs that must end before the snapshot is deleted.
fn stopping(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let runs = to_end(o.jobs, &o.run);
    let is_starting = o.run != RunState::NotCached;
    let seen = Seen { is_starting, has_pods: o.has_running_pods, ..seen(o, &runs) };
    run::decide::decide(&Goal::End, &seen, now).map(|outcome| storing(o, outcome, now))
}

/// Ends the runs that delete what an admin keeps; `None` if none is left. An abandoned content waits for no pod on a node,
/// which may be lost.
fn end_deletion(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let mut runs = to_end(o.delete_jobs, &o.delete_run);
    // The watch may not show a new Job yet.
    runs.extend((o.delete_run != RunState::NotCached).then(|| SeenRun::of_deletion(None, &o.delete_run)));
    let Outcome { rule, what, .. } = run::decide::decide(&Goal::End, &seen(o, &runs), now)?;
    let rule = Rule::Run(Target::StoredSnapshot, rule);
    let is_let_go = o.content.abandoned && (!o.delete_jobs.is_empty() || !o.nodes_with_pods.is_empty());
    match what {
        What::Remove(job) => Some(rule.step(Step::RemoveJob { job: job.name.clone() })),
        What::Wait { unreachable, .. } if !is_let_go => Some(waiting(o, rule, unreachable)),
        _ => None,
    }
}

/// Returns the observation for the decision about these runs.
fn seen<'a>(o: &Observed<'a>, runs: &'a [SeenRun<'a>]) -> Seen<'a> {
    Seen::of(runs, o.node_states.first_not_reachable(o.nodes_with_pods).map(String::as_str))
}

/// Waits for a run. Emits an event if a pod for which it waits is on a node that does not answer.
fn waiting(o: &Observed<'_>, rule: Rule, unreachable: Option<&str>) -> Decision {
    let reason = match o.content.terminating {
        true => reason::SNAPSHOT_DELETION_FAILED,
        false => reason::SNAPSHOT_CREATION_FAILED,
    };
    match (rule, unreachable) {
        (Rule::Run(_, RunRule::RunNotDue | RunRule::RunStopping), _) | (_, None) => rule.nothing(),
        (_, Some(node)) => rule.warn(reason, unreachable_message(node)),
    }
}

/// Decides about the runs that delete the snapshot.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let failed = last(o.content, Operation::DeleteSnapshot);
    let attempt = delete_attempt(o.content);
    let next = Next {
        due: failed.map_or(now, |failure| failure.next_deletion(recipe, o.content.retry, now)),
        poll: None,
        has_slot: true,
        is_prepared: true,
        node: o.origin_node.map(|name| NodeOfRun { name, state: o.node_states.state(name), gone: o.node_gone }),
    };
    let runs = [SeenRun::of_deletion(None, &o.delete_run)];
    let Outcome { rule, what, requeue_at } = decide_next(&next, &seen(o, &runs), now);
    let rule = Rule::Run(Target::StoredSnapshot, rule);
    match what {
        What::Wait { unreachable, .. } => Decision { requeue_at, ..waiting(o, rule, unreachable) },
        What::Stuck { cause, .. } => {
            let message = format!("delete-snapshot run: {}", o.node_states.why_stuck(o.origin_node, &cause.message));
            rule.warn(reason::SNAPSHOT_DELETION_FAILED, message)
        }
        What::Succeeded(_) => rule.step(Step::RemoveFinalizer),
        What::Failed { cause, at, .. } => {
            let failure = LastFailure::of_deleting_run(Operation::DeleteSnapshot, attempt, at, cause, failed);
            let message = format!(
                "delete-snapshot run {attempt} failed: {}; next try in {} s",
                cause.message,
                delay(recipe, attempt)
            );
            rule.step(Step::RecordFailure(failure.with_recipe(recipe)))
                .with_warning(reason::SNAPSHOT_DELETION_FAILED, message)
        }
        What::ConfirmNode(node) => rule.step(Step::ConfirmNode { node: node.to_owned() }),
        What::NodeGone(node) => node_gone(o, rule, node),
        What::Start { on_any_node } => rule.step(Step::StartDelete { attempt, on_any_node }),
        What::Remove(_) | What::WaitForSlot | What::Prepare => rule.nothing(),
    }
}

/// Follows the class's `node-gone` about the node of the snapshot, which is gone.
fn node_gone(o: &Observed<'_>, rule: Rule, node: &str) -> Decision {
    if o.node_gone == NodeGone::Forget {
        let message = format!("node {node} is gone, and with it the snapshot that it stored (node-gone: forget)");
        return rule.step(Step::RemoveFinalizer).with_warning(reason::STORAGE_ABANDONED, message);
    }
    let why = format!(
        "node {node}, which stores the snapshot, is gone; the provisioner deletes the snapshot when the node is back; else set `node-gone` in the provisioner config"
    );
    manual_cleanup(o.content, rule, &why)
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
    let job = o.jobs.iter().copied().find(|job| job.run_labels.attempt == content.attempt);
    let state = match &o.run {
        RunState::NotCached if job.is_some() => &RunState::MayBeRunning,
        state => state,
    };
    match o.snapshot {
        SnapshotState::NotFound if content.provenance.is_none() && content.instance.is_some() => {
            return Rule::SnapshotGone.step(Step::DeleteContent);
        }
        SnapshotState::NotFound | SnapshotState::Terminating if !in_progress || *state == RunState::NotCached => {
            return Rule::SnapshotTerminating.nothing();
        }
        SnapshotState::Unbound => return Rule::Unbound.nothing(),
        SnapshotState::NotFound | SnapshotState::Terminating | SnapshotState::Alive | SnapshotState::NotCached => {}
    }
    let run = [SeenRun::of_deletion(job, state)];
    if in_progress && let Some(outcome) = run::decide::decide(&Goal::Keep, &seen(o, &run), now) {
        return storing(o, outcome, now);
    }
    match able(o) {
        Ok(source) if in_progress && !source.is_protected => Rule::ProtectSource.step(Step::ProtectSource),
        Ok(_) if in_progress && !o.fresh => Rule::ConfirmContent.step(Step::Refresh),
        Ok(source) => next_run(o, source, failed.filter(|_| !in_progress), in_progress, now),
        Err(why) => reporting(Rule::NotPossible, content, why),
    }
}

/// Decides when the next run begins. `is_stamped` says that the content is stamped for it.
fn next_run(
    o: &Observed<'_>,
    source: &RunSource<'_>,
    failed: Option<&LastFailure>,
    is_stamped: bool,
    now: i64,
) -> Decision {
    let content = o.content;
    let is_reported = |failure: &LastFailure| content.error.as_ref() == Some(&message_of(&failure.message));
    if let Some(failure) = failed.filter(|failure| !is_reported(failure)) {
        return Rule::ReportFailure.step(Step::WriteStatus { error: failure.message.clone() });
    }
    let next = Next {
        due: failed.map_or(now, |failure| next_attempt_at(content, failure, source.recipe, now)),
        poll: None,
        has_slot: is_stamped || source.no_slot.is_none(),
        is_prepared: is_stamped,
        node: None,
    };
    let has_pods = !is_stamped && (o.has_running_pods || o.jobs.iter().any(|job| !job.is_over));
    let outcome = decide_next(&next, &Seen { has_pods, ..seen(o, &[]) }, now);
    let What::Prepare = outcome.what else { return storing(o, outcome, now) };
    let attempt = content.attempt.max(failed.map_or(0, |failure| failure.attempt)).saturating_add(1);
    Rule::Run(Target::Snapshot, outcome.rule)
        .step(Step::Stamp { attempt, provenance: Box::new(source.provenance.clone()) })
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

/// Returns when the attempt after a failed one is due, in seconds since 1970.
fn next_attempt_at(content: &Content, failure: &LastFailure, recipe: &Recipe, now: i64) -> i64 {
    // A new version of the config is tried at once.
    let is_newer = || content.made_by().is_none_or(|made_by| made_by.effective_config != recipe.effective_config);
    let wait = match failure.reaction {
        Reaction::Never if is_newer() => 0,
        reaction => shortened(delay_after(reaction, recipe, failure.attempt), content.retry),
    };
    due_after(failure.at, wait, now)
}

/// Decides what follows from a decision about the runs that store the snapshot.
fn storing(o: &Observed<'_>, outcome: Outcome<'_>, now: i64) -> Decision {
    let content = o.content;
    let rule = Rule::Run(Target::Snapshot, outcome.rule);
    match outcome.what {
        What::Wait { unreachable, .. } => Decision { requeue_at: outcome.requeue_at, ..waiting(o, rule, unreachable) },
        What::WaitForSlot => {
            let why = o.source.as_ref().ok().and_then(|source| source.no_slot).unwrap_or(NoSlot::Taken);
            until_slot_is_free(rule.step(Step::WaitForSlot), why, content.created, now)
        }
        What::Stuck { cause, .. } => reporting(rule, content, cause.message.clone()),
        What::Remove(job) => rule.step(Step::RemoveJob { job: job.name.clone() }),
        What::Succeeded(_) => rule.step(Step::MarkReady { size: content.made_by().map(|made_by| made_by.size) }),
        What::Failed { cause, reaction, at, .. } => {
            failed_run(content, cause, reaction, o.recipe.as_ref().ok().copied(), at)
        }
        What::Start { .. } => rule.step(Step::StartRun),
        What::Prepare | What::ConfirmNode(_) | What::NodeGone(_) => rule.nothing(),
    }
}

/// Records that the Job of an attempt could not be created.
pub fn failed_start(content: &Content, refusal: &JobRefusal, recipe: &Recipe, now: i64) -> Decision {
    let rule = Rule::Run(Target::Snapshot, RunRule::RunRefused);
    Decision { rule, ..failed_run(content, &refusal.cause, refusal.reaction, Some(recipe), now) }
}

/// Records that an attempt has failed.
fn failed_run(content: &Content, cause: &Cause, reaction: Reaction, recipe: Option<&Recipe>, at: i64) -> Decision {
    let attempt = content.attempt;
    let failure = LastFailure::new(Operation::Snapshot, attempt, at, cause, reaction);
    let next = match (reaction, recipe) {
        (Reaction::Never, _) => not_before("the provisioner config changes"),
        (_, Some(recipe)) => format!("next try in {} s", delay(recipe, attempt)),
        (_, None) => "next try when there is a provisioner config".to_owned(),
    };
    let message = format!("snapshot run {attempt} failed: {}; {next}", cause.message);
    let decision = Rule::Run(Target::Snapshot, RunRule::RunFailed).step(Step::RecordFailure(failure));
    decision.with_warning(reason::SNAPSHOT_CREATION_FAILED, message)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! Reconciles batches: creates their Jobs, and deletes a Job when no member wants it any more.

use flex_contract::operation::Operation;
use flex_core::batch::decide::{Decision, Rule, Step, decide};
use flex_core::batch::{self, BatchJob, MemberRun};
use flex_core::config::Recipe;
use flex_core::model::volume::Volume;
use flex_core::rules::Rule as _;
use flex_core::run::job;
use flex_core::run::view::Job;

use crate::api::writes::{NotedVolume, WriteError};
use crate::reconcile::context::{Context, Requeue, RunObjects, refused_job};
use crate::state::index::{BatchEntry, DeletionToBatch, Woken, WorkItem};

/// Reconciles an open batch, which collects its members.
pub(super) async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let NextStep { decision: Decision { rule, step, .. }, entries } = next_step(context, name);
    context.decided(&name, rule, &step);
    if let Step::Wait(remaining) = step {
        return Ok(Requeue::After(remaining));
    }
    let Some(first) = entries.first() else { return Ok(Requeue::Done) };
    let member_run = |entry: &BatchEntry| MemberRun { member: entry.member.clone(), request: entry.request.clone() };
    let members: Vec<_> = entries.iter().map(member_run).collect();
    // Members that do not fit see the Job without them.
    let BatchJob { job, members: count } = batch::job(&first.recipe, name, &members, &first.target);
    let claims: Vec<_> = entries.iter().take(count).filter_map(|entry| entry.claim.as_deref().cloned()).collect();
    let Err(error) = context.create_job(&first.recipe, job, &claims).await else {
        context.metrics.batch(&first.recipe.class, count);
        return Ok(Requeue::Done);
    };
    let why = match error {
        WriteError::Foreign(_) => Ok(error.to_string()),
        error => refused_job(error).map(|refusal| refusal.cause.message),
    };
    let why = match why {
        Ok(why) => why,
        Err(unknown) => {
            // A terminating Job of the same name must be gone first.
            if matches!(unknown, WriteError::Conflict(_)) {
                return Err(unknown);
            }
            context.cluster.index_mut().collect_again(name, &entries);
            return Err(unknown);
        }
    };
    // A single run meets the same refusal and emits an event on its claim; or only the batch is too large.
    tracing::warn!(batch = name, why, "Kubernetes refused the Job of a batch; its claims get runs of their own");
    context.cluster.update(|index| index.refuse_batch(name));
    Ok(Requeue::Done)
}

/// The next step for a batch.
struct NextStep {
    decision: Decision,
    /// The members for the Job of the batch, which is closed; none if it stays open.
    entries: Vec<BatchEntry>,
}

/// Decides the next step, and closes the batch unless it waits on. The lock is held for both: a member that arrives in
/// between would be in no batch.
fn next_step(context: &Context, name: &str) -> NextStep {
    let forget = || Rule::NobodyLeft.step(Step::Forget);
    let mut index = context.cluster.index_mut();
    let decision = index.observe_batch(name).map_or_else(forget, |observed| decide(&observed));
    let Woken { value: entries, items } = match decision.step {
        Step::Wait(_) => return NextStep { decision, entries: Vec::new() },
        Step::Create | Step::Forget => index.close_batch(name),
    };
    drop(index);
    context.cluster.queue.add_all(items);
    // None of the members wants the batch any more.
    NextStep { decision: if entries.is_empty() { forget() } else { decision }, entries }
}

/// A volume whose first delete run is due, with the target of that run.
pub(super) struct Due<'a> {
    pub volume: &'a Volume,
    pub recipe: &'a Recipe,
    pub node: Option<&'a str>,
    /// The name of the run's own Job outside a batch.
    pub job: &'a str,
}

impl Context {
    /// Records that a stamped member has arrived for its batch. Returns whether the member must wait.
    pub(super) fn add_entry(&self, batch: &str, entry: BatchEntry) -> bool {
        let has_joined = self.cluster.index_mut().add_entry(batch, entry);
        self.cluster.queue.add(WorkItem::Batch(batch.to_owned()));
        has_joined
    }

    /// Records on a volume the batch of its delete run. Returns the written volume with its source; `None` for a run of
    /// its own.
    pub(super) async fn join_deletion(&self, due: &Due<'_>) -> Result<Option<NotedVolume>, WriteError> {
        let Due { volume, recipe, node, job } = *due;
        let ts = self.timestamp();
        let Some(batch) =
            self.cluster.index_mut().join_deletion(volume, recipe, &DeletionToBatch { job, node, ts: &ts })
        else {
            return Ok(None);
        };
        self.cluster.queue.add(WorkItem::Batch(batch.clone()));
        let noted = self.writes.note_batch(volume, &batch).await;
        if noted.is_err() {
            let id = volume.volume_id().unwrap_or_default();
            self.cluster.update(|index| {
                let mut woken = index.leave_batches(Operation::Delete, id);
                woken.extend(index.cancel_expectation(&job::name(Operation::Delete, id, 1, &batch)));
                woken
            });
        }
        noted.map(Some)
    }

    /// Deletes the Job of a run for a claim or volume. The Job of a batch is deleted when no member wants it any more, and a
    /// deletion that has not begun when one does not: an admin may have set this volume to Retain. Until then this member
    /// sees it as terminating.
    pub(super) async fn remove_run(&self, job: &Job) -> Result<(), WriteError> {
        let (is_unopened, is_left) = {
            let mut index = self.cluster.index_mut();
            let may_withdraw = job.batch.is_none() || job.run_labels.operation == Operation::Delete;
            (may_withdraw && index.withdraw(job), job.batch.is_none() || index.detach_member(job))
        };
        if !is_left && !is_unopened {
            let key =
                || self.cluster.index().claim_of_id(&job.run_labels.id).or(job.claim.clone().map(WorkItem::Claim));
            let key = job.volume.clone().map(WorkItem::Volume).or_else(key);
            self.cluster.queue.add_all(key);
            return Ok(());
        }
        let removed = self.writes.remove_job(job.real_name(), &job.uid).await;
        if removed.is_err() {
            self.cluster.index_mut().attach_member(job);
            // A Job whose answer is forgotten is deleted there.
            self.cluster.queue.add(WorkItem::Gate(job.real_name().clone()));
        }
        removed
    }

    /// Checks whether the API has the Job of a batch, or one of its pods, before the watches show it.
    pub(super) async fn is_batch_unseen(&self, name: &str, namespace: Option<&str>) -> Result<bool, WriteError> {
        let (jobs, pods) = {
            let index = self.cluster.index();
            (index.jobs_of(name), index.pods_of(name))
        };
        self.is_run_unseen(Operation::Provision, name, namespace, RunObjects { jobs: &jobs, pods: &pods }).await
    }
}

//! Reconciles batches: creates their Jobs, and deletes a Job when no member wants it any more.

use flex_contract::operation::Operation;
use flex_core::batch::decide::{Decision, Step, decide};
use flex_core::batch::{self, BatchJob, MemberRun};
use flex_core::object::ObjectName;
use flex_core::run::view::Job;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, RunObjects, refused_job};
use crate::reconcile::failing;
use crate::state::index::{BatchEntry, Woken, WorkItem};

/// Reconciles an open batch, which collects its members.
pub(super) async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let Some(NextStep { decision: Decision { rule, step, .. }, entries }) = next_step(context, name) else {
        return Ok(Requeue::Done);
    };
    context.decided(&name, rule, &step);
    if let Step::Wait(remaining) = step {
        return Ok(Requeue::After(remaining));
    }
    // None of the members may want the batch any more.
    let Some(first) = entries.first() else { return Ok(Requeue::Done) };
    let member_run = |entry: &BatchEntry| MemberRun { member: entry.member.clone(), request: entry.request.clone() };
    let members: Vec<_> = entries.iter().map(member_run).collect();
    // Members that do not fit see the Job without them.
    let BatchJob { job, members: count } = batch::job(&first.recipe, name, &members, &first.target);
    let claims: Vec<_> = entries.iter().take(count).filter_map(|entry| entry.claim.as_deref().cloned()).collect();
    let error = match context.create_job(&first.recipe, job, &claims).await {
        Ok(()) => {
            context.metrics.batch(&first.recipe.class, count);
            return Ok(Requeue::Done);
        }
        Err(error) => error,
    };
    let why = match error {
        WriteError::Foreign(_) => error.to_string(),
        error => match refused_job(error) {
            Ok(refusal) => refusal.cause.message,
            Err(unknown) => return Err(told(context, &entries, unknown)),
        },
    };
    // A single run meets the same refusal and emits an event on its claim; or only the batch is too large.
    tracing::warn!(batch = name, why, "Kubernetes refused the Job of a batch; its claims get runs of their own");
    context.cluster.update(|index| index.refuse_batch(name, &entries));
    Ok(Requeue::Done)
}

/// Tells the members of a batch that the API server fails to create its Job. The Job may exist, so that they wait until it can appear
/// no more. Then their runs are due again, in another batch.
fn told(context: &Context, entries: &[BatchEntry], error: WriteError) -> WriteError {
    let error = match error {
        // The next batch has another name, and meets the same fault.
        WriteError::Failed { source, .. } => WriteError::Failed { what: "the Job of a batch".to_owned(), source },
        error => error,
    };
    for entry in entries {
        failing::emit(context, &WorkItem::of_member(&entry.member), Some(&error));
    }
    error
}

/// The next step for a batch.
struct NextStep {
    decision: Decision,
    /// The members for the Job of the batch, which is closed; none if it stays open.
    entries: Vec<BatchEntry>,
}

/// Decides the next step, and closes the batch unless it waits on. The lock is held for both: a member that joins in
/// between would be in no batch. Returns `None` for a batch that is not open.
fn next_step(context: &Context, name: &str) -> Option<NextStep> {
    let mut index = context.cluster.index_mut();
    let decision = decide(&index.observe_batch(name)?);
    let Woken { value: entries, items } = match decision.step {
        Step::Wait(_) => return Some(NextStep { decision, entries: Vec::new() }),
        Step::Create => index.close_batch(name),
    };
    drop(index);
    context.cluster.queue.add_all(items);
    Some(NextStep { decision, entries })
}

impl Context {
    /// Adds a run, whose slot is taken, to a batch for runs like it. Returns whether there is one; else it is a run of its
    /// own.
    pub(super) fn join_batch(&self, entry: BatchEntry) -> bool {
        let batch = self.cluster.index_mut().join_batch(entry, &self.timestamp());
        let has_joined = batch.is_some();
        self.cluster.queue.add_all(batch.map(WorkItem::Batch));
        has_joined
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

    /// Checks whether the API has the Job of a batch that makes volumes, or one of its pods, before the watches show it.
    pub(super) async fn is_batch_unseen(&self, batch: &ObjectName) -> Result<bool, WriteError> {
        let (jobs, pods) = {
            let index = self.cluster.index();
            (index.jobs_of(&batch.name), index.pods_of(&batch.name))
        };
        let known = RunObjects { jobs: &jobs, pods: &pods };
        self.is_run_unseen(Operation::Provision, &batch.name, Some(&batch.namespace), known).await
    }
}

//! Batches: the Job of one run for several claims is created, and removed when none of them wants anything of it.

use std::sync::Arc;

use super::{Context, Pass, refused_job};
use crate::cluster::index::Key;
use crate::cluster::writes::WriteError;
use crate::run::batch;
use crate::run::gather::Step;
use crate::run::view::Job;

/// One pass over a batch that gathers.
pub(super) async fn pass(context: &Context, name: &str) -> Result<Pass, WriteError> {
    let (step, come) = context.shared.index().gathered(name);
    tracing::debug!(batch = name, ?step, come = come.len(), "decided about a batch");
    if let Step::Wait(left) = step {
        return Ok(Pass::After(left));
    }
    let Some(first) = come.first() else { return Ok(Pass::Done) };
    let members: Vec<_> = come.iter().map(|arrival| (arrival.member.clone(), arrival.request.clone())).collect();
    // Those who have no room in it see it without them.
    let (job, count) = batch::job(&first.recipe, name, &members, &first.place);
    let Err(error) = context.create_job(&job).await else {
        context.metrics.batch(&first.recipe.class, count);
        return Ok(Pass::Done);
    };
    let why = match error {
        WriteError::Foreign(_) => Ok(error.to_string()),
        error => refused_job(error).map(|(_, cause)| cause.message),
    };
    let why = match why {
        Ok(why) => why,
        Err(unknown) => {
            // One of its name that is being removed must be gone first.
            if matches!(unknown, WriteError::Conflict(_)) {
                return Err(unknown);
            }
            context.shared.index().gather_again(name, come);
            return Err(unknown);
        }
    };
    // A run of its own meets the same refusal, and tells it on its claim; or it is the batch that is too much.
    tracing::warn!(batch = name, why, "a run for several claims cannot be created; each gets one of its own");
    let woken = context.shared.index().refuse_batch(name);
    context.shared.queue.add_all(woken);
    Ok(Pass::Done)
}

impl Context {
    /// Removes the Job of a run for a claim. That of a batch goes when no claim wants anything of it any more; until then
    /// this one sees it as being removed.
    pub(super) async fn remove_run(&self, job: &Job) -> Result<(), WriteError> {
        if job.batch.is_none() {
            return self.writes.remove_job(&job.name, &job.uid).await;
        }
        if !self.shared.index().leave_job(job) {
            self.shared.queue.add_all(job.claim.clone().map(Key::Claim));
            return Ok(());
        }
        let removed = self.writes.remove_job(job.real_name(), &job.uid).await;
        if removed.is_err() {
            self.shared.index().stay_in_job(job);
        }
        removed
    }

    /// Whether the API has the Job of a batch, or a pod of it, that the watches have not shown yet.
    pub(super) async fn is_batch_unseen(&self, name: &str, namespace: Option<&str>) -> Result<bool, WriteError> {
        let seen: (Vec<Arc<Job>>, Vec<_>) = {
            let index = self.shared.index();
            (index.jobs_of(name), index.pods_of(name))
        };
        self.is_run_unseen(contract::request::Operation::Provision, name, namespace, (&seen.0, &seen.1)).await
    }
}

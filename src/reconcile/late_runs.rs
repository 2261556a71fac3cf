//! Late runs, whose snapshot is gone: observes, decides with [`late_runs::decide`], and takes the steps.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::batch;
use flex_core::config::Recipe;
use flex_core::config::current_program::recipe_with_current_program;
use flex_core::model::object_ref::ObjectRef;
use flex_core::rules::NewEvent;
use flex_core::run::job::{self, ContentRef, RunTarget};
use flex_core::run::late_runs::{self, Decision, Observed, SCOPE, Step};
use flex_core::run::request::AttemptStart;
use flex_core::run::state::RunState;
use flex_core::run::view::{Job, Pod, has_running_pods};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::delete_run::start_delete_job;
use crate::state::index::SlotRequest;

/// The delay before a delete run that could not be created is tried again.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// The objects of a snapshot that is gone.
pub(super) struct Leftovers<'a> {
    /// The id of the snapshot.
    pub id: &'a str,
    /// The Jobs of the id, also those that are terminating.
    pub jobs: &'a [Arc<Job>],
    /// The pods of the id.
    pub pods: &'a [Arc<Pod>],
    /// The name of the VolumeSnapshotContent.
    pub content: &'a str,
}

impl Leftovers<'_> {
    /// Returns the Jobs of the snapshot runs that are not terminating.
    fn snapshot_jobs(&self) -> Vec<Arc<Job>> {
        let stores = |job: &&Arc<Job>| job.run_labels.operation == Operation::Snapshot && !job.terminating;
        self.jobs.iter().filter(stores).cloned().collect()
    }
}

/// Reconciles the objects of a snapshot that is gone once.
pub(super) async fn reconcile(context: &Context, leftovers: &Leftovers<'_>) -> Result<Requeue, WriteError> {
    let stored = leftovers.snapshot_jobs();
    // The next run may have the name of a Job that is terminating.
    let state = |job: &Job| match job.terminating {
        true => RunState::MayBeRunning,
        false => context.run_state(leftovers.jobs, leftovers.pods, &job.name.name),
    };
    let is_late = |job: &&Arc<Job>| {
        let name = || job::name(Operation::DeleteSnapshot, leftovers.id, job.run_labels.attempt, SCOPE);
        job.run_labels.operation == Operation::DeleteSnapshot && job.name.name == name()
    };
    let deletes: Vec<_> =
        leftovers.jobs.iter().filter(is_late).map(|job| (job.run_labels.attempt, state(job))).collect();
    let recipe = context.recipe_of_jobs(&stored).map(|recipe| {
        let class_recipe = context.class_recipe(&recipe.class);
        recipe_with_current_program(recipe, class_recipe.as_ref().map(|recipe| &recipe.effective_config))
    });
    let snapshot_jobs: Vec<&Job> = stored.iter().map(Arc::as_ref).collect();
    let Decision { rule, step, requeue_at, event } = late_runs::decide(
        &Observed {
            snapshot_jobs: &snapshot_jobs,
            has_running_pods: has_running_pods(leftovers.pods, Operation::Snapshot),
            recipe: recipe.as_deref(),
            deletes: &deletes,
        },
        context.clock.now(),
    );
    context.decided(&leftovers.id, rule, &step);
    if let (Some(event), Some(run)) = (event, stored.first()) {
        // The event goes with its Job, after an hour.
        if step == Step::Clear {
            tracing::warn!(id = leftovers.id, job = %run.name, "late run: {}", event.message);
        }
        let event = NewEvent { message: format!("snapshot id {}: {}", leftovers.id, event.message), ..event };
        context.emit(ObjectRef { kind: "Job", name: run.real_name().clone(), uid: run.uid.clone() }, event);
    }
    match (step, &recipe, stored.first()) {
        (Step::Clear, ..) => {
            let is_other = |job: &&Arc<Job>| job.run_labels.operation != Operation::Snapshot && !job.terminating;
            for job in stored.iter().chain(leftovers.jobs.iter().filter(is_other)) {
                context.remove_run(job).await?;
            }
            Ok(Requeue::Done)
        }
        (Step::StartDelete { attempt, without_account }, Some(recipe), Some(run)) => {
            start(context, leftovers, recipe, run, attempt, without_account).await
        }
        _ => Ok(context.wait(requeue_at, &[])),
    }
}

/// Starts a delete run. Its request is derived from the late run, the only record that is left.
async fn start(
    context: &Context,
    leftovers: &Leftovers<'_>,
    recipe: &Recipe,
    run: &Job,
    attempt: u32,
    without_account: bool,
) -> Result<Requeue, WriteError> {
    let Some(job) = context.writes.read_job(run.real_name()).await? else { return Ok(Requeue::Done) };
    let request = match batch::request_of(job, leftovers.id) {
        Ok(own) => late_runs::delete_request(own, recipe, AttemptStart { attempt, ts: context.timestamp() }),
        Err(error) => {
            tracing::warn!(job = %run.name, %error, "the request of a late run cannot be read; check whether the run left something behind, then remove the Job");
            return Ok(Requeue::Done);
        }
    };
    let target = RunTarget {
        namespace: recipe.config.namespace.clone(),
        scope: SCOPE.to_owned(),
        node: recipe.required_node(request.node()).map(str::to_owned),
        content: Some(ContentRef { name: leftovers.content.to_owned(), id: leftovers.id.to_owned(), policy: None }),
        without_account,
        ..RunTarget::default()
    };
    let name = job::name(Operation::DeleteSnapshot, leftovers.id, attempt, SCOPE);
    let slot_request = SlotRequest::content(leftovers.content, &request.claim.namespace);
    let slot_request = slot_request.to(Operation::DeleteSnapshot).on(target.node.as_deref());
    if !context.acquire_slot(&name, &slot_request, recipe) {
        return Ok(Requeue::WaitingForSlot);
    }
    tracing::info!(job = %run.name, "late run: deleting what the run may have stored");
    match start_delete_job(context, recipe, &request, target, None).await? {
        None => Ok(Requeue::JobCreated),
        Some(cause) => {
            tracing::warn!(job = %run.name, cause.message, "what a late run may have stored cannot be deleted now");
            Ok(Requeue::After(REFUSED_RETRY))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing::recipe;
    use flex_contract::policy::ReclaimPolicy;
    use flex_core::config::classes::Revision;
    use flex_core::model::stored::Stored;
    use flex_core::object::ObjectName;
    use flex_core::run::view::RunLabels;

    /// The gate has deleted the Job of the delete run, and the next one has its name.
    #[tokio::test]
    async fn a_delete_run_waits_until_the_job_with_its_name_is_gone() {
        let recipe = recipe(&[]);
        let job_of = |operation: Operation, name: &str| Job {
            name: ObjectName::new("own", name),
            recipe_version: recipe.version(),
            deletion_policy: Some(ReclaimPolicy::Delete),
            run_labels: RunLabels {
                operation: operation.as_str().into(),
                id: "id".into(),
                attempt: 1,
                class: recipe.class.clone(),
            },
            ..Job::default()
        };
        let late = Job { is_over: true, ..job_of(Operation::Snapshot, "snapshot-id-1") };
        let name = job::name(Operation::DeleteSnapshot, "id", 1, SCOPE);
        let ending = Job { terminating: true, ..job_of(Operation::DeleteSnapshot, &name) };
        for (jobs, is_started) in [(vec![late.clone()], true), (vec![late, ending], false)] {
            let (context, asked) = context(String::new());
            let effective_config = recipe.effective_config.clone();
            let hash = effective_config.hash();
            let stored = Stored::Recipe(hash, Revision { number: 1, effective_config, created: 0 });
            context.cluster.index_mut().change_stored(WatchChange::Apply(stored));
            let jobs: Vec<_> = jobs.into_iter().map(Arc::new).collect();
            let leftovers = Leftovers { id: "id", jobs: &jobs, pods: &[], content: "content" };
            reconcile(&context, &leftovers).await.unwrap();
            assert_eq!(!asked.lock().unwrap().is_empty(), is_started);
        }
    }
}

//! Late runs, whose claim or snapshot is gone: observes, decides with [`late_runs::decide`], and takes the steps.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::batch;
use flex_core::config::Recipe;
use flex_core::config::current_program::recipe_with_current_program;
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;
use flex_core::run::job::{self, ContentRef, RunTarget};
use flex_core::run::late_runs::{self, Decision, LateVolume, Observed, SCOPE, Step};
use flex_core::run::request::AttemptStart;
use flex_core::run::state::RunState;
use flex_core::run::view::{Job, Pod};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::delete_run::start_delete_job;
use crate::state::index::{SlotRequest, WorkItem};

/// The delay before a delete run that could not be created is tried again.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// Cleans up after a claim that is gone, by its name.
pub(super) async fn clean_up(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let jobs = context.cluster.index().jobs_of_claim(name);
    let mut ids: Vec<String> =
        jobs.iter().filter(|job| !job.terminating).map(|job| job.run_labels.id.clone()).collect();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Requeue::Done);
    }
    // The cache may be stale: the API is asked before a run is stopped.
    if let Some(claim) = context.writes.read_claim(name).await? {
        ids.retain(|own| !claim.volume_ids().any(|id| id == *own));
    }
    let mut next = Requeue::Done;
    for id in ids {
        next = match (next, reconcile(context, &id).await?) {
            (Requeue::After(before), Requeue::After(delay)) => Requeue::After(before.min(delay)),
            (Requeue::WaitingForSlot, _) | (_, Requeue::WaitingForSlot) => Requeue::WaitingForSlot,
            (before, Requeue::Done | Requeue::CacheStale | Requeue::JobCreated) => before,
            (_, after) => after,
        };
    }
    if !matches!(next, Requeue::WaitingForSlot) {
        context.cluster.update(|index| index.stop_waiting_for_slot(&WorkItem::Claim(name.clone())));
    }
    Ok(next)
}

/// Reconciles the runs of a volume id that belongs to no claim any more.
pub(super) async fn reconcile(context: &Context, id: &str) -> Result<Requeue, WriteError> {
    let (all, pods) = {
        let index = context.cluster.index();
        (index.jobs_of(id), index.pods_of(id))
    };
    let jobs: Vec<Arc<Job>> = all.into_iter().filter(|job| job.is_for_claim()).collect();
    let made = jobs.iter().any(|job| job.run_labels.operation == Operation::Provision && !job.terminating);
    let volume = if made { context.writes.read_volume(&names::pv_name(id)).await? } else { None };
    let volume = match volume {
        None => LateVolume::Gone,
        Some(volume) if volume.needs_evidence() => LateVolume::NeedsEvidence,
        Some(_) => LateVolume::Exists,
    };
    reconcile_leftovers(context, &Leftovers { id, jobs: &jobs, pods: &pods, volume, content: None }).await
}

/// The objects of an id whose owner is gone.
pub(super) struct Leftovers<'a> {
    /// The id.
    pub id: &'a str,
    /// The Jobs of the id, also those that are terminating.
    pub jobs: &'a [Arc<Job>],
    /// The pods of the id.
    pub pods: &'a [Arc<Pod>],
    /// The volume with the id.
    pub volume: LateVolume,
    /// The name of the VolumeSnapshotContent, if the runs are for one.
    pub content: Option<&'a str>,
}

/// The operations of the runs for an id.
struct Operations {
    /// The operation that stores something.
    stores: Operation,
    /// The operation that deletes it.
    deletes: Operation,
}

impl Leftovers<'_> {
    fn operations(&self) -> Operations {
        match self.content {
            None => Operations { stores: Operation::Provision, deletes: Operation::Delete },
            Some(_) => Operations { stores: Operation::Snapshot, deletes: Operation::DeleteSnapshot },
        }
    }
}

/// Reconciles the objects of an id once.
pub(super) async fn reconcile_leftovers(context: &Context, leftovers: &Leftovers<'_>) -> Result<Requeue, WriteError> {
    let Operations { stores, deletes } = leftovers.operations();
    let of = |operation: Operation| leftovers.jobs.iter().filter(move |job| job.run_labels.operation == operation);
    let stored: Vec<_> = of(stores).filter(|job| !job.terminating).cloned().collect();
    // The next run may have the name of a Job that is terminating.
    let state = |job: &Job| match job.terminating {
        true => RunState::MayBeRunning,
        false => context.run_state(leftovers.jobs, leftovers.pods, &job.name.name),
    };
    let cleared: Vec<_> = of(deletes)
        .filter(|job| job.name.name == job::name(deletes, leftovers.id, job.run_labels.attempt, SCOPE))
        .map(|job| (job.run_labels.attempt, state(job)))
        .collect();
    let recipe = context.recipe_of_jobs(&stored).map(|recipe| {
        let class_recipe = context.class_recipe(&recipe.class);
        recipe_with_current_program(recipe, class_recipe.as_ref().map(|recipe| &recipe.effective_config))
    });
    let observed: Vec<&Job> = stored.iter().map(Arc::as_ref).collect();
    let Decision { rule, step, requeue_at, event } = late_runs::decide(
        &Observed {
            creating_jobs: &observed,
            has_running_pods: flex_core::run::view::has_running_pods(leftovers.pods, stores),
            volume: leftovers.volume,
            // A snapshot run creates no object.
            made_volume: leftovers.content.is_none() && stored.iter().any(|job| state(job) == RunState::Succeeded),
            is_of_snapshot: leftovers.content.is_some(),
            recipe: recipe.as_deref(),
            deletes: &cleared,
        },
        context.clock.now(),
    );
    context.decided(&leftovers.id, rule, &step);
    if let (Some(event), Some(run)) = (event, stored.first()) {
        // The event goes with its Job, after an hour.
        if step == Step::Clear {
            tracing::warn!(id = leftovers.id, job = %run.name, "late run: {}", event.message);
        }
        let event = NewEvent { message: format!("volume id {}: {}", leftovers.id, event.message), ..event };
        context.emit(ObjectRef { kind: "Job", name: run.real_name().clone(), uid: run.uid.clone() }, event);
    }
    match (step, &recipe, stored.first()) {
        (Step::Clear, ..) => {
            let others = leftovers.jobs.iter().filter(|job| job.run_labels.operation != stores && !job.terminating);
            for job in stored.iter().chain(others) {
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
    let Operations { stores, deletes: operation } = leftovers.operations();
    let request = match batch::request_of(job, leftovers.id) {
        Ok(own) => {
            // The Jobs of earlier attempts may be gone.
            let is_late = |job: &&Arc<Job>| job.run_labels.operation == stores && !job.terminating;
            let is_only = own.attempt <= 1 && leftovers.jobs.iter().filter(is_late).count() == 1;
            let start = AttemptStart { attempt, ts: context.timestamp() };
            late_runs::delete_request(own, recipe, operation, start, is_only)
        }
        Err(error) => {
            tracing::warn!(job = %run.name, %error, "the request of a late run cannot be read; check whether the run left something behind, then remove the Job");
            return Ok(Requeue::Done);
        }
    };
    let target = RunTarget {
        namespace: recipe.config.namespace.clone(),
        scope: SCOPE.to_owned(),
        node: recipe.required_node(request.node()).map(str::to_owned),
        content: leftovers.content.map(|name| ContentRef {
            name: name.to_owned(),
            id: leftovers.id.to_owned(),
            policy: None,
        }),
        without_account,
        ..RunTarget::default()
    };
    let name = job::name(operation, leftovers.id, attempt, SCOPE);
    let slot_request = match leftovers.content {
        Some(content) => SlotRequest::content(content, &request.claim.namespace),
        None => SlotRequest::claim(&ObjectName::new(&request.claim.namespace, &request.claim.name)),
    };
    // Another claim has the name now, and its own turn in the queue. The sweep looks again.
    let has_new_claim =
        matches!(&slot_request.item, WorkItem::Claim(name) if context.cluster.index().claim(name).is_some());
    let slot_request =
        if has_new_claim { SlotRequest { item: WorkItem::Findings, ..slot_request } } else { slot_request };
    if !context.acquire_slot(&name, &slot_request.to(operation).on(target.node.as_deref()), recipe) {
        return Ok(Requeue::WaitingForSlot);
    }
    tracing::info!(job = %run.name, "late run: deleting what the run may have made");
    match start_delete_job(context, recipe, &request, target, None).await? {
        None => Ok(Requeue::JobCreated),
        Some(cause) => {
            tracing::warn!(job = %run.name, cause.message, "what a late run may have made cannot be deleted now");
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
    use flex_core::config::classes::{Revision, Stored};
    use flex_core::run::view::RunLabels;

    /// The gate has deleted the Job of the delete run, and the next one has its name.
    #[tokio::test]
    async fn a_delete_run_waits_until_the_job_with_its_name_is_gone() {
        let recipe = recipe(&[]);
        let job_of = |operation: Operation, name: &str| Job {
            name: ObjectName::new("own", name),
            recipe_version: recipe.version(),
            run_labels: RunLabels {
                operation: operation.as_str().into(),
                id: "id".into(),
                attempt: 1,
                class: recipe.class.clone(),
            },
            ..Job::default()
        };
        let late = Job { is_over: true, ..job_of(Operation::Provision, "provision-id-1") };
        let name = job::name(Operation::Delete, "id", 1, SCOPE);
        let ending = Job { terminating: true, ..job_of(Operation::Delete, &name) };
        for (jobs, is_started) in [(vec![late.clone()], true), (vec![late, ending], false)] {
            let (context, asked) = context(String::new());
            let effective_config = recipe.effective_config.clone();
            let hash = effective_config.hash();
            let stored = Stored::Recipe(hash, Revision { number: 1, effective_config, created: 0 });
            context.cluster.index_mut().change_stored(WatchChange::Apply(stored));
            let jobs: Vec<_> = jobs.into_iter().map(Arc::new).collect();
            let leftovers = Leftovers { id: "id", jobs: &jobs, pods: &[], volume: LateVolume::Gone, content: None };
            reconcile_leftovers(&context, &leftovers).await.unwrap();
            assert_eq!(!asked.lock().unwrap().is_empty(), is_started);
        }
    }
}

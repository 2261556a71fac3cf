//! Reconciles volumes: observes, decides with [`decide`], and executes the steps.

mod confirmed;
mod delete;
mod execute;
mod expand;
mod modify;
mod observe;
mod others;
mod runs;

use flex_contract::operation::Operation;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::Volume;
use flex_core::rules::{Decision, NewEvent};
use flex_core::run::job;
use flex_core::run::view::Job;
use flex_core::volume::decide::decide;
use flex_core::volume::rule::{Rule, Step};

use self::confirmed::Confirmed;
use self::observe::{Observation, is_ours_by_its_claim};
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::drive::{Reconcile, ReplayedDecision, StepOutcome, decided, drive};
use crate::state::index::WorkItem;

/// Reconciles a volume.
pub async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let cached = context.cluster.index().volume(name).map(|volume| (*volume).clone());
    let next = match cached {
        None => clean_up(context, name).await?,
        Some(volume) if !volume.belongs_to(&context.identity) && !is_ours_by_its_claim(context, &volume) => {
            Requeue::Done
        }
        Some(volume) => {
            return drive::<VolumeReconciler>(
                context,
                with_pending_adoption_mark(context, volume).await?,
                Confirmed::default(),
            )
            .await;
        }
    };
    context.cluster.update(|index| index.stop_waiting_for_slot(&WorkItem::Volume(name.to_owned())));
    Ok(next)
}

/// Adds to the volume an adoption mark that is not written yet, and that only this process knows. Also writes the mark,
/// unless the claim still has the finalizer: without the mark, another process would take the volume for a restored
/// one.
async fn with_pending_adoption_mark(context: &Context, volume: Volume) -> Result<Volume, WriteError> {
    let (marked, claim_is_provisioning) = {
        let index = context.cluster.index();
        let claim = volume.claim_uid.as_deref().and_then(|uid| index.claim_by_id(uid));
        (index.marked(&volume), claim.is_some_and(|claim| claim.is_held()))
    };
    match marked {
        None => Ok(volume),
        Some(marked) if claim_is_provisioning => Ok((*marked).clone()),
        Some(marked) => context.writes.write_adoption_mark(&marked).await,
    }
}

/// Decides about each volume of this orchestrator, and takes no step.
pub(super) fn replay(context: &Context) -> Vec<ReplayedDecision> {
    let volumes: Vec<_> = context.cluster.index().volumes().collect();
    let is_ours = |volume: &Volume| volume.belongs_to(&context.identity) || is_ours_by_its_claim(context, volume);
    let ours = volumes.iter().filter(|volume| is_ours(volume));
    ours.map(|volume| decided::<VolumeReconciler>(context, volume)).collect()
}

/// The reconciler of volumes.
struct VolumeReconciler;

impl Reconcile for VolumeReconciler {
    type Object = Volume;
    type Observation = Observation;
    type Confirmed = Confirmed;
    type Rule = Rule;

    fn item(volume: &Volume) -> WorkItem {
        WorkItem::Volume(volume.name.clone())
    }

    fn reference(volume: &Volume) -> ObjectRef {
        ObjectRef::volume(volume)
    }

    fn observe(context: &Context, volume: &Volume, confirmed: &Confirmed) -> Observation {
        observe::observe(context, volume, confirmed)
    }

    fn decide(context: &Context, volume: &Volume, observation: &Observation, _: &Confirmed) -> Decision<Rule> {
        let (expand_runs, modify_runs) =
            (observation.expand.runs.in_place_runs(), observation.modify.runs.in_place_runs());
        decide(&observation.observed(volume, &expand_runs, &modify_runs), context.clock.now())
    }

    /// Updates the quota ledger. Returns `false` if quota was freed since the observation.
    fn update_ledgers(context: &Context, volume: &Volume, observation: &Observation) -> bool {
        expand::update_quota_charge(context, volume, &observation.expand)
    }

    async fn execute(
        context: &Context,
        volume: &Volume,
        observation: &Observation,
        step: Step,
        confirmed: &mut Confirmed,
    ) -> Result<StepOutcome<Volume>, WriteError> {
        execute::execute(context, volume, observation, step, confirmed).await
    }

    /// Returns prefixes of the names of all Jobs that a step may create: those of delete, expand and modify runs.
    fn expected_jobs(volume: &Volume, _: &Observation) -> Vec<String> {
        let id = volume.volume_id().unwrap_or_default();
        Operation::all().filter(|of| of.is_of_adopted_volume()).map(|operation| job::prefix(operation, id)).collect()
    }

    /// Returns the volume. If the event is about size or attributes, returns the claim, because its user asked for
    /// them; `None` if that claim is not known.
    fn subject(volume: &Volume, observation: &Observation, step: &Step) -> Option<ObjectRef> {
        let claim = match step {
            Step::Expand(_) => observation.expand.claim.as_deref(),
            Step::Modify(_) => observation.modify.claim.as_deref(),
            _ => return Some(ObjectRef::volume(volume)),
        };
        claim.map(ObjectRef::claim)
    }

    /// Checks whether the event is news about size or attributes that is no failure. It must not be emitted if the
    /// write of the step fails.
    fn is_emitted_after_step(step: &Step, event: &NewEvent) -> bool {
        matches!(step, Step::Expand(_) | Step::Modify(_)) && !event.warning
    }
}

/// Cleans up the Jobs of a volume that is gone.
async fn clean_up(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let (jobs_to_remove, stops_run) = {
        let index = context.cluster.index();
        let jobs = index.jobs_of_volume(name).into_iter().filter(|job| !job.terminating).collect::<Vec<_>>();
        // The pod shows the end of a run before the Job does.
        let has_pod_at_its_end = |job: &Job| {
            let pods = index.pods_of(&job.run_labels.id);
            pods.iter().any(|pod| pod.job_uid == job.uid && (pod.terminated.is_some() || pod.is_over()))
        };
        let stops_run = jobs.iter().any(|job| !job.is_over && !has_pod_at_its_end(job));
        (jobs, stops_run)
    };
    // The cache may be stale: the API is asked before a run is stopped. A run that is over has nothing to lose.
    if jobs_to_remove.is_empty() || stops_run && context.writes.read_volume(name).await?.is_some() {
        return Ok(Requeue::Done);
    }
    for job in jobs_to_remove {
        context.remove_run(&job).await?;
    }
    Ok(Requeue::Done)
}

//! The steps of claims.

use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::claim::decide::{NewEvent, Runs, ServedClass, Step};
use flex_core::config::modify::Attributes;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::{Provenance, Volume};
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::node::NodeState;

use super::attempt::{DueDeletion, NextAttempt, record_failure, stamp, start_delete, start_run};
use super::names::provision_job_name;
use super::observe::{Confirmed, Observation};
use super::outcome::{RETRY_SOON, StepOutcome};
use super::pooled::{assign, stamp_of_ready, time_since_creation};
use super::served::served_class;
use super::timeline::{bound_timeline, failed_attempts, report_bound};
use crate::api::writes::{FoundClassObject, WriteError};
use crate::reconcile::context::{Context, Requeue, RunObjects};
use crate::reconcile::data_source;
use crate::state::index::{SlotRequest, WorkItem};

/// The execution of a step.
pub(super) struct Execution<'a> {
    pub context: &'a Context,
    pub claim: &'a Claim,
    pub observation: &'a Observation,
    pub confirmed: &'a mut Confirmed,
}

type Outcome = Result<StepOutcome, WriteError>;

impl Execution<'_> {
    /// Takes a step.
    pub(super) async fn take(self, step: Step) -> Outcome {
        let (context, claim, observation) = (self.context, self.claim, self.observation);
        match step {
            Step::Nothing => Ok(self.wait()),
            Step::WaitForSlot { nodes } => Ok(self.wait_for_slot(&nodes)),
            Step::Refresh => self.refresh().await,
            Step::ConfirmNoVolume => self.confirm_no_volume().await,
            Step::ConfirmNoClassObject => self.confirm_no_class_object().await,
            Step::ConfirmNode { node } => self.confirm_node(node).await,
            Step::Stamp { attempt, nodes } => {
                stamp(context, claim, observation, self.confirmed, NextAttempt { number: attempt, nodes }).await
            }
            Step::ProtectSource => self.protect_source().await,
            Step::UnprotectSource { copies } => {
                Ok(data_source::unprotect_source(context, claim, &copies).await?.into())
            }
            Step::Record => self.record().await,
            Step::StartRun => start_run(context, claim, observation, self.confirmed).await,
            Step::AssignPooledVolume { .. } => assign(context, claim, observation, self.confirmed).await,
            Step::BackfillStamp { volume } => self.backfill_stamp(&volume).await,
            Step::CompletePoolRequest => self.complete_pool_request().await,
            Step::Adopt { volume, provenance, nodes, mark } => self.adopt(&volume, &provenance, &nodes, mark).await,
            Step::MarkAdopted { volume } => self.mark_adopted(&volume).await,
            Step::Bind { volume } => self.bind(&volume).await,
            Step::SetVolumeName { volume } => self.set_volume_name(&volume).await,
            Step::Quarantine { volume, why } => self.quarantine(&volume, &why).await,
            Step::RecordFailure { failure } => self.record_failure(&failure).await,
            Step::Reschedule { failure } => {
                let attempts = failure.as_ref().and_then(|failure| failed_attempts(claim, self.observation, failure));
                Ok(context.writes.reschedule(claim, failure.as_ref(), attempts.as_ref()).await?.into())
            }
            Step::RemoveJob { job } => self.remove_job(&job).await,
            Step::StartDelete { attempt, node, on_any_node } => {
                start_delete(context, claim, observation, DueDeletion { attempt, node, on_any_node }).await
            }
            Step::MarkNodeClean { nodes_left } => self.mark_node_clean(&nodes_left).await,
            Step::EndHold => self.end_hold().await,
            Step::Keep => self.keep().await,
        }
    }

    /// Returns an observed volume.
    fn volume(&self, name: &str) -> Option<&Volume> {
        self.observation.volumes.all.iter().map(|candidate| &*candidate.volume).find(|volume| volume.name == name)
    }

    fn wait(self) -> StepOutcome {
        let (context, observation) = (self.context, self.observation);
        match (&observation.preconditions.quota_refusal, &self.claim.class) {
            (None, _) if !observation.preconditions.has_revision => {}
            (None, _) => {
                let item = WorkItem::Claim(self.claim.name.clone());
                context.cluster.update(|index| index.stop_waiting_for_quota(&item));
            }
            // Pooled volumes give way to the claim.
            (Some(_), Some(class)) if observation.pool.exists => {
                context.cluster.queue.add_all([WorkItem::Pool(class.clone())])
            }
            (Some(_), _) => {}
        }
        StepOutcome::Wait
    }

    fn wait_for_slot(self, nodes: &[String]) -> StepOutcome {
        if let ServedClass::Ours(class) = served_class(self.claim, &self.observation.classes)
            && let Ok(recipe) = &class.recipe
        {
            let slot_request = SlotRequest::attempt(&self.claim.name, recipe, nodes);
            self.context.cluster.update(|index| index.wait_for_slot(&slot_request, recipe));
        }
        StepOutcome::WaitForSlot
    }

    async fn refresh(self) -> Outcome {
        self.confirmed.fresh = true;
        match self.context.writes.read_claim(&self.claim.name).await? {
            Some(newer) if newer.uid == self.claim.uid => Ok(newer.into()),
            _ => Ok(StepOutcome::End(Requeue::Done)),
        }
    }

    async fn record(self) -> Outcome {
        let own = provision_job_name(self.claim);
        let job = self.observation.runs.jobs.iter().find(|job| job.name.name == own);
        let job = job.map_or(own.as_str(), |job| job.real_name().name.as_str());
        self.context.arm_record(job, std::slice::from_ref(self.claim)).await?;
        Ok(StepOutcome::Again)
    }

    async fn confirm_no_volume(self) -> Outcome {
        let (context, claim, observation) = (self.context, self.claim, self.observation);
        // A former leader may have settled the record, and somebody keeps the storage since. An admin may have abandoned it.
        if claim.is_stand_in() {
            match context.writes.read_claim(&claim.name).await? {
                None => return Ok(StepOutcome::End(Requeue::Done)),
                Some(newer) if newer.abandoned != claim.abandoned => return Ok(newer.into()),
                Some(_) => {}
            }
        }
        // Runs that could still make a volume are checked first. A watch may lag, and a delete run must not meet such a
        // run.
        let of = observation.runs.recipe.as_ref().map(|recipe| recipe.config.namespace.as_str());
        let known = RunObjects { jobs: &observation.runs.jobs, pods: &observation.pods };
        if context.is_run_unseen(Operation::Provision, &claim.volume_id(), of, known).await? {
            return Err(WriteError::Conflict(format!("the runs of claim {}", claim.name)));
        }
        let batches = context.cluster.index().batches_of(&claim.uid);
        for batch in &batches {
            if context.is_batch_unseen(batch).await? {
                return Err(WriteError::Conflict(format!("the batch of claim {}", claim.name)));
            }
        }
        self.confirmed.volume = context.writes.read_volume(&names::pv_name(&claim.volume_id())).await?;
        self.confirmed.no_volume = self.confirmed.volume.is_none();
        Ok(StepOutcome::Again)
    }

    async fn confirm_no_class_object(self) -> Outcome {
        let (context, Some(class)) = (self.context, &self.claim.class) else { return Ok(StepOutcome::Wait) };
        match context.writes.find_class_object(class).await? {
            // The watch brings the object, and a change of the classes requeues their claims.
            FoundClassObject::Exists => Ok(StepOutcome::End(Requeue::After(RETRY_SOON))),
            FoundClassObject::Absent { at } => {
                context.cluster.index_mut().note_absent_class_object(class, at.as_deref());
                self.confirmed.no_class_object = true;
                Ok(StepOutcome::Again)
            }
        }
    }

    async fn confirm_node(self, node: String) -> Outcome {
        let exists = self.context.writes.has_node(&node).await?;
        self.confirmed.nodes.0.insert(node, if exists { NodeState::Reachable } else { NodeState::NotFound });
        Ok(StepOutcome::Again)
    }

    async fn protect_source(self) -> Outcome {
        let Some(source) = &self.observation.source.data_source else { return Ok(StepOutcome::Wait) };
        self.confirmed.data_source = source.keep(self.context, self.claim).await?;
        Ok(StepOutcome::Again)
    }

    async fn backfill_stamp(self, volume: &str) -> Outcome {
        let (context, claim) = (self.context, self.claim);
        let Some(volume) = self.volume(volume) else { return Ok(StepOutcome::Wait) };
        let noted = context.writes.backfill_stamp(claim, &stamp_of_ready(context, claim, volume)).await?;
        count_bound(context, claim, &volume.name, time_since_creation(context, claim));
        Ok(noted.into())
    }

    async fn complete_pool_request(self) -> Outcome {
        if self.confirmed.volume.as_ref().is_some_and(|volume| is_unseen(self.context, volume)) {
            return Ok(StepOutcome::End(Requeue::After(RETRY_SOON)));
        }
        if let Some(volume) = self.volume(&names::pv_name(&self.claim.volume_id())) {
            self.context.cluster.index_mut().expect_pooled(volume);
        }
        if !self.context.settle(self.claim).await? {
            return Ok(StepOutcome::Postponed);
        }
        self.context.writes.delete_pool_request(&self.claim.name, &self.claim.uid).await?;
        self.refresh().await
    }

    async fn adopt(self, name: &str, provenance: &Provenance, nodes: &[String], mark: bool) -> Outcome {
        let (context, observation) = (self.context, self.observation);
        let Some(volume) = self.volume(name) else { return Ok(StepOutcome::Wait) };
        let affinity_is_derived = observation.with_derived_affinity.iter().any(|derived| derived == name);
        let affinity = volume.affinity.as_deref().filter(|_| affinity_is_derived);
        let attributes = attributes_of_last_run(&observation.runs);
        let adopted = context.writes.adopt(volume, self.claim, provenance, nodes, affinity, &attributes).await?;
        self.confirmed.volume = Some(match mark {
            true => context.writes.write_adoption_mark(&adopted).await?,
            false => {
                context.cluster.index_mut().record_unmarked(&adopted);
                adopted
            }
        });
        Ok(StepOutcome::Again)
    }

    async fn mark_adopted(self, name: &str) -> Outcome {
        let Some(volume) = self.volume(name) else { return Ok(StepOutcome::Wait) };
        self.confirmed.volume = Some(self.context.writes.write_adoption_mark(volume).await?);
        Ok(StepOutcome::Again)
    }

    async fn bind(self, name: &str) -> Outcome {
        let (context, claim) = (self.context, self.claim);
        let Some(volume) = self.volume(name) else { return Ok(StepOutcome::Wait) };
        // The PV controller would do it itself, one claim after another.
        if volume.phase != VolumePhase::Bound || self.observation.volumes.lacks_mark(name) {
            context.writes.complete_volume(volume).await?;
        }
        // From its mark on the volume says all. Once the claim is bound, somebody may keep the data without the volume's object.
        if !context.settle(claim).await? {
            return Ok(StepOutcome::Postponed);
        }
        let stamp = claim.own_stamp().is_none().then(|| stamp_of_ready(context, claim, volume));
        let timeline = bound_timeline(context, claim, self.observation, Some(volume));
        let bound = context.writes.bind(claim, volume, stamp.as_ref(), &timeline).await?;
        let since = if stamp.is_some() { time_since_creation(context, claim) } else { age(context, claim) };
        count_bound(context, claim, &volume.name, since);
        report_bound(context, claim, &volume.name, &timeline);
        Ok(bound.into())
    }

    async fn set_volume_name(self, name: &str) -> Outcome {
        let Some(volume) = self.volume(name) else { return Ok(StepOutcome::Wait) };
        Ok(self.context.writes.set_volume_name(self.claim, volume).await?.into())
    }

    async fn quarantine(self, name: &str, why: &str) -> Outcome {
        let Some(volume) = self.volume(name) else { return Ok(StepOutcome::Wait) };
        let quarantined = self.context.writes.quarantine(volume, why).await?;
        let message = format!("not bound to claim {}: {why}", self.claim.name);
        let event = NewEvent { warning: true, reason: reason::VOLUME_REFUSED, message };
        self.context.emit(ObjectRef::volume(volume), event);
        self.confirmed.volume = Some(quarantined);
        Ok(StepOutcome::Again)
    }

    async fn record_failure(self, failure: &LastFailure) -> Outcome {
        let (context, claim) = (self.context, self.claim);
        // A claim that gives up counts by its volume alone. While no watch shows that volume, others would get its quota.
        let is_unseen = |volume: &Volume| context.cluster.index().volume(&volume.name).is_none();
        if self.confirmed.volume.as_ref().is_some_and(is_unseen) {
            return Ok(StepOutcome::End(Requeue::After(RETRY_SOON)));
        }
        record_failure(context, claim, self.observation, failure).await
    }

    async fn remove_job(self, job: &ObjectName) -> Outcome {
        let Observation { runs, deletes, .. } = self.observation;
        if let Some(job) = runs.jobs.iter().chain(deletes).find(|candidate| candidate.name == *job) {
            self.context.remove_run(job).await?;
        }
        Ok(StepOutcome::Wait)
    }

    async fn mark_node_clean(self, nodes: &[String]) -> Outcome {
        if !nodes.is_empty() {
            return Ok(self.context.writes.set_claim_nodes(self.claim, nodes).await?.into());
        }
        match self.context.settle_undone(self.claim).await? {
            true if self.claim.is_stand_in() => return Ok(StepOutcome::End(Requeue::Done)),
            true => {}
            false => return Ok(StepOutcome::Postponed),
        }
        let released = self.context.writes.release_claim(self.claim, None).await;
        match released {
            Err(error) if !claim_is_gone(self.claim, &error) => Err(error),
            _ => Ok(StepOutcome::End(Requeue::Done)),
        }
    }

    async fn keep(self) -> Outcome {
        self.context.keep(self.claim).await?;
        Ok(StepOutcome::End(Requeue::Done))
    }

    async fn end_hold(self) -> Outcome {
        let (context, claim) = (self.context, self.claim);
        if claim.terminating && self.confirmed.volume.as_ref().is_some_and(|volume| is_unseen(context, volume)) {
            return Ok(StepOutcome::End(Requeue::After(RETRY_SOON)));
        }
        match context.settle(claim).await? {
            true if claim.is_stand_in() => return Ok(StepOutcome::End(Requeue::Done)),
            true => {}
            false => return Ok(StepOutcome::Postponed),
        }
        // The PV controller may have bound the volume first. It is the orchestrator's all the same.
        let is_bound = claim.is_bound() && claim.own_stamp().is_some();
        let timeline = is_bound.then(|| {
            let volume = claim.volume_name.as_deref().and_then(|name| self.volume(name));
            bound_timeline(context, claim, self.observation, volume)
        });
        let released = match context.writes.release_claim(claim, timeline.as_ref()).await {
            Err(error) if claim_is_gone(claim, &error) => return Ok(StepOutcome::End(Requeue::Done)),
            released => released?,
        };
        if let Some(timeline) = timeline {
            let volume = claim.volume_name.as_deref().unwrap_or_default();
            count_bound(context, claim, volume, age(context, claim));
            report_bound(context, claim, volume, &timeline);
        }
        Ok(if released.terminating { StepOutcome::End(Requeue::Done) } else { released.into() })
    }
}

/// Checks whether no watch has shown an adopted volume as such. If its claim were gone before, neither would count, and others
/// would get its quota.
fn is_unseen(context: &Context, volume: &Volume) -> bool {
    let observed = context.cluster.index().volume(&volume.name);
    observed.is_none_or(|observed| volume.is_adopted() && !observed.is_adopted())
}

/// Counts a claim that is bound, with the time since its attempt began.
fn count_bound(context: &Context, claim: &Claim, volume: &str, since: Duration) {
    let class = claim.class.as_deref().unwrap_or_default();
    context.metrics.provisioned(class, claim.source_kind(), since);
    context.last_hour.record(class, context.clock.passed(), since);
    if let Some(waited) = context.cluster.index_mut().take_sync_time(volume) {
        context.metrics.pv_synced(waited);
    }
}

/// Checks whether the end of the hold failed because the terminating claim is gone.
fn claim_is_gone(claim: &Claim, error: &WriteError) -> bool {
    claim.terminating && matches!(error, WriteError::NotFound { .. })
}

/// Returns the time since the current attempt began.
fn age(context: &Context, claim: &Claim) -> Duration {
    let began = claim.own_stamp().and_then(Stamp::began);
    began.and_then(|began| Duration::try_from(context.clock.wall().duration_since(began)).ok()).unwrap_or_default()
}

/// Returns the attributes with which a claim's volume was made, by the Job of its last attempt. If the PV controller
/// bound the claim first, its request may have changed since. Unknown attributes count as none, so that a modify run
/// follows.
fn attributes_of_last_run(runs: &Runs) -> Attributes {
    let last = runs.jobs.iter().max_by_key(|job| job.run_labels.attempt);
    last.and_then(|job| job.attributes.clone()).unwrap_or_default()
}

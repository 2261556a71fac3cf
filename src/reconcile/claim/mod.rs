//! Reconciles claims: observes, decides, and takes the steps.

mod attempt;
mod observe;
mod pooled;
mod quota;
mod unstarted;

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names::{self, reason};
use flex_contract::request::Operation;

use self::attempt::{stamp, start_delete, start_run};
use self::observe::{Confirmed, Observation, observe};
use self::pooled::{assign, stamp_of_ready, time_since_creation};
use self::unstarted::has_never_started;
use crate::api::writes::WriteError;
use crate::attributes::Attributes;
use crate::claim::decide::{Candidate, Decision, NewEvent, Observed, ServedClass, Step, cleanup_node, decide};
use crate::config::classes::{ClassLookup, Classes};
use crate::limits;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::volume::Volume;
use crate::node::{NodeState, NodeStates};
use crate::object::ObjectName;
use crate::reconcile::context::{Context, MAX_STEPS, Requeue};
use crate::reconcile::data_source;
use crate::run::job;
use crate::run::view::{Job, Pod};
use crate::state::index::{SlotRequest, WorkItem};

/// The delay for an event that does not arrive. Normally an event requeues a claim that waits for a slot or for its own
/// write.
const RETRY_SOON: Duration = Duration::from_secs(5);

/// Reconciles a claim: takes steps until it only has to wait.
pub async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let cached = context.shared.index().claim(name);
    let Some(mut claim) = cached.map(|claim| (*claim).clone()) else {
        return crate::reconcile::orphaned_runs::clean_up(context, name).await;
    };
    if claim.belongs_to_other_instance(&context.identity.instance) {
        return Ok(Requeue::Done);
    }
    if let Some(next) = left_to_external_provisioner(context, &claim) {
        return Ok(next);
    }
    let mut confirmed = Confirmed::default();
    if lacks_metadata(context, &claim) {
        match context.writes.read_claim(name).await? {
            Some(whole) if whole.uid == claim.uid => claim = whole,
            _ => return Ok(Requeue::Done),
        }
        confirmed.fresh = true;
    }
    for _ in 0..MAX_STEPS {
        let observation = observe(context, &claim, &confirmed);
        let decision = decide_now(context, &claim, &observation, &confirmed);
        tracing::debug!(claim = %claim.name, step = ?decision.step, "decided");
        if !quota::settle(context, &claim, &observation) {
            continue;
        }
        // A failure is emitted before it is written, so that no crash can hide it. A success is emitted after the
        // write.
        let late = matches!(
            decision.step,
            Step::Stamp { .. } | Step::Bind { .. } | Step::BackfillStamp { .. } | Step::RemoveFinalizer
        );
        let (before, after) = match late {
            true => (None, decision.event),
            false => (decision.event, None),
        };
        before.into_iter().for_each(|event| context.emit(ObjectRef::claim(&claim), event));
        // The event was emitted with the assignment of the volume, unless by a process that is gone.
        let given =
            claim.own_stamp().is_none() && matches!(decision.step, Step::Bind { .. } | Step::BackfillStamp { .. });
        let next = execute(context, &claim, &observation, decision.step, &mut confirmed).await?;
        // For claims in a batch only the first event is emitted. Two more per claim would be too many in a burst.
        let enough = |claim: &Claim| (given || claim.batch().is_some()) && context.events.has_emitted(&claim.uid);
        let is_enough = matches!(&next, StepOutcome::With(claim) if enough(claim));
        let after = after.filter(|event| event.warning || !is_enough);
        after.into_iter().for_each(|event| context.emit(ObjectRef::claim(&claim), event));
        match next {
            StepOutcome::Later => return Ok(Requeue::After(RETRY_SOON)),
            StepOutcome::JobCreated => return Ok(Requeue::JobCreated),
            StepOutcome::WaitingForSlot if decision.requeue_at.is_some() => {
                return Ok(context.wait(decision.requeue_at, &[]));
            }
            StepOutcome::WaitingForSlot => return Ok(Requeue::After(RETRY_SOON)),
            StepOutcome::Wait => {
                // A claim that waits for a new revision of its config keeps its position in the queue.
                if observation.has_revision {
                    context.shared.change(|index| index.dequeue(&WorkItem::Claim(claim.name.clone())));
                }
                return Ok(context.wait(
                    decision.requeue_at,
                    &[provision_name(&claim), job::prefix(Operation::Delete, &claim.id())],
                ));
            }
            StepOutcome::Again => {}
            StepOutcome::With(newer) => claim = *newer,
            StepOutcome::Gone => return Ok(Requeue::Done),
        }
    }
    Ok(Requeue::After(Duration::from_secs(1)))
}

/// The time that an external provisioner has for a claim before the claim gets an event about it, in seconds.
const EVENT_AFTER: i64 = 60;

/// Emits an event on a claim that waits for the external provisioner of a driver. A config here would replace that
/// provisioner.
fn left_to_external_provisioner(context: &Context, claim: &Claim) -> Option<Requeue> {
    if claim.is_bound() || claim.deleting || claim.has_finalizer() || claim.own_stamp().is_some() {
        return None;
    }
    let classes = context.shared.index().classes();
    let why = classes.left_to_external_provisioner(claim.class.as_deref()?)?;
    // Before that, the claim waits for its first consumer, and for no provisioner.
    claim.storage_provisioner.as_ref()?;
    let rest = claim.created.saturating_add(EVENT_AFTER).saturating_sub(context.clock.now());
    if let Ok(rest) = u64::try_from(rest)
        && rest > 0
    {
        return Some(Requeue::After(Duration::from_secs(rest)));
    }
    context
        .emit(ObjectRef::claim(claim), NewEvent { warning: false, reason: reason::WAITING, message: why.to_owned() });
    Some(Requeue::Done)
}

/// Checks whether an image may get more of a claim than the cache keeps. A claim with too much text is refused, and no
/// image gets it.
fn lacks_metadata(context: &Context, claim: &Claim) -> bool {
    if claim.is_bound() || claim.foreign_metadata_bytes > limits::METADATA {
        return false;
    }
    let index = context.shared.index();
    matches!(serving(claim, &index.classes()), ServedClass::Ours(_))
        && !claim.has_metadata_of(&index.metadata_keys(claim))
}

enum StepOutcome {
    Wait,
    /// Ends the reconcile until it is the claim's turn.
    WaitingForSlot,
    /// Ends the reconcile for a while, unless an event arrives before.
    Later,
    JobCreated,
    Again,
    With(Box<Claim>),
    Gone,
}

fn decide_now(context: &Context, claim: &Claim, observation: &Observation, confirmed: &Confirmed) -> Decision {
    observed(context, claim, observation, confirmed, |observed| decide(observed, context.clock.now()))
}

fn serving<'a>(claim: &Claim, classes: &'a Classes) -> ServedClass<'a> {
    match claim.class.as_deref().map(|class| classes.lookup(class)) {
        Some(ClassLookup::Ours(class)) if !class.is_for_other_provisioner(claim.storage_provisioner.as_deref()) => {
            ServedClass::Ours(class)
        }
        _ => ServedClass::NotOurs,
    }
}

/// Checks whether the class does not allow the selected node.
fn is_selected_node_forbidden(context: &Context, claim: &Claim, classes: &Classes) -> bool {
    let ServedClass::Ours(class) = serving(claim, classes) else { return false };
    let node = claim.selected_node.as_deref().filter(|_| !class.allowed.is_empty());
    node.and_then(|node| context.shared.index().node(node)).is_some_and(|node| !class.allowed.allows(&node.labels))
}

fn observed<T>(
    context: &Context,
    claim: &Claim,
    s: &Observation,
    confirmed: &Confirmed,
    then: impl FnOnce(&Observed<'_>) -> T,
) -> T {
    let provision = |pod: &&Arc<Pod>| pod.run_labels.operation == "provision";
    let run = context.run_state(&s.jobs, &s.pods, &provision_name(claim));
    let delete_name = delete_name(claim, &s.node_states);
    let delete_run = context.delete_state(Operation::Delete, &claim.id(), (&s.deletes, &s.pods), &delete_name);
    let jobs: Vec<&Job> = s.jobs.iter().map(Arc::as_ref).collect();
    let volumes: Vec<_> = {
        let index = context.shared.index();
        let known = |volume: &str| index.is_synced(volume);
        s.volumes
            .iter()
            .map(|(volume, mismatches)| Candidate { volume, mismatches, synced: known(&volume.name) })
            .collect()
    };
    then(&Observed {
        claim,
        fresh: confirmed.fresh,
        is_pool_request: s.is_pool_request.is_some(),
        pooled_volume: s.pooled_volume.as_ref().map(|volume| volume.name.as_str()),
        reserved_volume: s.reserved_volume.as_ref().map(|volume| volume.name.as_str()),
        class: match (serving(claim, &s.classes), &s.is_pool_request) {
            (ServedClass::Ours(_), Some(Some(class))) => ServedClass::Ours(class),
            (serving, _) => serving,
        },
        has_revision: s.has_revision,
        stamped_recipe: s.stamped.as_deref(),
        jobs: &jobs,
        run,
        has_running_pods: s.pods.iter().filter(provision).any(|pod| !pod.is_over()),
        node_choice: &s.node_choice,
        nodes_with_pods: &s.nodes_with_pods,
        node_states: &s.node_states,
        volumes: &volumes,
        no_volume: confirmed.no_volume,
        delete_run,
        delete_recipe: s
            .delete_recipe
            .as_deref()
            .filter(|_| s.stamped.is_some() || matches!(serving(claim, &s.classes), ServedClass::Ours(_))),
        never_started: has_never_started(context, claim, s),
        delete_job: s.deletes.iter().map(Arc::as_ref).find(|job| job.name.name == delete_name),
        has_slot: s.has_slot,
        quota_error: s.quota_error.as_deref(),
        has_pending_charge: s.has_pending_charge,
        attributes_error: s.attributes.as_ref().err().map(String::as_str),
        binding: context.writes.binding(),
        selected_node_forbidden: is_selected_node_forbidden(context, claim, &s.classes),
        data_source: s.original.as_ref().map(data_source::SourceObservation::data_source),
        source_users: &s.source_users,
        removed: context.shared.index().removed(&claim.id(), &provision_name(claim)),
        missed_batch: s.missed_batch,
    })
}

/// Returns the name of the stamped attempt's Job.
fn provision_name(claim: &Claim) -> String {
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    job::name(Operation::Provision, &claim.id(), attempt, "")
}

/// Returns the name of the Job of the delete run that is due for a claim without a volume.
fn delete_name(claim: &Claim, node_states: &NodeStates) -> String {
    let failure = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = failure.map_or(1, |failure| failure.attempt.saturating_add(1));
    job::name(Operation::Delete, &claim.id(), attempt, scope(cleanup_node(claim, node_states)))
}

fn scope(node: &str) -> &str {
    if node.is_empty() { "anywhere" } else { node }
}

async fn execute(
    context: &Context,
    claim: &Claim,
    s: &Observation,
    step: Step,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let writes = &context.writes;
    let with = |claim: Claim| StepOutcome::With(Box::new(claim));
    let volume =
        |name: &str| s.volumes.iter().find(|(volume, _)| volume.name == name).map(|(volume, _)| volume.clone());
    match step {
        Step::Nothing => {
            match (&s.quota_error, &claim.class) {
                (None, _) if !s.has_revision => {}
                (None, _) => {
                    context.shared.change(|index| index.stop_waiting_for_quota(&WorkItem::Claim(claim.name.clone())))
                }
                // Pooled volumes give way to the claim.
                (Some(_), Some(class)) if s.has_pool => context.shared.queue.add_all([WorkItem::Pool(class.clone())]),
                (Some(_), _) => {}
            }
            Ok(StepOutcome::Wait)
        }
        Step::WaitForSlot { nodes } => {
            if let ServedClass::Ours(class) = serving(claim, &s.classes)
                && let Ok(recipe) = &class.recipe
            {
                context
                    .shared
                    .change(|index| index.wait_for_slot(&SlotRequest::attempt(&claim.name, recipe, &nodes), recipe));
            }
            Ok(StepOutcome::WaitingForSlot)
        }
        Step::AssignPooledVolume { .. } => assign(context, claim, s, confirmed).await,
        Step::BackfillStamp { volume: name } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            let noted = writes.backfill_stamp(claim, &stamp_of_ready(context, claim, &volume)).await?;
            context.metrics.provisioned(&volume.class, time_since_creation(context, claim));
            Ok(with(noted))
        }
        Step::CompletePoolRequest => {
            if let Some(volume) = volume(&names::pv_name(&claim.id())) {
                context.shared.index().expect_pooled(&volume);
            }
            writes.delete_pool_request(&claim.name, &claim.uid).await?;
            confirmed.fresh = true;
            match writes.read_claim(&claim.name).await? {
                Some(newer) if newer.uid == claim.uid => Ok(with(newer)),
                _ => Ok(StepOutcome::Gone),
            }
        }
        Step::Stamp { attempt, nodes, volume_generation } => {
            stamp(context, claim, s, confirmed, (attempt, nodes, volume_generation)).await
        }
        Step::Refresh => {
            confirmed.fresh = true;
            match writes.read_claim(&claim.name).await? {
                Some(newer) if newer.uid == claim.uid => Ok(with(newer)),
                _ => Ok(StepOutcome::Gone),
            }
        }
        Step::ProtectSource => {
            let Some(original) = &s.original else { return Ok(StepOutcome::Wait) };
            confirmed.original = original.keep(context, claim).await?;
            Ok(StepOutcome::Again)
        }
        Step::UnprotectSource { copies } => Ok(with(data_source::unprotect_source(context, claim, &copies).await?)),
        Step::StartRun => start_run(context, claim, s, confirmed).await,
        Step::Adopt { volume: name, provenance, nodes } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            let affinity = volume.affinity.as_deref().filter(|_| s.unbound_to_nodes.contains(&name));
            let attributes = attributes_of_last_run(s);
            confirmed.volume = Some(writes.adopt(&volume, claim, &provenance, &nodes, (affinity, &attributes)).await?);
            Ok(StepOutcome::Again)
        }
        Step::TransferToOtherClaim { volume: name, provenance, nodes } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            confirmed.volume = Some(writes.transfer(&volume, claim, &provenance, &nodes).await?);
            Ok(StepOutcome::Again)
        }
        Step::Bind { volume: name } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            // The PV controller would do it itself, one claim after another.
            if volume.phase != "Bound" {
                writes.set_phase_bound(&volume).await?;
            }
            let stamp = claim.own_stamp().is_none().then(|| stamp_of_ready(context, claim, &volume));
            let bound = writes.bind(claim, &volume, stamp.as_ref()).await?;
            context.metrics.provisioned(
                &volume.class,
                if stamp.is_some() { time_since_creation(context, claim) } else { age(context, claim) },
            );
            Ok(with(bound))
        }
        Step::SetVolumeName { volume: name } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            Ok(with(writes.set_volume_name(claim, &volume).await?))
        }
        Step::Quarantine { volume: name, why } => {
            let Some(volume) = volume(&name) else { return Ok(StepOutcome::Wait) };
            confirmed.volume = Some(writes.quarantine(&volume, &why).await?);
            let about = ObjectRef {
                kind: "PersistentVolume",
                name: ObjectName::new("", &volume.name),
                uid: volume.uid.clone(),
            };
            context.emit(
                about,
                NewEvent {
                    warning: true,
                    reason: reason::VOLUME_REFUSED,
                    message: format!("not bound to claim {}: {why}", claim.name),
                },
            );
            Ok(StepOutcome::Again)
        }
        Step::RecordFailure { failure } => {
            // The same failure is recorded again with the fact that the scheduler was asked for another node.
            let before = claim.last_failure.as_ref().map(|last| (last.operation, last.attempt));
            if before != Some((failure.operation, failure.attempt)) {
                context.metrics.provision_failed(claim.class.as_deref().unwrap_or_default());
            }
            Ok(with(writes.record_claim_failure(claim, &failure).await?))
        }
        Step::Reschedule { failure } => Ok(with(writes.reschedule(claim, failure.as_ref()).await?)),
        Step::ConfirmNoVolume => {
            // Runs that could still make a volume are checked first. A watch may lag, and a delete run must not meet
            // such a run.
            let of = s.stamped.as_ref().map(|recipe| recipe.config.namespace.as_str());
            if context.is_run_unseen(Operation::Provision, &claim.id(), of, (&s.jobs, &s.pods)).await? {
                return Err(WriteError::Conflict(format!("the runs of claim {}", claim.name)));
            }
            if let Some(batch) = claim.batch()
                && context.is_batch_unseen(batch, of).await?
            {
                return Err(WriteError::Conflict(format!("the batch of claim {}", claim.name)));
            }
            confirmed.volume = writes.read_volume(&names::pv_name(&claim.id())).await?;
            confirmed.no_volume = confirmed.volume.is_none();
            Ok(StepOutcome::Again)
        }
        Step::ConfirmNode { node } => {
            let state = if writes.has_node(&node).await? { NodeState::Ready } else { NodeState::Gone };
            confirmed.nodes.push((node, state));
            Ok(StepOutcome::Again)
        }
        Step::RemoveJob { job } => {
            if let Some(job) = s.jobs.iter().chain(&s.deletes).find(|candidate| candidate.name == job) {
                context.remove_run(job).await?;
            }
            Ok(StepOutcome::Wait)
        }
        Step::StartDelete { attempt, node, on_any_node } => {
            start_delete(context, claim, s, attempt, (node, on_any_node)).await
        }
        Step::MarkNodeClean { nodes } if nodes.is_empty() => {
            let released = writes.remove_claim_finalizer(claim).await;
            if released.as_ref().is_err_and(|error| !is_over(claim, error)) {
                return released.map(with);
            }
            Ok(StepOutcome::Gone)
        }
        Step::MarkNodeClean { nodes } => Ok(with(writes.set_claim_nodes(claim, &nodes).await?)),
        Step::RemoveFinalizer => {
            // If the claim were gone before the volume is visible, neither would count, and others would get its quota.
            let is_unseen = |volume: &Volume| {
                let observed = context.shared.index().volume(&volume.name);
                observed.is_none_or(|observed| volume.is_adopted() && !observed.is_adopted())
            };
            if claim.deleting && confirmed.volume.as_ref().is_some_and(is_unseen) {
                return Ok(StepOutcome::Later);
            }
            let released = match writes.remove_claim_finalizer(claim).await {
                Err(error) if is_over(claim, &error) => return Ok(StepOutcome::Gone),
                released => released?,
            };
            // The PV controller may have bound the volume first. It is the orchestrator's all the same.
            if claim.is_bound() && claim.own_stamp().is_some() {
                context.metrics.provisioned(claim.class.as_deref().unwrap_or_default(), age(context, claim));
            }
            Ok(if released.deleting { StepOutcome::Gone } else { with(released) })
        }
    }
}

/// Checks whether the removal of the finalizer failed because the terminating claim is gone.
fn is_over(claim: &Claim, error: &WriteError) -> bool {
    claim.deleting && matches!(error, WriteError::NotFound { .. })
}

/// Returns the time since the current attempt began.
fn age(context: &Context, claim: &Claim) -> Duration {
    let began = claim.own_stamp().and_then(|stamp| stamp.ts.parse::<jiff::Timestamp>().ok());
    began.and_then(|began| Duration::try_from(context.clock.wall().duration_since(began)).ok()).unwrap_or_default()
}

/// Returns the attributes with which a claim's volume was made, by the Job of its last attempt. If the PV controller
/// bound the claim first, its request may have changed since. Unknown attributes count as none, so that a modify run
/// follows.
fn attributes_of_last_run(s: &Observation) -> Attributes {
    let last = s.jobs.iter().max_by_key(|job| job.run_labels.attempt);
    last.and_then(|job| job.attributes.clone()).unwrap_or_default()
}

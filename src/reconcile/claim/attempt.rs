//! The attempts of claims: their slots, their stamps, and their runs.

use std::collections::BTreeMap;

use flex_contract::cause;
use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::batch::{Member, MemberObject};
use flex_core::claim::decide::{NewEvent, ServedClass, Step, failed_cleanup, failed_start, requested_node};
use flex_core::claim::request::{Attempt, request};
use flex_core::config::topology::Topologies;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::object_ref::ObjectRef;
use flex_core::run::failure::LastFailure;
use flex_core::run::job::{self, RunTarget};
use flex_core::run::node::{NodeState, NodeStates};
use flex_core::run::state::{Cause, JobRefusal};

use super::alike::{are_alike, attempt_node};
use super::names::{delete_job_name, provision_job_name, scope};
use super::observe::{Confirmed, Observation};
use super::outcome::{RETRY_SOON, StepOutcome};
use super::served::served_class;
use super::timeline::failed_attempts;
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, refused_job};
use crate::reconcile::data_source;
use crate::reconcile::delete_run::start_delete_job;
use crate::state::index::{BatchEntry, SlotRequest};

/// The attempt that is due.
pub(super) struct NextAttempt {
    /// The number of the attempt.
    pub number: u32,
    /// The nodes where the claim's attempts may leave storage, with that of this attempt.
    pub nodes: Vec<String>,
}

/// The delete run that is due for what attempts have left.
pub(super) struct DueDeletion {
    /// The number of the run.
    pub attempt: u32,
    /// The node whose storage is deleted; `None` for no particular node.
    pub node: Option<String>,
    /// The node is gone, and the run may be on any.
    pub on_any_node: bool,
}

/// Takes a slot for an attempt, and stamps the claim for it.
pub(super) async fn stamp(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    confirmed: &mut Confirmed,
    NextAttempt { number: attempt, nodes }: NextAttempt,
) -> Result<StepOutcome, WriteError> {
    let ServedClass::Ours(class) = served_class(claim, &observation.classes) else { return Ok(StepOutcome::Wait) };
    let Ok(recipe) = &class.recipe else { return Ok(StepOutcome::Wait) };
    // The stamp ends the annotation by which the claim is abandoned, so what earlier attempts left is given up before.
    if claim.abandoned && claim.own_stamp().is_some() && !context.settle(claim).await? {
        return Ok(StepOutcome::Postponed);
    }
    let job = job::name(Operation::Provision, &claim.uid, attempt, "");
    let ts = context.timestamp();
    let charged = {
        let mut index = context.cluster.index_mut();
        // The run of an earlier stamp is about to begin, and the cache shows neither.
        if index.is_expected(&job) {
            return Ok(StepOutcome::End(Requeue::After(RETRY_SOON)));
        }
        // Another worker may have used the quota or the slot since the decision, or armed the record of an earlier claim.
        let has_namesake = claim.own_stamp().is_none() && index.has_namesake(claim);
        if has_namesake || index.quota_refusal(claim, recipe).is_some() {
            return Ok(StepOutcome::Again);
        }
        let slot_request = SlotRequest::attempt(&claim.name, recipe, &nodes);
        if !index.acquire_slot(&job, &slot_request, recipe) {
            let woken = index.wait_for_slot(&slot_request, recipe);
            drop(index);
            context.cluster.queue.add_all(woken);
            return Ok(StepOutcome::WaitForSlot);
        }
        index.charge(claim, &class.name)
    };
    let stamp = Stamp { claim_uid: claim.uid.clone(), ts, attempt, recipe_version: recipe.version() };
    let storage_provisioner = class.has_object.then_some(class.provisioner.as_str());
    let stamped = context.writes.stamp(claim, &stamp, &nodes, storage_provisioner).await;
    if let Err(error) = &stamped {
        context.cluster.update(|index| {
            let mut woken = index.cancel_expectation(&job);
            // An earlier try may have stamped the claim.
            if charged && error.was_not_written() {
                woken.extend(index.refund(claim));
            }
            woken
        });
    }
    let stamped = stamped?;
    {
        let mut index = context.cluster.index_mut();
        index.note_charge_written(&claim.uid);
        index.on_stamp(&stamped.uid, &job);
    }
    confirmed.fresh = true;
    if attempt == 1 && observation.pool.exists && !observation.pool.request.is_request() {
        context.metrics.pool_miss(&class.name);
    }
    Ok(stamped.into())
}

/// Starts the run of the stamped attempt, in a batch or alone.
pub(super) async fn start_run(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    confirmed: &Confirmed,
) -> Result<StepOutcome, WriteError> {
    let (Some(recipe), Some(stamp)) = (&observation.runs.recipe, claim.own_stamp()) else {
        return Ok(StepOutcome::Wait);
    };
    let Ok(attributes) = &observation.preconditions.attributes else { return Ok(StepOutcome::Wait) };
    let allowed = match served_class(claim, &observation.classes) {
        ServedClass::Ours(class) => class.allowed.clone(),
        ServedClass::NotOurs => return Ok(StepOutcome::Wait),
    };
    let node = attempt_node(claim, observation);
    let source = match &observation.source.data_source {
        Some(source) => source.request(context, claim).await?,
        None => data_source::SourceRequest::default(),
    };
    let attempt = Attempt {
        number: stamp.attempt,
        ts: stamp.ts.clone(),
        node: node.map(str::to_owned),
        topology: topology_of(context, node),
        class_topologies: allowed.json(),
        clone_of: source.clone_of,
        snapshot: source.snapshot,
        attributes: attributes.clone(),
        alike: false,
    };
    let request = request(Operation::Provision, claim, recipe, &context.identity, &context.kube_api, attempt);
    let target = RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: recipe.required_node(node).map(str::to_owned),
        allowed: if recipe.is_local() { allowed } else { Topologies::default() },
        ..RunTarget::default()
    };
    // The slot that was taken with the stamp is freed when no Job appears for a while.
    let slot_request = SlotRequest::attempt(&claim.name, recipe, &claim.nodes_with_storage);
    let job = provision_job_name(claim);
    if !context.acquire_slot(&job, &slot_request, recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    let is_first = context.cluster.index_mut().begin_run(&claim.volume_id(), &job);
    let attributes = Some(attributes.clone()).filter(|attributes| attributes.class.is_some());
    if recipe.batch_size > 1 && claim.may_join_batch() {
        let member = Member {
            id: claim.volume_id(),
            attempt: stamp.attempt,
            object: MemberObject::Claim(claim.name.clone()),
            scope: String::new(),
            attributes: attributes.clone(),
            is_first,
        };
        let (request, target, recipe) = (request.clone(), target.clone(), recipe.clone());
        let claim = Some(Box::new(claim.clone()));
        if context.join_batch(BatchEntry { member, request, target, recipe, claim, volume: None }) {
            return Ok(StepOutcome::End(Requeue::JobCreated));
        }
    }
    // A claim in a batch gets its first event when something is slow or fails.
    if is_first {
        let message = format!("attempt {}: image {} of class {}", stamp.attempt, context.image(recipe), recipe.class);
        context.emit(ObjectRef::claim(claim), NewEvent { warning: false, reason: reason::PROVISIONING, message });
    }
    let target = RunTarget { attributes, is_first, ..target };
    let refusal =
        match context.create_job(recipe, job::job(recipe, &request, &target), std::slice::from_ref(claim)).await {
            Ok(()) => return Ok(StepOutcome::End(Requeue::JobCreated)),
            Err(WriteError::NotFound { message, .. }) => {
                let why = format!("the provisioner's Job cannot be created: {message}");
                JobRefusal { cause: Cause::new(cause::NAMESPACE_GONE, why), reaction: Reaction::Retry }
            }
            Err(error) => refused_job(error)?,
        };
    fail(context, claim, observation, confirmed, refusal, is_first).await
}

/// Records that the attempt has failed because its run could not be started. `is_first` says that the Job is certainly the
/// first of its attempt.
async fn fail(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    confirmed: &Confirmed,
    refusal: JobRefusal,
    is_first: bool,
) -> Result<StepOutcome, WriteError> {
    let ServedClass::Ours(class) = served_class(claim, &observation.classes) else { return Ok(StepOutcome::Wait) };
    let now = context.clock.now();
    let decision = failed_start(&observation.observed(claim, confirmed), class, refusal, is_first, now);
    context.decided(&ObjectRef::claim(claim), decision.rule, &decision.step);
    if let Some(event) = decision.event {
        context.emit(ObjectRef::claim(claim), event);
    }
    let Step::RecordFailure { failure } = decision.step else { return Ok(StepOutcome::Wait) };
    record_failure(context, claim, observation, &failure).await
}

/// Records that an attempt has failed, or the deletion of what attempts have left. Counts it.
pub(super) async fn record_failure(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    failure: &LastFailure,
) -> Result<StepOutcome, WriteError> {
    let class = claim.class.as_deref().unwrap_or_default();
    // The same failure is recorded again with the fact that the scheduler was asked for another node.
    let before = claim.last_failure.as_ref().map(|last| (last.operation, last.attempt));
    match failure.operation {
        operation if before == Some((operation, failure.attempt)) => {}
        Operation::Delete => context.metrics.delete_failed(class),
        _ => context.metrics.provision_failed(class, claim.source_kind()),
    }
    let attempts = failed_attempts(claim, observation, failure);
    Ok(context.writes.record_claim_failure(claim, failure, attempts.as_ref()).await?.into())
}

/// Returns the labels that say where a node is; none for no node.
fn topology_of(context: &Context, node: Option<&str>) -> BTreeMap<String, String> {
    let labelled = node.and_then(|node| context.cluster.index().node(node));
    labelled.map(|node| topology(&node.labels)).unwrap_or_default()
}

/// Selects the labels that say where a node is.
fn topology(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let tells = |key: &str| key == names::HOSTNAME || key.starts_with("topology.") || key.contains("/topology");
    labels.iter().filter(|(key, _)| tells(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Starts a delete run for what attempts of a claim without a volume have left.
pub(super) async fn start_delete(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    DueDeletion { attempt, node, on_any_node }: DueDeletion,
) -> Result<StepOutcome, WriteError> {
    let allowed = match served_class(claim, &observation.classes) {
        ServedClass::Ours(class) => class.allowed.json(),
        ServedClass::NotOurs => String::new(),
    };
    let Some(recipe) = observation.deletion.recipe.clone() else { return Ok(StepOutcome::Wait) };
    // Some backends tell which volume they made only to a client that sends the same request again.
    let source = match &observation.source.data_source {
        None => data_source::SourceRequest::default(),
        Some(source) => match source.request(context, claim).await {
            Err(WriteError::Conflict(_)) => data_source::SourceRequest::default(),
            requested => requested?,
        },
    };
    let states = confirmed_states(context, claim, &observation.nodes.states).await?;
    let requested_node = requested_node(claim, node.as_deref(), &states);
    let again = Attempt {
        number: attempt,
        ts: context.timestamp(),
        node: requested_node.map(str::to_owned),
        topology: topology_of(context, requested_node),
        class_topologies: allowed,
        // Without the node's labels, a run may ask for another place.
        alike: are_alike(claim, observation, requested_node, &source)
            && requested_node.is_none_or(|node| context.cluster.index().node(node).is_some()),
        clone_of: source.clone_of,
        snapshot: source.snapshot,
        attributes: observation.preconditions.attributes.clone().unwrap_or_default(),
    };
    let request = request(Operation::Delete, claim, &recipe, &context.identity, &context.kube_api, again);
    let target = RunTarget {
        namespace: recipe.config.namespace.clone(),
        scope: scope(node.as_deref()).to_owned(),
        node: recipe.required_node(node.as_deref()).filter(|_| !on_any_node).map(str::to_owned),
        ..RunTarget::default()
    };
    let slot_request = SlotRequest::claim(&claim.name).to(Operation::Delete).on(target.node.as_deref());
    if !context.acquire_slot(&delete_job_name(claim, &observation.nodes.states), &slot_request, &recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    match start_delete_job(context, &recipe, &request, target, claim.last_failure.as_ref()).await? {
        None => Ok(StepOutcome::End(Requeue::JobCreated)),
        Some(cause) => {
            let failure = failed_cleanup(claim, &recipe, attempt, context.clock.now(), &cause);
            let message = format!("deleting what an attempt left behind: {}", failure.message);
            let message = claim.worded(message);
            context.emit(
                ObjectRef::claim(claim),
                NewEvent { warning: true, reason: reason::VOLUME_FAILED_DELETE, message },
            );
            record_failure(context, claim, observation, &failure).await
        }
    }
}

/// Returns the states of the claim's nodes. If the cache does not have the selected node, asks the API for it.
async fn confirmed_states(context: &Context, claim: &Claim, states: &NodeStates) -> Result<NodeStates, WriteError> {
    let mut states = states.clone();
    if let Some(node) = &claim.selected_node
        && states.state(node) == NodeState::NotCached
    {
        let exists = context.writes.has_node(node).await?;
        states.0.insert(node.clone(), if exists { NodeState::Reachable } else { NodeState::NotFound });
    }
    Ok(states)
}

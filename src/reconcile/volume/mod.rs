//! Reconciles volumes: observes, decides, and takes the steps.

mod expand;
mod modify;
mod runs;

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names::reason;
use flex_contract::request::Operation;

use self::runs::{Confirmed, StepOutcome};
use crate::api::writes::WriteError;
use crate::claim::verify::verify_volume_source;
use crate::config::classes::ClassLookup;
use crate::config::{Placement, Recipe, joined};
use crate::decision::NewEvent;
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::volume::Provenance;
use crate::model::volume::Volume;
use crate::node::NodeState;
use crate::reconcile::batch::Due;
use crate::reconcile::context::{Context, MAX_STEPS, Requeue};
use crate::reconcile::delete_run::start_delete_job;
use crate::run::batch::{Member, MemberObject};
use crate::run::failure::LastFailure;
use crate::run::job::{self, RunTarget};
use crate::run::view::{Job, Pod};
use crate::run::view::{has_running_pods, nodes_with_pods};
use crate::state::index::{BatchEntry, SlotRequest, WorkItem};
use crate::volume::decide::{ClaimState, Decision, Observed, Step, decide, next_node};
use crate::volume::request::request;
use crate::volume::{expand as expansion, modify as modification};

/// Reconciles a volume.
pub async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let next = reconcile_volume(context, name).await?;
    if !matches!(next, Requeue::WaitingForSlot) {
        context.shared.change(|index| index.dequeue(&WorkItem::Volume(name.to_owned())));
    }
    Ok(next)
}

async fn reconcile_volume(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let cached = context.shared.index().volume(name);
    let Some(mut volume) = cached.map(|volume| (*volume).clone()) else { return clean_up(context, name).await };
    if !volume.belongs_to(&context.identity) && !is_of_a_run(context, &volume) {
        return Ok(Requeue::Done);
    }
    let mut confirmed = None;
    let mut nodes: Vec<(String, NodeState)> = Vec::new();
    let (mut of_size, mut of_attributes) = (Confirmed::default(), Confirmed::default());
    for _ in 0..MAX_STEPS {
        let id = volume.id().unwrap_or_default().to_owned();
        let (jobs, pods) = {
            let index = context.shared.index();
            (index.jobs_of(&id), index.pods_of(&id))
        };
        let claim = confirmed.unwrap_or_else(|| claim_state(context, &volume));
        let provenance = provenance(context, &volume, &jobs);
        let now = context.class_recipe(&volume.class);
        let recipe = provenance.as_ref().map_err(String::clone).and_then(|provenance| {
            let record = expansion::record(&provenance.record, now.as_ref().map(|recipe| &recipe.record));
            record.checked().map_err(|problems| format!("its provenance cannot be used: {}", joined(&problems)))
        });
        let home_node = provenance.as_ref().map_or("", |provenance| provenance.node.as_str());
        let nodes_with_pods = nodes_with_pods(&pods);
        let node_states = {
            let home = home_node.to_owned();
            let mut node_states =
                context.shared.index().node_states(volume.nodes.iter().chain(&nodes_with_pods).chain([&home]));
            node_states.0.extend(nodes.iter().cloned());
            node_states
        };
        let claim_bound_before = claim_bound_before(context, &volume);
        let node = next_node(&volume, claim, home_node, &node_states);
        let run_name = job_name(&volume, home_node, &node);
        let run = context.delete_state(Operation::Delete, &id, (&jobs, &pods), &run_name);
        let size = expand::observe(context, &volume, (recipe.clone(), home_node), &jobs, &pods, &of_size);
        let attributes = modify::observe(context, &volume, size.run_basis(), &jobs, &pods, &of_attributes);
        let (expand_runs, modify_runs) = (size.runs.runs(), attributes.runs.runs());
        let observed = Observed {
            volume: &volume,
            ours: true,
            claim,
            claim_was_bound: claim_bound_before.is_some(),
            recipe: recipe.as_deref().map_err(String::clone),
            run_known: jobs.iter().any(|job| job.run_labels.operation == Operation::Provision.as_str()),
            has_running_pods: has_running_pods(&pods, Operation::Provision)
                || is_pod_unseen(&jobs, &pods)
                || context.shared.index().has_expectation(&job::prefix(Operation::Provision, &id)),
            nodes_with_pods: &nodes_with_pods,
            node_states: &node_states,
            home_node,
            // The present class decides; if it is gone, the recipe does.
            node_gone: now.as_deref().or(recipe.as_deref().ok()).map(|recipe| recipe.node_gone).unwrap_or_default(),
            run,
            delete_job: jobs.iter().map(Arc::as_ref).find(|job| job.name.name == run_name),
            expansion: size.observed(size.runs.observed(&expand_runs, &node_states)),
            modification: attributes.observed(attributes.runs.observed(&modify_runs, &node_states)),
        };
        let Decision { step, event, requeue_at } = decide(&observed, context.clock.now());
        tracing::debug!(volume = volume.name, ?step, "decided");
        if !expand::settle_quota(context, &volume, &size) {
            continue;
        }
        if let Some(event) = event.clone().filter(|_| !matches!(step, Step::Expand(_) | Step::Modify(_))) {
            context.emit(ObjectRef::volume(&volume), event);
        }
        let mut next = StepOutcome::Again;
        match step {
            Step::Nothing if attributes.runs.is_starting() => {
                return Ok(attributes.runs.wait(context, requeue_at, &[job::prefix(Operation::Delete, &id)]));
            }
            Step::Nothing => return Ok(size.runs.wait(context, requeue_at, &[job::prefix(Operation::Delete, &id)])),
            Step::Expand(step) => {
                let decision = expansion::Decision { step, event, requeue_at };
                next = expand::execute(context, &volume, &size, decision, &mut of_size).await?;
            }
            Step::Modify(step) => {
                let decision = modification::Decision { step, event, requeue_at };
                next = modify::execute(context, &volume, &attributes, decision, &mut of_attributes).await?;
            }
            Step::AddFinalizer => volume = context.writes.add_volume_finalizer(&volume).await?,
            Step::RemoveFinalizer => {
                context.writes.remove_volume_finalizer(&volume).await?;
                return Ok(Requeue::Done);
            }
            Step::Reserve => {
                // The cache may still have the claim that was lost.
                if let Some(claim) = &claim_bound_before {
                    runs::confirm_claim(context, claim, |fresh| fresh.volume_name == claim.volume_name).await?;
                }
                let claim = match &claim_bound_before {
                    Some(claim) => (claim.name.clone(), Some(claim.uid.as_str())),
                    None => (volume.reservation(&context.identity.namespace), None),
                };
                volume = context.writes.reserve(&volume, (&claim.0, claim.1)).await?;
            }
            Step::ConfirmClaimGone => confirmed = Some(confirm(context, &volume, &jobs).await?),
            Step::ConfirmNode { node } => {
                let state = if context.writes.has_node(&node).await? { NodeState::Ready } else { NodeState::Gone };
                nodes.push((node, state));
                confirmed = Some(claim);
            }
            Step::MarkNodeClean { nodes } => {
                volume = context.writes.set_volume_nodes(&volume, &nodes).await?;
                confirmed = Some(claim);
            }
            Step::StartDelete { attempt, node, on_any_node } => {
                let Ok(recipe) = &recipe else { return Ok(Requeue::Done) };
                let run = Run { attempt, pinned: !on_any_node, is_home_node: node == home_node, node };
                next = start(context, &volume, recipe, run).await?;
                confirmed = Some(claim);
            }
            Step::RemoveJob { job } => {
                if let Some(job) = jobs.iter().find(|candidate| candidate.name == job) {
                    context.remove_run(job).await?;
                }
                return Ok(Requeue::Done);
            }
            Step::RecordFailure(failure) => {
                context.metrics.delete_failed(&volume.class);
                volume = context.writes.record_volume_failure(&volume, &failure).await?;
            }
            Step::DeleteVolume => {
                context.writes.remove_volume(&volume).await?;
                context.metrics.deleted(&volume.class);
                tracing::info!(volume = volume.name, class = volume.class, "the storage and the volume are deleted");
                return Ok(Requeue::Done);
            }
        }
        match next {
            StepOutcome::Again => {}
            StepOutcome::With(newer) => volume = *newer,
            StepOutcome::Requeue(requeue) => return Ok(requeue),
        }
    }
    Ok(Requeue::After(Duration::from_secs(1)))
}

/// Checks by its Job whether the volume is the orchestrator's. The volume of a script may have only the claim's UID.
fn is_of_a_run(context: &Context, volume: &Volume) -> bool {
    let anonymous = volume.instance.is_none() && volume.provisioned_by.is_none();
    anonymous && volume.claim_uuid.as_deref().is_some_and(|uuid| !context.shared.index().jobs_of(uuid).is_empty())
}

/// Returns the name of the Job of the delete run that is due on a node.
fn job_name(volume: &Volume, home: &str, node: &str) -> String {
    job::name(
        Operation::Delete,
        volume.id().unwrap_or_default(),
        volume.delete_attempt(),
        &scope(volume, node == home, node),
    )
}

/// Returns the scope that distinguishes the runs for a volume. They are on its own node, in a batch or alone, or on
/// other nodes.
fn scope(volume: &Volume, home: bool, node: &str) -> String {
    match volume.batch() {
        Some(batch) if home => batch.clone(),
        _ if home => volume.uid.clone(),
        _ => format!("{}/{node}", volume.uid),
    }
}

/// Returns the claim for which a volume is reserved by name. The claim must name the volume and say that both were
/// bound before. The PV controller calls the claim Lost as long as the volume does not have its UID.
fn claim_bound_before(context: &Context, volume: &Volume) -> Option<Arc<Claim>> {
    let reserved = match &volume.claim_ref {
        Some(reference) => reference.uid.is_empty().then(|| reference.name.clone())?,
        None => volume.former_claim.clone().filter(|_| volume.is_restored())?,
    };
    let claim = context.shared.index().claim(&reserved)?;
    let names_it = claim.volume_name.as_deref() == Some(&volume.name) && claim.bind_completed;
    (names_it && !claim.deleting && claim.class.as_deref() == Some(&volume.class)).then_some(claim)
}

/// Checks whether a provision run has not ended and its pod is not visible. The watch of pods may lag behind that of
/// Jobs.
fn is_pod_unseen(jobs: &[Arc<Job>], pods: &[Arc<Pod>]) -> bool {
    let begun = jobs.iter().filter(|job| job.run_labels.operation == Operation::Provision.as_str() && !job.is_over);
    begun.into_iter().any(|job| !pods.iter().any(|pod| pod.job_uid == job.uid))
}

fn claim_state(context: &Context, volume: &Volume) -> ClaimState {
    let index = context.shared.index();
    if volume.pool_kind().is_some() {
        return ClaimState::Awaited;
    }
    // Somebody has removed the claimRef.
    if volume.has_lost_claim_ref() {
        return ClaimState::None;
    }
    let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
    let uid = reference.map(|reference| &reference.uid).or(volume.claim_uuid.as_ref());
    let Some(uid) = uid else { return ClaimState::None };
    match index.claim_by_id(uid) {
        Some(claim)
            if claim.is_bound() && claim.volume_name.as_deref() != Some(&volume.name) && !claim.has_finalizer() =>
        {
            ClaimState::Elsewhere
        }
        Some(_) => ClaimState::Alive,
        // The PV controller writes Released only when the claim is gone.
        None if matches!(volume.phase.as_str(), "Released" | "Failed") => ClaimState::Gone,
        None if reference.is_some_and(|claim| index.is_claim_gone(&volume.name, claim)) => ClaimState::Gone,
        None => ClaimState::Missing,
    }
}

/// Asks the API for the claim. A reserved volume does not know its claim's name. One of its Jobs may know it; else all
/// claims are read.
async fn confirm(context: &Context, volume: &Volume, jobs: &[Arc<Job>]) -> Result<ClaimState, WriteError> {
    let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty());
    let uid = reference.map(|reference| &reference.uid).or(volume.claim_uuid.as_ref()).cloned().unwrap_or_default();
    let by_job = jobs.iter().find_map(|job| job.claim.clone());
    let alive = match reference.map(|reference| reference.name.clone()).or(by_job) {
        Some(name) => {
            context.writes.read_claim(&name).await?.is_some_and(|claim| claim.uid == uid || claim.id() == uid)
        }
        None => context.writes.has_claim(&uid).await?,
    };
    if alive {
        return Ok(ClaimState::Alive);
    }
    if let Some(claim) = reference {
        context.shared.index().note_claim_gone(&volume.name, claim);
    }
    Ok(ClaimState::Gone)
}

/// Returns the provenance of a volume. If the volume was never adopted, it follows from the Jobs.
fn provenance(context: &Context, volume: &Volume, jobs: &[Arc<Job>]) -> Result<Provenance, String> {
    if let Some(text) = volume.provenance.as_ref().filter(|_| volume.is_adopted()) {
        return serde_json::from_str(text).map_err(|error| format!("its provenance cannot be read: {error}"));
    }
    let recipe = context.recipe_of_jobs(jobs)
        .or_else(|| recipe_of_class(context, volume))
        .ok_or("how it was made is not known: it was never adopted, no Job of it exists, and its class does not make and delete such volumes")?;
    let node = volume.affinity.as_deref().and_then(crate::model::affinity::only_host).unwrap_or_default();
    let node = if recipe.placement == Placement::Any { "" } else { node };
    Ok(Provenance { record: recipe.record.clone(), node: node.to_owned() })
}

/// A delete run that is due.
struct Run {
    attempt: u32,
    /// The node whose storage the run deletes; empty for no particular node.
    node: String,
    /// This is the volume's own node, or no particular node.
    is_home_node: bool,
    /// The run must be on that node.
    pinned: bool,
}

impl Run {
    /// Returns the node to which the pod is bound.
    fn on(&self, recipe: &Recipe) -> Option<&str> {
        recipe.required_node(&self.node).filter(|_| self.pinned)
    }
}

/// Returns the recipe for a volume that appeared when claim and Jobs were gone. It is that of the class, if the class
/// could have made such a volume.
fn recipe_of_class(context: &Context, volume: &Volume) -> Option<Arc<Recipe>> {
    let classes = context.shared.index().classes();
    let ClassLookup::Ours(class) = classes.lookup(&volume.class) else { return None };
    let recipe = class.recipe.as_ref().ok()?;
    (recipe.reclaim_policy == "Delete" && verify_volume_source(volume, recipe).is_ok()).then(|| recipe.clone())
}

/// Starts a delete run, or waits for its batch or for a slot. The returned volume names its batch, or has the failure
/// if the run could not be started.
async fn start(context: &Context, volume: &Volume, recipe: &Recipe, run: Run) -> Result<StepOutcome, WriteError> {
    let on = run.on(recipe);
    // Storage on other nodes, a repeated run, and a deletion without its config need runs of their own.
    let first = run.is_home_node && run.pinned && run.attempt == 1;
    let may = first && context.identity.config_namespaces.contains(&recipe.config.namespace);
    let left;
    let mut alone = volume;
    if let Some(batch) = volume.batch().filter(|_| run.is_home_node)
        && (!may || context.shared.index().excludes(batch, Operation::Delete, recipe, on))
    {
        left = context.writes.note_batch(volume, None).await?;
        alone = &left;
    } else if may && volume.batch().is_none() {
        let job = job_name(volume, &run.node, &run.node);
        if let Some(wait) = context.wait_for_slot(&job, &slot_request(volume, on), recipe) {
            return Ok(StepOutcome::Requeue(wait));
        }
        let due = Due { volume, recipe, node: on, job: &job };
        if let Some(noted) = context.join_deletion(&due).await? {
            return Ok(noted.into());
        }
    }
    begin(context, alone, recipe, run).await
}

fn slot_request(volume: &Volume, node: Option<&str>) -> SlotRequest {
    SlotRequest::volume(volume, Operation::Delete).on(node)
}

/// Starts the run of a volume without a batch, or joins its batch.
async fn begin(context: &Context, volume: &Volume, recipe: &Recipe, run: Run) -> Result<StepOutcome, WriteError> {
    let on = run.on(recipe).map(str::to_owned);
    let Run { attempt, node, is_home_node, .. } = run;
    let scope = scope(volume, is_home_node, &node);
    let job = job::name(Operation::Delete, volume.id().unwrap_or_default(), attempt, &scope);
    if let Some(wait) = context.wait_for_slot(&job, &slot_request(volume, on.as_deref()), recipe) {
        return Ok(StepOutcome::Requeue(wait));
    }
    // The source of the volume says nothing about storage on other nodes. But the read confirms that the volume is
    // unchanged.
    let source = context.writes.volume_source(volume).await?;
    let source = if is_home_node { source } else { String::new() };
    let ts = context.timestamp();
    let request = request(volume, &node, recipe, &context.identity, &context.kube_api, (attempt, ts), source);
    let target = RunTarget { namespace: recipe.config.namespace.clone(), node: on, ..RunTarget::default() };
    if let Some(batch) = volume.batch().filter(|_| is_home_node) {
        let (id, object) = (request.claim_uuid.clone(), MemberObject::Volume(volume.name.clone()));
        let member = Member { id, attempt, object, attributes: None };
        let recipe = Arc::new(recipe.clone());
        return match context.add_entry(batch, BatchEntry { member, request, target, recipe }) {
            true => Ok(StepOutcome::Requeue(Requeue::JobCreated)),
            false => context.writes.note_batch(volume, None).await.map(StepOutcome::from),
        };
    }
    let target = RunTarget { scope, volume: Some(volume.name.clone()), ..target };
    let last = volume.last_failure.as_ref();
    match start_delete_job(context, recipe, &request, target, last).await? {
        None => {
            tracing::info!(volume = volume.name, attempt, "delete run started");
            Ok(StepOutcome::Requeue(Requeue::JobCreated))
        }
        Some(cause) => {
            let message = format!("delete run {attempt}: {}", cause.message);
            context.emit(
                ObjectRef::volume(volume),
                NewEvent { warning: true, reason: reason::VOLUME_FAILED_DELETE, message },
            );
            context.metrics.delete_failed(&volume.class);
            let failure = LastFailure::of_delete(attempt, context.clock.now(), &cause, last).by(recipe);
            context.writes.record_volume_failure(volume, &failure).await.map(StepOutcome::from)
        }
    }
}

/// Cleans up the Jobs of a volume that is gone.
async fn clean_up(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let jobs = context.shared.index().jobs_of_volume(name);
    let leftovers: Vec<_> = jobs.into_iter().filter(|job| !job.deleting).collect();
    // The cache may be stale: the API is asked before a run is stopped.
    if leftovers.is_empty() || context.writes.read_volume(name).await?.is_some() {
        return Ok(Requeue::Done);
    }
    for job in leftovers {
        context.remove_run(&job).await?;
    }
    Ok(Requeue::Done)
}

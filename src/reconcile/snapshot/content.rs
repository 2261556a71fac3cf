//! Reconciles VolumeSnapshotContents: observes, decides with [`snapshot::decide`](crate::snapshot::decide), and takes
//! the steps.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::request::{ClaimRef, Operation};

use crate::api::writes::WriteError;
use crate::config::classes::ClassLookup;
use crate::config::{NodeGone, Recipe, joined};
use crate::decision::NewEvent;
use crate::model::claim::Claim;
use crate::model::data_source::SourceUser;
use crate::model::object_ref::ObjectRef;
use crate::model::snapshot::Content;
use crate::model::snapshot::Provenance;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::node::{NodeState, NodeStates};
use crate::reconcile::context::{Context, MAX_STEPS, Requeue, refused_job};
use crate::reconcile::data_source;
use crate::reconcile::delete_run::start_delete_job;
use crate::reconcile::orphaned_runs::{self, Leftovers};
use crate::run::failure::LastFailure;
use crate::run::job::{self, RunTarget};
use crate::run::state::RunState;
use crate::run::view::{Job, Pod};
use crate::run::view::{has_running_pods, nodes_with_pods};
use crate::snapshot::decide::{Decision, Observed, SnapshotState, Source, Step, decide, delete_attempt, failed_run};
use crate::snapshot::request::request;
use crate::state::index::{SlotRequest, WorkItem};
use crate::volume::expand;

/// Returns the request for a slot. A snapshot run counts for the namespace of its user, like provision runs of claims
/// there.
fn slot_request(content: &Content, (provenance, recipe): &(Provenance, Recipe)) -> SlotRequest {
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace);
    slot_request.on(recipe.required_node(&provenance.node))
}

/// Facts beyond the cache that a reconcile has confirmed.
#[derive(Default)]
struct Confirmed {
    fresh: bool,
    snapshot: Option<SnapshotState>,
    source: Option<Claim>,
    nodes: Vec<(String, NodeState)>,
}

/// The data from which a decision borrows.
struct Observation {
    snapshot: SnapshotState,
    claim: Option<Arc<Claim>>,
    volume: Option<Arc<Volume>>,
    source: Result<(Provenance, Recipe), String>,
    made_by: Result<(Provenance, Recipe), String>,
    jobs: Vec<Arc<Job>>,
    deletes: Vec<Arc<Job>>,
    pods: Vec<Arc<Pod>>,
    nodes_with_pods: Vec<String>,
    node_states: NodeStates,
    node_gone: NodeGone,
    source_users: Vec<SourceUser>,
}

/// Reconciles a content.
pub async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let cached = context.shared.index().content(name);
    let Some(mut content) = cached.map(|content| (*content).clone()) else { return clean_up(context, name).await };
    let mut confirmed = Confirmed::default();
    for _ in 0..MAX_STEPS {
        let observed = observe(context, &content, &confirmed);
        let run_name = job::name(Operation::Snapshot, content.run_id(), content.attempt, "");
        let delete_name =
            job::name(Operation::DeleteSnapshot, content.run_id(), delete_attempt(&content), &content.uid);
        let run = context.run_state(&observed.jobs, &observed.pods, &run_name);
        let known = (&observed.deletes[..], &observed.pods[..]);
        let delete_run = context.delete_state(Operation::DeleteSnapshot, content.run_id(), known, &delete_name);
        let decision = decide_now(context, &content, &observed, &confirmed, (run, delete_run));
        let Decision { step, event, requeue_at } = decision;
        tracing::debug!(content = content.name, ?step, "decided");
        event.into_iter().for_each(|event| context.emit(ObjectRef::content(&content), event));
        match execute(context, &content, &observed, step, &mut confirmed).await? {
            StepOutcome::WaitingForSlot if requeue_at.is_none() => return Ok(Requeue::WaitingForSlot),
            StepOutcome::WaitingForSlot => return Ok(context.wait(requeue_at, &[])),
            StepOutcome::Wait => {
                context.shared.change(|index| index.dequeue(&WorkItem::Content(content.name.clone())));
                return Ok(
                    context.wait(requeue_at, &[run_name, job::prefix(Operation::DeleteSnapshot, content.run_id())])
                );
            }
            StepOutcome::JobCreated => return Ok(Requeue::JobCreated),
            StepOutcome::Again => {}
            StepOutcome::With(newer) => content = *newer,
            StepOutcome::Gone => return Ok(Requeue::Done),
        }
    }
    Ok(Requeue::After(Duration::from_secs(1)))
}

enum StepOutcome {
    Wait,
    /// Ends the reconcile until it is the content's turn.
    WaitingForSlot,
    JobCreated,
    Again,
    With(Box<Content>),
    Gone,
}

fn decide_now(
    context: &Context,
    content: &Content,
    seen: &Observation,
    confirmed: &Confirmed,
    (run, delete_run): (RunState, RunState),
) -> Decision {
    let jobs: Vec<&Job> = seen.jobs.iter().map(Arc::as_ref).collect();
    let finalizer = names::source_finalizer(&content.snapshot_uid);
    let claim = seen.claim.as_deref();
    let observed = Observed {
        content,
        ours: content.is_ours(&context.identity),
        fresh: confirmed.fresh,
        snapshot: seen.snapshot,
        source: seen.source.as_ref().map_err(String::clone).map(|source| Source {
            provenance: &source.0,
            recipe: &source.1,
            is_terminating: claim.is_some_and(|claim| claim.deleting),
            is_protected: claim.is_some_and(|claim| claim.finalizers.contains(&finalizer)),
            has_slot: context.shared.index().has_slot(&slot_request(content, source), &source.1),
        }),
        recipe: seen.made_by.as_ref().map_err(String::clone).map(|(_, recipe)| recipe),
        home_node: home_node(seen),
        jobs: &jobs,
        run,
        has_running_pods: has_running_pods(&seen.pods, Operation::Snapshot),
        nodes_with_pods: &seen.nodes_with_pods,
        node_states: &seen.node_states,
        node_gone: seen.node_gone,
        delete_run,
        source_users: &seen.source_users,
    };
    decide(&observed, context.clock.now())
}

fn home_node(observed: &Observation) -> &str {
    observed.made_by.as_ref().map_or("", |(provenance, _)| provenance.node.as_str())
}

fn observe(context: &Context, content: &Content, confirmed: &Confirmed) -> Observation {
    let index = context.shared.index();
    let identity = &context.identity;
    let snapshot = index.snapshot(&content.snapshot).filter(|snapshot| snapshot.uid == content.snapshot_uid);
    let state = match &snapshot {
        _ if content.snapshot_uid.is_empty() => SnapshotState::Unbound,
        Some(snapshot) if snapshot.deleting => SnapshotState::Terminating,
        Some(_) => SnapshotState::Alive,
        None => confirmed.snapshot.unwrap_or(SnapshotState::Missing),
    };
    let newer = confirmed.source.clone().map(Arc::new);
    let claim = snapshot.as_ref().and_then(|snapshot| newer.or_else(|| index.claim(&snapshot.claim()?)));
    let volume =
        snapshot.as_ref().map_or(Err("the orchestrator does not see its VolumeSnapshot".to_owned()), |snapshot| {
            let volume = super::source(&index, identity, snapshot)?;
            volume.ok_or_else(|| "the driver of the snapshot's class did not make the claim's volume".to_owned())
        });
    let classes = index.classes();
    let class = |name: &str| match classes.lookup(name) {
        ClassLookup::Ours(class) => class.recipe.as_ref().ok().cloned(),
        _ => None,
    };
    let source = volume.as_ref().map_err(String::clone).and_then(|volume| {
        let made =
            serde_json::from_str::<crate::model::volume::Provenance>(volume.provenance.as_deref().unwrap_or_default());
        let made = made.map_err(|error| format!("the provenance of its volume cannot be read: {error}"))?;
        let now = class(&volume.class);
        let record = expand::record(&made.record, now.as_ref().map(|recipe| &recipe.record));
        let recipe = record
            .recipe()
            .map_err(|problems| format!("the provenance of its volume cannot be used: {}", joined(&problems)))?;
        let provenance = Provenance {
            record,
            node: made.node,
            volume_id: volume.id().unwrap_or_default().to_owned(),
            pv_name: volume.name.clone(),
            size: volume.size.clone()?,
            volume_mode: volume.volume_mode.clone(),
        };
        Ok((provenance, recipe))
    });
    let made_by = match (&content.provenance, &content.handle) {
        (Some(text), _) => serde_json::from_str::<Provenance>(text)
            .map_err(|error| format!("its provenance cannot be read: {error}"))
            .and_then(|made_by| {
                let now = class(&made_by.record.class);
                let record = expand::record(&made_by.record, now.as_ref().map(|recipe| &recipe.record));
                let recipe = record
                    .recipe()
                    .map_err(|problems| format!("its provenance cannot be used: {}", joined(&problems)))?;
                Ok((made_by, recipe))
            }),
        (None, Some(_)) => {
            let of = content.class.as_deref().and_then(|class| index.snapshot_class(class)?.storage_class.clone());
            of.and_then(|of| class(&of)).map(|recipe| (provenance_of_class(&recipe, content), (*recipe).clone())).ok_or_else(|| {
                format!(
                    "no orchestrator made it, and its VolumeSnapshotClass does not name a StorageClass of this driver (parameter `{}`)",
                    crate::model::snapshot::STORAGE_CLASS
                )
            })
        }
        (None, None) => Err("no run was started for it".into()),
    };
    let (mut jobs, mut deletes) = (index.jobs_of_content(&content.name), Vec::new());
    jobs.retain(|job| {
        let deletes_it = job.run_labels.operation == Operation::DeleteSnapshot.as_str();
        if deletes_it {
            deletes.push(job.clone());
        }
        !deletes_it
    });
    let pods = index.pods_of(content.run_id());
    let nodes_with_pods = nodes_with_pods(&pods);
    let node = made_by.as_ref().map(|(made_by, _)| made_by.node.clone()).unwrap_or_default();
    let mut node_states = index.node_states(nodes_with_pods.iter().chain([&node]));
    node_states.0.extend(confirmed.nodes.iter().cloned());
    let recorded = made_by.as_ref().ok().map(|(_, recipe)| recipe);
    let of_class = recorded.and_then(|recipe| class(&recipe.class)).map(|recipe| recipe.node_gone);
    Observation {
        snapshot: state,
        claim,
        volume: volume.ok(),
        source,
        node_gone: of_class.or(recorded.map(|recipe| recipe.node_gone)).unwrap_or_default(),
        made_by,
        jobs,
        deletes,
        pods,
        nodes_with_pods,
        node_states,
        source_users: data_source::source_users_of_content(content, &index),
    }
}

/// Returns the provenance of a snapshot that this orchestrator did not make.
fn provenance_of_class(recipe: &Recipe, content: &Content) -> Provenance {
    Provenance {
        record: recipe.record.clone(),
        node: String::new(),
        volume_id: String::new(),
        pv_name: String::new(),
        size: content.size.unwrap_or_default(),
        volume_mode: content.volume_mode.clone().unwrap_or_default(),
    }
}

async fn execute(
    context: &Context,
    content: &Content,
    observed: &Observation,
    step: Step,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let writes = &context.writes;
    let with = |content: Content| StepOutcome::With(Box::new(content));
    match step {
        Step::Nothing => Ok(StepOutcome::Wait),
        Step::AddFinalizer => Ok(with(writes.add_content_finalizer(content).await?)),
        Step::WaitForSlot => {
            if let Ok(source) = &observed.source {
                context.shared.change(|index| index.wait_for_slot(&slot_request(content, source), &source.1));
            }
            Ok(StepOutcome::WaitingForSlot)
        }
        Step::Stamp { attempt, provenance } => {
            let Ok(source) = &observed.source else { return Ok(StepOutcome::Wait) };
            let job = job::name(Operation::Snapshot, content.run_id(), attempt, "");
            // Another worker may have taken the slot since the decision.
            if !context.shared.index().acquire_slot(&job, &slot_request(content, source), &source.1) {
                return Ok(StepOutcome::Again);
            }
            let stamped = writes.stamp_content(content, attempt, &provenance).await;
            if stamped.is_err() {
                context.shared.change(|index| index.cancel_expectation(&job));
            }
            confirmed.fresh = true;
            Ok(with(stamped?))
        }
        Step::ProtectSource => {
            let Some(claim) = &observed.claim else { return Ok(StepOutcome::Wait) };
            confirmed.source = Some(writes.protect_snapshot_source(claim, &content.snapshot_uid).await?);
            Ok(StepOutcome::Again)
        }
        Step::Refresh => {
            confirmed.fresh = true;
            match writes.read_content(&content.name).await? {
                Some(newer) if newer.uid == content.uid => Ok(with(newer)),
                _ => Ok(StepOutcome::Gone),
            }
        }
        Step::StartRun => start(context, content, observed).await,
        Step::RemoveJob { job } => {
            let uid = observed.jobs.iter().find(|candidate| candidate.name == job).map(|job| job.uid.clone());
            writes.remove_job(&job, &uid.unwrap_or_default()).await?;
            Ok(StepOutcome::Wait)
        }
        Step::Report { error } => Ok(with(writes.report_content(content, &error, &context.time_in_status()).await?)),
        Step::RecordFailure(failure) => {
            context.metrics.snapshot_run(failure.operation, false);
            Ok(with(writes.record_content_failure(content, &failure).await?))
        }
        Step::MarkReady { size } => {
            let finished = writes.mark_content_ready(content, size, context.clock.wall()).await?;
            if content.handle.is_none() {
                context.metrics.snapshot_run(Operation::Snapshot, true);
            }
            Ok(with(finished))
        }
        Step::UnprotectSource { claims } => {
            data_source::confirm_done(context, &claims, &content.name).await?;
            Ok(with(writes.unprotect_content(content, &claims).await?))
        }
        Step::ConfirmSnapshot => {
            let found = writes.read_snapshot(&content.snapshot).await?.filter(|s| s.uid == content.snapshot_uid);
            confirmed.snapshot = Some(match found {
                Some(snapshot) if snapshot.deleting => SnapshotState::Terminating,
                Some(_) => SnapshotState::Alive,
                None => SnapshotState::Gone,
            });
            Ok(StepOutcome::Again)
        }
        Step::ConfirmNode { node } => {
            let state = if writes.has_node(&node).await? { NodeState::Ready } else { NodeState::Gone };
            confirmed.nodes.push((node, state));
            Ok(StepOutcome::Again)
        }
        Step::StartDelete { attempt, on_any_node } => {
            start_delete(context, content, observed, attempt, on_any_node).await
        }
        Step::RemoveFinalizer => {
            // A run that has not certainly ended might still store something.
            if content.provenance.is_some() && !observed.is_deleting(content) {
                confirm_no_run(context, content, observed).await?;
            }
            writes.remove_content_finalizer(content).await?;
            if observed.is_deleting(content) {
                context.metrics.snapshot_run(Operation::DeleteSnapshot, true);
            }
            Ok(StepOutcome::Gone)
        }
        Step::DeleteContent => {
            writes.delete_content(content).await?;
            Ok(StepOutcome::Gone)
        }
    }
}

/// Returns the target of a run for a content.
fn run_target(content: &Content, recipe: &Recipe, node: &str) -> RunTarget {
    RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: recipe.required_node(node).map(str::to_owned),
        content: Some((content.name.clone(), content.run_id().to_owned())),
        ..RunTarget::default()
    }
}

async fn start(context: &Context, content: &Content, observed: &Observation) -> Result<StepOutcome, WriteError> {
    let (Ok((made_by, recipe)), Some(claim), Some(volume)) = (&observed.made_by, &observed.claim, &observed.volume)
    else {
        return Ok(StepOutcome::Wait);
    };
    // No run reads a source on the word of a cache. The API must have the VolumeSnapshot and its source, and the source
    // must be protected.
    let snapshot = context.writes.read_snapshot(&content.snapshot).await?;
    let wanted = |snapshot: &Snapshot| snapshot.uid == content.snapshot_uid && !snapshot.deleting;
    let fresh = context.writes.read_claim(&claim.name).await?;
    let kept = names::source_finalizer(&content.snapshot_uid);
    let same = |fresh: &Claim| fresh.uid == claim.uid && fresh.finalizers.contains(&kept);
    if !snapshot.as_ref().is_some_and(wanted) || !fresh.as_ref().is_some_and(same) {
        return Err(WriteError::Conflict(format!("the source of VolumeSnapshotContent {}", content.name)));
    }
    let source = context.writes.volume_source(volume).await?;
    let of =
        ClaimRef { namespace: claim.name.namespace.clone(), name: claim.name.name.clone(), uid: claim.uid.clone() };
    let run = (content.attempt, context.timestamp());
    let asked = request(
        Operation::Snapshot,
        content,
        (made_by, recipe),
        &context.identity,
        &context.kube_api,
        run,
        (of, source),
    );
    let target = run_target(content, recipe, &made_by.node);
    // The slot that was taken with the stamp is freed when no Job appears for a while.
    let name = job::name(Operation::Snapshot, content.run_id(), content.attempt, "");
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace).on(target.node.as_deref());
    if context.wait_for_slot(&name, &slot_request, recipe).is_some() {
        return Ok(StepOutcome::WaitingForSlot);
    }
    let (kind, cause) = match context.create_job(&job::job(recipe, &asked, &target)).await {
        Ok(()) => {
            let message = format!("run {}: image {} of class {}", content.attempt, recipe.image, recipe.class);
            context.emit(
                ObjectRef::content(content),
                NewEvent { warning: false, reason: names::reason::SNAPSHOTTING, message },
            );
            return Ok(StepOutcome::JobCreated);
        }
        Err(error) => refused_job(error)?,
    };
    let decision = failed_run(content, &cause, kind, Some(recipe), context.clock.now());
    decision.event.into_iter().for_each(|event| context.emit(ObjectRef::content(content), event));
    let Step::RecordFailure(failure) = decision.step else { return Ok(StepOutcome::Wait) };
    context.metrics.snapshot_run(Operation::Snapshot, false);
    Ok(StepOutcome::With(Box::new(context.writes.record_content_failure(content, &failure).await?)))
}

impl Observation {
    /// Checks whether a delete-snapshot run has begun. It begins only when no other run can be in progress.
    fn is_deleting(&self, content: &Content) -> bool {
        let name = job::name(Operation::DeleteSnapshot, content.run_id(), delete_attempt(content), &content.uid);
        self.deletes.iter().any(|job| job.name.name == name)
    }
}

/// Confirms that no Job or pod of a snapshot run exists that no watch has shown yet. It must not meet the deletion.
async fn confirm_no_run(context: &Context, content: &Content, observed: &Observation) -> Result<(), WriteError> {
    let Ok((_, recipe)) = &observed.made_by else { return Ok(()) };
    let (of, known) = (Some(recipe.config.namespace.as_str()), (&*observed.jobs, &*observed.pods));
    match context.is_run_unseen(Operation::Snapshot, content.run_id(), of, known).await? {
        false => Ok(()),
        true => Err(WriteError::Conflict(format!("the runs of VolumeSnapshotContent {}", content.name))),
    }
}

async fn start_delete(
    context: &Context,
    content: &Content,
    observed: &Observation,
    attempt: u32,
    elsewhere: bool,
) -> Result<StepOutcome, WriteError> {
    let Ok((made_by, recipe)) = &observed.made_by else { return Ok(StepOutcome::Wait) };
    // A stored snapshot must not be deleted on the word of a cache.
    let fresh = context.writes.read_content(&content.name).await?;
    if fresh.as_ref().is_none_or(|fresh| fresh.resource_version != content.resource_version) {
        return Err(WriteError::Conflict(format!("VolumeSnapshotContent {}", content.name)));
    }
    confirm_no_run(context, content, observed).await?;
    let node = if elsewhere { "" } else { &made_by.node };
    let target = RunTarget { scope: content.uid.clone(), ..run_target(content, recipe, node) };
    let job = job::name(Operation::DeleteSnapshot, content.run_id(), attempt, &content.uid);
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace).to(Operation::DeleteSnapshot);
    if context.wait_for_slot(&job, &slot_request.on(target.node.as_deref()), recipe).is_some() {
        return Ok(StepOutcome::WaitingForSlot);
    }
    let run = (attempt, context.timestamp());
    let asked = request(
        Operation::DeleteSnapshot,
        content,
        (made_by, recipe),
        &context.identity,
        &context.kube_api,
        run,
        Default::default(),
    );
    let last = content.last_failure.as_ref().filter(|failure| failure.operation == Operation::DeleteSnapshot);
    match start_delete_job(context, recipe, &asked, target, last).await? {
        None => Ok(StepOutcome::JobCreated),
        Some(cause) => {
            let message = format!("delete-snapshot run {attempt}: {}", cause.message);
            let reason = names::reason::SNAPSHOT_DELETE_FAILED;
            context.emit(ObjectRef::content(content), NewEvent { warning: true, reason, message });
            context.metrics.snapshot_run(Operation::DeleteSnapshot, false);
            let failure =
                LastFailure::of_deletion(Operation::DeleteSnapshot, attempt, context.clock.now(), &cause, last);
            Ok(StepOutcome::With(Box::new(context.writes.record_content_failure(content, &failure).await?)))
        }
    }
}

/// Cleans up the Jobs of a content that is gone. A snapshot Job arrived late, because earlier ones were deleted with
/// the content. Its stored snapshot is deleted.
async fn clean_up(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let jobs: Vec<_> = {
        let index = context.shared.index();
        index.jobs_of_content(name).into_iter().filter(|job| !job.deleting).collect()
    };
    // The cache may be stale: the API is asked before a run is stopped.
    if jobs.is_empty() || context.writes.read_content(name).await?.is_some() {
        return Ok(Requeue::Done);
    }
    let id = jobs[0].run_labels.id.clone();
    let pods = context.shared.index().pods_of(&id);
    orphaned_runs::reconcile_leftovers(
        context,
        &Leftovers { id: &id, jobs: &jobs, pods: &pods, volume: false, content: Some(name) },
    )
    .await
}

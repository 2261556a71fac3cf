//! Reconciles VolumeSnapshotContents: observes, decides with [`content::decide`](flex_core::content::decide), and takes
//! the steps.

mod observe;

use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_contract::request::{ClaimRef, RunRequest};
use flex_core::config::Recipe;
use flex_core::content::decide::{
    Observed, Rule, RunSource, SnapshotState, Step, decide, delete_attempt, failed_start,
};
use flex_core::content::request::{SnapshotBasis, SourceVolume, handed_back, request};
use flex_core::model::claim::Claim;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::snapshot::{Content, Snapshot, SnapshotProvenance};
use flex_core::rules::{Decision, NewEvent};
use flex_core::run::failure::LastFailure;
use flex_core::run::job::{self, ContentRef, RunTarget};
use flex_core::run::node::NodeState;
use flex_core::run::request::AttemptStart;
use flex_core::run::view::{Job, has_running_pods};

use self::observe::{Confirmed, Observation, observe};
use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue, RunObjects, refused_job};
use crate::reconcile::data_source;
use crate::reconcile::delete_run::start_delete_job;
use crate::reconcile::drive::{self, Reconcile, ReplayedDecision, decided, drive};
use crate::reconcile::late_runs::{self, Leftovers};
use crate::state::index::{SlotRequest, WorkItem};

/// Returns the request for a slot. A snapshot run counts for the namespace of its user, like provision runs of claims
/// there.
fn slot_request(content: &Content, basis: &SnapshotBasis) -> SlotRequest {
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace);
    slot_request.on(basis.recipe.required_node(basis.provenance.origin_node.as_deref()))
}

/// Reconciles a content.
pub async fn reconcile(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let cached = context.cluster.index().content(name);
    let Some(content) = cached.map(|content| (*content).clone()) else { return clean_up(context, name).await };
    drive::<Contents>(context, content, Confirmed::default()).await
}

/// Decides about each content, and takes no step.
pub(super) fn replay(context: &Context) -> Vec<ReplayedDecision> {
    let contents: Vec<_> = context.cluster.index().contents().cloned().collect();
    contents.iter().map(|content| decided::<Contents>(context, content)).collect()
}

/// The reconciler of contents.
struct Contents;

impl Reconcile for Contents {
    type Object = Content;
    type Observation = Observation;
    type Confirmed = Confirmed;
    type Rule = Rule;

    fn item(content: &Content) -> WorkItem {
        WorkItem::Content(content.name.clone())
    }

    fn reference(content: &Content) -> ObjectRef {
        ObjectRef::content_itself(content)
    }

    fn observe(context: &Context, content: &Content, confirmed: &Confirmed) -> Observation {
        observe(context, content, confirmed)
    }

    fn decide(
        context: &Context,
        content: &Content,
        observation: &Observation,
        confirmed: &Confirmed,
    ) -> Decision<Self::Rule> {
        decide_now(context, content, observation, confirmed)
    }

    /// Returns the VolumeSnapshot of a content, because users look there.
    fn subject(content: &Content, _: &Observation, _: &Step) -> Option<ObjectRef> {
        Some(ObjectRef::content(content))
    }

    fn expected_jobs(content: &Content, _: &Observation) -> Vec<String> {
        vec![run_name(content), job::prefix(Operation::DeleteSnapshot, content.run_id())]
    }

    async fn execute(
        context: &Context,
        content: &Content,
        observation: &Observation,
        step: Step,
        confirmed: &mut Confirmed,
    ) -> Result<StepOutcome, WriteError> {
        execute(context, content, observation, step, confirmed).await
    }
}

type StepOutcome = drive::StepOutcome<Content>;

/// Returns the name of the Job of the stamped run.
fn run_name(content: &Content) -> String {
    job::name(Operation::Snapshot, content.run_id(), content.attempt, "")
}

/// Returns the name of the Job of the delete run that is due.
fn delete_name(content: &Content, seen: &Observation) -> String {
    let scope = delete_scope(content, origin_node(seen));
    job::name(Operation::DeleteSnapshot, content.run_id(), delete_attempt(content), &scope)
}

/// Returns the part of a Job's name that tells apart the runs on different nodes: the record of a content may get another
/// node while a run on the former one is in progress.
fn delete_scope(content: &Content, node: Option<&str>) -> String {
    node.map_or_else(|| content.uid.clone(), |node| format!("{}/{node}", content.uid))
}

fn decide_now(
    context: &Context,
    content: &Content,
    seen: &Observation,
    confirmed: &Confirmed,
) -> flex_core::content::decide::Decision {
    let run = context.run_state(&seen.jobs, &seen.pods, &run_name(content));
    let known = RunObjects { jobs: &seen.deletes, pods: &seen.pods };
    let delete_run =
        context.delete_state(Operation::DeleteSnapshot, content.run_id(), known, &delete_name(content, seen));
    let jobs: Vec<&Job> = seen.jobs.iter().map(Arc::as_ref).collect();
    let delete_jobs: Vec<&Job> = seen.deletes.iter().map(Arc::as_ref).collect();
    let finalizer = content.snapshot_uid.as_deref().map(names::source_finalizer);
    let claim = seen.claim.as_deref();
    let observed = Observed {
        content,
        ours: content.is_ours(&context.identity),
        fresh: confirmed.fresh,
        snapshot: seen.snapshot,
        source: seen.source.as_ref().map_err(String::clone).map(|source| RunSource {
            provenance: &source.provenance,
            recipe: &source.recipe,
            is_terminating: claim.is_some_and(|claim| claim.terminating),
            is_protected: claim.zip(finalizer.as_ref()).is_some_and(|(claim, own)| claim.finalizers.contains(own)),
            no_slot: context.cluster.index().no_slot(&slot_request(content, source), &source.recipe),
        }),
        recipe: seen.made_by.as_ref().map_err(String::clone).map(|basis| &basis.recipe),
        origin_node: origin_node(seen),
        jobs: &jobs,
        run,
        has_running_pods: has_running_pods(&seen.pods, Operation::Snapshot),
        nodes_with_pods: &seen.nodes_with_pods,
        node_states: &seen.node_states,
        node_gone: seen.node_gone,
        delete_run,
        delete_jobs: &delete_jobs,
        source_users: &seen.source_users,
    };
    decide(&observed, context.clock.now())
}

fn origin_node(observation: &Observation) -> Option<&str> {
    observation.made_by.as_ref().ok()?.provenance.origin_node.as_deref()
}

async fn execute(
    context: &Context,
    content: &Content,
    observation: &Observation,
    step: Step,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let writes = &context.writes;
    let with = StepOutcome::from;
    match step {
        Step::Nothing => Ok(StepOutcome::Wait),
        Step::AddFinalizer => Ok(with(writes.add_content_finalizer(content).await?)),
        Step::WaitForSlot => {
            if let Ok(source) = &observation.source {
                context.cluster.update(|index| index.wait_for_slot(&slot_request(content, source), &source.recipe));
            }
            Ok(StepOutcome::WaitForSlot)
        }
        Step::Stamp { attempt, provenance } => {
            stamp(context, content, observation, attempt, &provenance, confirmed).await
        }
        Step::ProtectSource => {
            let (Some(claim), Some(uid)) = (&observation.claim, &content.snapshot_uid) else {
                return Ok(StepOutcome::Wait);
            };
            confirmed.source = Some(writes.protect_snapshot_source(claim, uid).await?);
            Ok(StepOutcome::Again)
        }
        Step::Refresh => {
            confirmed.fresh = true;
            match writes.read_content(&content.name).await? {
                Some(newer) if newer.uid == content.uid => Ok(with(newer)),
                _ => Ok(StepOutcome::End(Requeue::Done)),
            }
        }
        Step::StartRun => start(context, content, observation).await,
        Step::RemoveJob { job } => {
            let mut runs = observation.jobs.iter().chain(&observation.deletes);
            if let Some(job) = runs.find(|candidate| candidate.name == job) {
                context.remove_run(job).await?;
            }
            Ok(StepOutcome::Wait)
        }
        Step::WriteStatus { error } => {
            Ok(with(writes.report_content(content, &error, &context.time_in_status()).await?))
        }
        Step::RecordFailure(failure) => {
            context.metrics.snapshot_run(failure.operation, false);
            Ok(with(writes.record_content_failure(content, &failure).await?))
        }
        Step::MarkReady { size } => mark_ready(context, content, observation, size).await,
        Step::UnprotectSource { claims } => {
            data_source::confirm_done(context, &claims, &content.name).await?;
            Ok(with(writes.unprotect_content(content, &claims).await?))
        }
        Step::ConfirmSnapshot => {
            confirmed.snapshot = Some(read_snapshot_state(context, content).await?);
            Ok(StepOutcome::Again)
        }
        Step::ConfirmNode { node } => {
            let state = if writes.has_node(&node).await? { NodeState::Reachable } else { NodeState::NotFound };
            confirmed.nodes.0.insert(node, state);
            Ok(StepOutcome::Again)
        }
        Step::StartDelete { attempt, on_any_node } => {
            start_delete(context, content, observation, attempt, on_any_node).await
        }
        Step::RemoveFinalizer => remove_finalizer(context, content, observation).await,
        Step::DeleteContent => {
            writes.delete_content(content).await?;
            Ok(StepOutcome::End(Requeue::Done))
        }
    }
}

/// Takes a slot, and stamps the content with the attempt.
async fn stamp(
    context: &Context,
    content: &Content,
    observation: &Observation,
    attempt: u32,
    provenance: &SnapshotProvenance,
    confirmed: &mut Confirmed,
) -> Result<StepOutcome, WriteError> {
    let Ok(source) = &observation.source else { return Ok(StepOutcome::Wait) };
    let job = job::name(Operation::Snapshot, content.run_id(), attempt, "");
    // Another worker may have taken the slot since the decision.
    if !context.cluster.index_mut().acquire_slot(&job, &slot_request(content, source), &source.recipe) {
        return Ok(StepOutcome::Again);
    }
    let stamped = context.writes.stamp_content(content, attempt, provenance).await;
    if stamped.is_err() {
        context.cluster.update(|index| index.cancel_expectation(&job));
    }
    confirmed.fresh = true;
    Ok(stamped?.into())
}

async fn mark_ready(
    context: &Context,
    content: &Content,
    observation: &Observation,
    size: Option<u64>,
) -> Result<StepOutcome, WriteError> {
    let handle = handle_of_run(context, content, observation).await?;
    let now = context.clock.wall();
    let finished = context.writes.mark_content_ready(content, size, handle.as_deref(), now).await?;
    if content.handle.is_none() {
        context.metrics.snapshot_run(Operation::Snapshot, true);
        let stages = context.stages(Operation::Snapshot, content.run_id(), Some(content.created));
        tracing::info!(content = content.name, snapshot = %content.snapshot, stages, "the snapshot is ready");
    }
    Ok(finished.into())
}

/// Returns the handle that the snapshot run handed back. The watch of pods may lag behind that of Jobs. If the pod is
/// gone, its handle is, too, and the image says so when somebody restores the snapshot.
async fn handle_of_run(
    context: &Context,
    content: &Content,
    observation: &Observation,
) -> Result<Option<String>, WriteError> {
    let name = run_name(content);
    let Some(job) = observation.jobs.iter().find(|job| job.name.name == name) else { return Ok(None) };
    if let Some(handle) = handed_back(job, observation.pods.iter().map(Arc::as_ref)) {
        return Ok(handle);
    }
    let pods = context.writes.pods_of_run(Operation::Snapshot, &job.name.namespace, content.run_id()).await?;
    Ok(handed_back(job, &pods).flatten())
}

/// Asks the API server for the VolumeSnapshot of a content.
async fn read_snapshot_state(context: &Context, content: &Content) -> Result<SnapshotState, WriteError> {
    let found = context
        .writes
        .read_snapshot(&content.snapshot)
        .await?
        .filter(|s| content.snapshot_uid.as_ref() == Some(&s.uid));
    Ok(match found {
        Some(snapshot) if snapshot.terminating => SnapshotState::Terminating,
        Some(_) => SnapshotState::Alive,
        None => SnapshotState::NotFound,
    })
}

async fn remove_finalizer(
    context: &Context,
    content: &Content,
    observation: &Observation,
) -> Result<StepOutcome, WriteError> {
    // A run that has not certainly ended might still store something.
    if content.provenance.is_some() && !observation.is_deleting(content) {
        confirm_no_run(context, content, observation).await?;
    }
    context.writes.remove_content_finalizer(content).await?;
    if observation.is_deleting(content) {
        context.metrics.snapshot_run(Operation::DeleteSnapshot, true);
        let stages = context.stages(Operation::DeleteSnapshot, content.run_id(), None);
        tracing::info!(content = content.name, stages, "the stored snapshot is deleted");
    }
    Ok(StepOutcome::End(Requeue::Done))
}

/// Returns the target of a run for a content.
fn run_target(content: &Content, recipe: &Recipe, node: Option<&str>) -> RunTarget {
    RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: recipe.required_node(node).map(str::to_owned),
        content: Some(ContentRef {
            name: content.name.clone(),
            id: content.run_id().to_owned(),
            policy: Some(content.policy.clone()),
        }),
        ..RunTarget::default()
    }
}

async fn start(context: &Context, content: &Content, observation: &Observation) -> Result<StepOutcome, WriteError> {
    let (Ok(made_by), Some(claim), Some(volume)) = (&observation.made_by, &observation.claim, &observation.volume)
    else {
        return Ok(StepOutcome::Wait);
    };
    // No run reads a source on the word of a cache. The API must have the VolumeSnapshot and its source, and the source
    // must be protected.
    let snapshot = context.writes.read_snapshot(&content.snapshot).await?;
    let wanted = |snapshot: &Snapshot| content.snapshot_uid.as_ref() == Some(&snapshot.uid) && !snapshot.terminating;
    let fresh = context.writes.read_claim(&claim.name).await?;
    let kept = content.snapshot_uid.as_deref().map(names::source_finalizer);
    let is_kept = |fresh: &Claim| kept.as_ref().is_some_and(|kept| fresh.finalizers.contains(kept));
    let same = |fresh: &Claim| fresh.uid == claim.uid && is_kept(fresh);
    if !snapshot.as_ref().is_some_and(wanted) || !fresh.as_ref().is_some_and(same) {
        return Err(WriteError::Conflict(format!("the source of VolumeSnapshotContent {}", content.name)));
    }
    let source = context.writes.volume_source(volume).await?;
    let of =
        ClaimRef { namespace: claim.name.namespace.clone(), name: claim.name.name.clone(), uid: claim.uid.clone() };
    let run = AttemptStart { attempt: content.attempt, ts: context.timestamp() };
    let request = RunRequest {
        moved_in_path: volume.moved_in_path(),
        ..request(
            Operation::Snapshot,
            content,
            made_by,
            &context.identity,
            &context.kube_api,
            run,
            SourceVolume { claim: of, spec: source },
        )
    };
    let recipe = &made_by.recipe;
    let target = run_target(content, recipe, made_by.provenance.origin_node.as_deref());
    // The slot that was taken with the stamp is freed when no Job appears for a while.
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace).on(target.node.as_deref());
    if !context.acquire_slot(&run_name(content), &slot_request, recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    let refusal = match context.create_job(recipe, job::job(recipe, &request, &target), &[]).await {
        Ok(()) => {
            let image = context.image(recipe);
            let message = format!("snapshot run {}: image {image} of class {}", content.attempt, recipe.class);
            context.emit(
                ObjectRef::content(content),
                NewEvent { warning: false, reason: reason::CREATING_SNAPSHOT, message },
            );
            return Ok(StepOutcome::End(Requeue::JobCreated));
        }
        Err(error) => refused_job(error)?,
    };
    let decision = failed_start(content, &refusal, recipe, context.clock.now());
    context.decided(&ObjectRef::content_itself(content), decision.rule, &decision.step);
    decision.event.into_iter().for_each(|event| context.emit(ObjectRef::content(content), event));
    let Step::RecordFailure(failure) = decision.step else { return Ok(StepOutcome::Wait) };
    context.metrics.snapshot_run(Operation::Snapshot, false);
    Ok(context.writes.record_content_failure(content, &failure).await?.into())
}

impl Observation {
    /// Checks whether a delete-snapshot run has begun, and goes on. It begins only when no other run can be in progress.
    fn is_deleting(&self, content: &Content) -> bool {
        let name = delete_name(content, self);
        self.deletes.iter().any(|job| job.name.name == name && !job.terminating)
    }
}

/// Confirms that no Job or pod of a snapshot run exists that no watch has shown yet. It must not meet the deletion.
async fn confirm_no_run(context: &Context, content: &Content, observation: &Observation) -> Result<(), WriteError> {
    let Ok(SnapshotBasis { recipe, .. }) = &observation.made_by else { return Ok(()) };
    let of = Some(recipe.config.namespace.as_str());
    let known = RunObjects { jobs: &observation.jobs, pods: &observation.pods };
    match context.is_run_unseen(Operation::Snapshot, content.run_id(), of, known).await? {
        false => Ok(()),
        true => Err(WriteError::Conflict(format!("the runs of VolumeSnapshotContent {}", content.name))),
    }
}

async fn start_delete(
    context: &Context,
    content: &Content,
    observation: &Observation,
    attempt: u32,
    on_any_node: bool,
) -> Result<StepOutcome, WriteError> {
    let Ok(made_by) = &observation.made_by else { return Ok(StepOutcome::Wait) };
    // A stored snapshot must not be deleted on the word of a cache.
    let fresh = context.writes.read_content(&content.name).await?;
    if fresh.as_ref().is_none_or(|fresh| fresh.resource_version != content.resource_version) {
        return Err(WriteError::Conflict(format!("VolumeSnapshotContent {}", content.name)));
    }
    confirm_no_run(context, content, observation).await?;
    let recipe = &made_by.recipe;
    let origin = made_by.provenance.origin_node.as_deref();
    let scope = delete_scope(content, origin);
    let job = job::name(Operation::DeleteSnapshot, content.run_id(), attempt, &scope);
    let target = RunTarget { scope, ..run_target(content, recipe, origin.filter(|_| !on_any_node)) };
    let slot_request = SlotRequest::content(&content.name, &content.snapshot.namespace).to(Operation::DeleteSnapshot);
    if !context.acquire_slot(&job, &slot_request.on(target.node.as_deref()), recipe) {
        return Ok(StepOutcome::WaitForSlot);
    }
    let run = AttemptStart { attempt, ts: context.timestamp() };
    let request = request(
        Operation::DeleteSnapshot,
        content,
        made_by,
        &context.identity,
        &context.kube_api,
        run,
        Default::default(),
    );
    let last = content.last_failure.as_ref().filter(|failure| failure.operation == Operation::DeleteSnapshot);
    match start_delete_job(context, recipe, &request, target, last).await? {
        None => Ok(StepOutcome::End(Requeue::JobCreated)),
        Some(cause) => {
            let message = format!("delete-snapshot run {attempt}: {}", cause.message);
            let reason = reason::SNAPSHOT_DELETION_FAILED;
            context.emit(ObjectRef::content(content), NewEvent { warning: true, reason, message });
            context.metrics.snapshot_run(Operation::DeleteSnapshot, false);
            let failure =
                LastFailure::of_deleting_run(Operation::DeleteSnapshot, attempt, context.clock.now(), &cause, last);
            // A corrected config is tried at once.
            let failure = failure.with_recipe(recipe);
            Ok(context.writes.record_content_failure(content, &failure).await?.into())
        }
    }
}

/// Cleans up the Jobs of a content that is gone. A snapshot Job is left if its request arrived late, so that nobody opens it,
/// or if somebody has removed the content while its run was in progress: then its stored snapshot is deleted.
async fn clean_up(context: &Context, name: &str) -> Result<Requeue, WriteError> {
    let jobs = context.cluster.index().jobs_of_content(name);
    // The cache may be stale: the API is asked before a run is stopped.
    if jobs.iter().all(|job| job.terminating) || context.writes.read_content(name).await?.is_some() {
        return Ok(Requeue::Done);
    }
    let id = jobs[0].run_labels.id.clone();
    let pods = context.cluster.index().pods_of(&id);
    late_runs::reconcile(context, &Leftovers { id: &id, jobs: &jobs, pods: &pods, content: name }).await
}

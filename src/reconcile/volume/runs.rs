//! The parts that the runs of a volume share, above all in-place runs: expand and modify runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_contract::reason::Reason;
use flex_contract::request::RunRequest;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;
use flex_core::run::job::{self, RunTarget};
use flex_core::run::node::NodeStates;
use flex_core::run::request::AttemptStart;
use flex_core::run::slot_wait::NoSlot;
use flex_core::run::state::{JobRefusal, RunState};
use flex_core::run::view::{Job, has_running_pods};
use flex_core::volume::in_place_run::{InPlaceRun, InPlaceRuns};
use flex_core::volume::request::request;
use k8s_openapi::api::batch::v1 as batch;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, RunObjects, refused_job};
use crate::reconcile::drive::StepOutcome;
use crate::state::index::SlotRequest;

/// The basis of an in-place run.
#[derive(Clone, Copy)]
pub(super) struct RunBasis<'a> {
    /// The recipe of the volume's runs; or the reason why it cannot be read.
    pub recipe: &'a Result<Arc<Recipe>, String>,
    /// The node where the volume was made; `None` if runs of the class may be on any node.
    pub origin_node: Option<&'a str>,
}

/// A run that is ready to start.
pub(super) struct ReadyRun<'a> {
    pub operation: Operation,
    pub volume: &'a Volume,
    pub claim: &'a Claim,
    pub recipe: &'a Recipe,
    /// The node to which its pod is bound.
    pub node: Option<String>,
    pub job: batch::Job,
}

/// The writes of this reconcile that the cache may not show yet.
#[derive(Default)]
pub(super) struct Written {
    /// The claim as it was last written.
    pub claim: Option<Claim>,
    /// Jobs that were deleted.
    removed: BTreeSet<ObjectName>,
}

/// A run, as it was read.
struct ObservedRun {
    job: Job,
    state: RunState,
}

/// The data that were read about the runs of one operation for a volume. This type owns the data; [`InPlaceRuns`] is
/// the same as references, for the pure decision.
pub(super) struct Observation {
    all: Vec<ObservedRun>,
    is_starting: bool,
    nodes_with_pods_of_operation: Vec<String>,
    has_running_pods: bool,
    has_other_running_pods: bool,
}

/// Observes the runs of an operation for a volume.
pub(super) fn observe(
    context: &Context,
    volume: &Volume,
    operation: Operation,
    RunObjects { jobs, pods }: RunObjects<'_>,
    written: &Written,
) -> Observation {
    let is_of_operation =
        |job: &&Arc<Job>| job.run_labels.operation == operation && job.volume.as_deref() == Some(&volume.name);
    let with_state = |job: &Arc<Job>| {
        let terminating = job.terminating || written.removed.contains(&job.name);
        let state = context.run_state(jobs, pods, &job.name.name);
        ObservedRun { job: Job { terminating, ..(**job).clone() }, state }
    };
    let alive = pods.iter().filter(|pod| pod.run_labels.operation == operation && !pod.is_over());
    // A prefix is enough: by the observation, only one next run is possible.
    let expected = job::prefix(operation, volume.volume_id().unwrap_or_default());
    Observation {
        all: jobs.iter().filter(is_of_operation).map(with_state).collect(),
        is_starting: context.cluster.index().has_expectation(&expected),
        nodes_with_pods_of_operation: alive.filter_map(|pod| pod.node.clone()).collect(),
        has_running_pods: has_running_pods(pods, operation),
        has_other_running_pods: Operation::all()
            .any(|other| other != operation && other.writes_volume() && has_running_pods(pods, other)),
    }
}

impl Observation {
    /// Returns the runs, for [`Observation::observed`].
    pub(super) fn in_place_runs(&self) -> Vec<InPlaceRun<'_>> {
        self.all.iter().map(|run| InPlaceRun { job: &run.job, state: run.state.clone() }).collect()
    }

    /// Returns the observation for the decision.
    pub(super) fn observed<'a>(&'a self, runs: &'a [InPlaceRun<'a>], node_states: &'a NodeStates) -> InPlaceRuns<'a> {
        InPlaceRuns {
            all: runs,
            is_starting: self.is_starting,
            has_running_pods: self.has_running_pods,
            node_not_reachable: node_states.first_not_reachable(&self.nodes_with_pods_of_operation).map(String::as_str),
            has_other_running_pods: self.has_other_running_pods,
        }
    }

    /// Checks whether a run exists, or was started and is not visible yet.
    pub(super) fn exist(&self) -> bool {
        self.is_starting || !self.all.is_empty()
    }

    /// Deletes the Job of one of the runs.
    pub(super) async fn remove(
        &self,
        context: &Context,
        job: ObjectName,
        written: &mut Written,
    ) -> Result<StepOutcome<Volume>, WriteError> {
        if let Some(run) = self.all.iter().find(|run| run.job.name == job) {
            context.remove_run(&run.job).await?;
        }
        written.removed.insert(job);
        Ok(StepOutcome::Again)
    }
}

/// Confirms that the API has the volume as it was observed. A stale cache must not cause events about the past.
pub(super) async fn confirm_volume(context: &Context, volume: &Volume) -> Result<(), WriteError> {
    let fresh = context.writes.read_volume(&volume.name).await?;
    match fresh.is_some_and(|fresh| fresh.resource_version == volume.resource_version) {
        true => Ok(()),
        false => Err(WriteError::Conflict(format!("volume {}", volume.name))),
    }
}

/// Confirms that the API has the claim with the same request. Storage must not be changed on the word of a cache.
pub(super) async fn confirm_claim(
    context: &Context,
    claim: &Claim,
    same_request: impl Fn(&Claim) -> bool,
) -> Result<(), WriteError> {
    let fresh = context.writes.read_claim(&claim.name).await?;
    match fresh.is_some_and(|fresh| fresh.uid == claim.uid && !fresh.terminating && same_request(&fresh)) {
        true => Ok(()),
        false => Err(WriteError::Conflict(format!("claim {}", claim.name))),
    }
}

/// Takes a slot for a run, or emits an event that the claim waits for one. Returns whether the run can start.
pub(super) fn acquire_slot(context: &Context, run: &ReadyRun<'_>) -> bool {
    let operation = run.operation;
    let slot_request = SlotRequest::volume(run.volume, operation).on(run.node.as_deref());
    let name = run.job.metadata.name.as_deref().unwrap_or_default();
    if context.acquire_slot(name, &slot_request, run.recipe) {
        return true;
    }
    let why = context.cluster.index().no_slot(&slot_request, run.recipe).unwrap_or(NoSlot::Taken);
    let message = format!("the {operation} run waits: {}", why.text());
    context.emit(ObjectRef::claim(run.claim), NewEvent { warning: false, reason: reason::LIMIT_REACHED, message });
    false
}

/// Creates the Job of a run, and emits an event on the claim. Returns the refusal, if any.
pub(super) async fn create(
    context: &Context,
    run: ReadyRun<'_>,
    reason: &'static Reason,
    message: String,
) -> Result<Option<JobRefusal>, WriteError> {
    match context.create_job(run.recipe, run.job, &[]).await {
        Ok(()) => {
            context.emit(ObjectRef::claim(run.claim), NewEvent { warning: false, reason, message });
            Ok(None)
        }
        Err(error) => refused_job(error).map(Some),
    }
}

/// Returns the request of a run that begins now. `source` is the volume source as JSON.
pub(super) fn request_of(
    context: &Context,
    volume: &Volume,
    node: Option<&str>,
    recipe: &Recipe,
    attempt: u32,
    source: String,
) -> RunRequest {
    let start = AttemptStart { attempt, ts: context.timestamp() };
    request(volume, node, recipe, &context.identity, &context.kube_api, start, source)
}

/// Returns where the Job of a run belongs. `wanted` is the size or the attributes as text: each has Jobs of its own, so
/// that the success of one never counts for another.
pub(super) fn run_target(volume: &Volume, recipe: &Recipe, node: Option<&str>, wanted: &str) -> RunTarget {
    RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: recipe.required_node(node).map(str::to_owned),
        scope: format!("{}-{wanted}", volume.uid),
        volume: Some(volume.name.clone()),
        ..RunTarget::default()
    }
}

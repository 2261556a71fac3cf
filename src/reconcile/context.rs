//! The common part of the reconcilers: the services that they call, and the steps on the Job of a run.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_contract::cause;
use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::config::Recipe;
use flex_core::config::classes::{ClassLookup, Identity};
use flex_core::config::effective_config::hash_of;
use flex_core::model::object_ref::ObjectRef;
use flex_core::rules::Rule;
use flex_core::run::state::{Cause, JobRefusal, RunState, state};
use flex_core::run::stuck::StuckReason;
use flex_core::run::times;
use flex_core::run::view::{Job, Pod};

use crate::api::events::EventRecorder;
use crate::api::writes::{WriteError, Writes};
use crate::clock::Clock;
use crate::last_hour::LastHour;
use crate::metrics::Metrics;
use crate::reconcile::memory::{RateLimit, Sweep};
use crate::state::ClusterState;
use crate::state::index::{EXPECTATION_TIMEOUT, Index, SlotRequest, WorkItem};

/// The services that a worker needs.
pub struct Context {
    /// The names of the orchestrator.
    pub identity: Identity,
    /// The cache and the queue.
    pub cluster: ClusterState,
    /// The writes to the cluster.
    pub writes: Writes,
    /// The recorder of events.
    pub events: EventRecorder,
    /// The metrics.
    pub metrics: Metrics,
    /// The address that images get as `KUBE_API`.
    pub kube_api: String,
    /// The clock.
    pub clock: Clock,
    /// The claims that were bound within the last hour.
    pub last_hour: LastHour,
    /// The state of the search for findings.
    pub sweep: Sweep,
    pub(super) capacity: RateLimit,
    /// Held while the delete runs of the API are compared with those of the cache.
    pub(super) comparing_deletions: tokio::sync::Mutex<()>,
    failures: Mutex<HashMap<WorkItem, u32>>,
    faults: Mutex<HashMap<WorkItem, Fault>>,
}

/// The longest time between two failures of a write that count as one. In between a Job that the API server may have
/// created is awaited, or a reconcile waits for its next try and times out again.
const SAME_FAULT: Duration = Duration::from_secs(120);

/// A fault of the API server or of a webhook that an item has met, with times as [`Clock::passed`] tells them.
struct Fault {
    words: String,
    since: Duration,
    last: Duration,
}

/// The Jobs and pods of an id, as the cache has them.
#[derive(Clone, Copy)]
pub(super) struct RunObjects<'a> {
    pub jobs: &'a [Arc<Job>],
    pub pods: &'a [Arc<Pod>],
}

/// The result of a reconcile.
#[derive(Debug)]
pub enum Requeue {
    /// Nothing is to be done until the next event.
    Done,
    /// The cache is stale, and nothing was decided. The item's event requeues it, or a delay.
    CacheStale,
    /// A Job was created. Its event requeues the item, or a delay.
    JobCreated,
    /// There is no free slot. The item's turn requeues it, or a delay.
    WaitingForSlot,
    /// The item is requeued after this time, whatever happens.
    After(Duration),
}

impl Context {
    /// Makes a context without any failures.
    pub fn new(
        identity: Identity,
        cluster: ClusterState,
        writes: Writes,
        events: EventRecorder,
        metrics: Metrics,
        kube_api: String,
        clock: Clock,
    ) -> Arc<Self> {
        let (last_hour, sweep, capacity, comparing_deletions, failures, faults) = Default::default();
        Arc::new(Context {
            identity,
            cluster,
            writes,
            events,
            metrics,
            kube_api,
            clock,
            last_hour,
            sweep,
            capacity,
            comparing_deletions,
            failures,
            faults,
        })
    }

    pub(super) fn emit(&self, about: ObjectRef, event: flex_core::rules::NewEvent) {
        let flex_core::rules::NewEvent { warning, reason, message } = event;
        self.events.emit(about, warning, reason, message);
    }

    /// Records the decision about an object, by the name of its rule, in the log and in the metric.
    pub(super) fn decided<R: Rule>(&self, about: &impl Display, rule: R, step: &R::Step) {
        tracing::debug!(object = R::OBJECT, %about, rule = rule.name(), run = rule.target(), ?step, "decided");
        self.metrics.decided(rule);
    }

    /// Returns the state of a volume id's run, by the name of its Job.
    pub(super) fn run_state(&self, jobs: &[Arc<Job>], pods: &[Arc<Pod>], name: &str) -> RunState {
        let job = jobs.iter().find(|job| job.name.name == name).map(Arc::as_ref);
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).filter(|pod| pod.job == name).collect();
        let uids = job.map(|job| job.uid.as_str()).into_iter().chain(pods.iter().map(|pod| pod.uid.as_str()));
        let index = self.cluster.index();
        let warning_events = index.warning_events_of(uids);
        let warning_events: Vec<_> = warning_events.iter().map(Arc::as_ref).collect();
        match state(job, &pods, &warning_events) {
            RunState::NotCached if index.is_expected(name) => RunState::MayBeRunning,
            state => {
                let node = job.and_then(|job| index.node(job.node.as_ref()?));
                let state = state.with_taints_of(node.as_deref());
                match job {
                    Some(job) => with_lost_node(&index, job, state),
                    None => state,
                }
            }
        }
    }

    /// Returns the stages of the last run of an operation for an id, as the log has them. `wanted` is the time since when
    /// the run was wanted, in seconds since 1970.
    pub(super) fn stages(&self, operation: Operation, id: &str, wanted: Option<i64>) -> String {
        let index = self.cluster.index();
        let (jobs, pods) = (index.jobs_of(id), index.pods_of(id));
        let jobs: Vec<_> = jobs.iter().filter(|job| job.run_labels.operation == operation).collect();
        let pods: Vec<_> = pods.iter().filter(|pod| pod.run_labels.operation == operation).collect();
        times::line(&times::stages(wanted, &jobs, &pods))
    }

    /// Takes a slot of the class for a run whose Job will have this name. Returns whether there was one. Without a free
    /// slot the item joins the queue, and its reconcile ends with [`Requeue::WaitingForSlot`].
    pub(super) fn acquire_slot(&self, job: &str, slot_request: &SlotRequest, recipe: &Recipe) -> bool {
        if self.cluster.index_mut().acquire_slot(job, slot_request, recipe) {
            return true;
        }
        tracing::debug!(job, "waits for a slot");
        self.cluster.update(|index| index.wait_for_slot(slot_request, recipe));
        false
    }

    /// Returns the image of a recipe's runs.
    pub(super) fn image<'a>(&'a self, recipe: &'a Recipe) -> &'a str {
        match recipe.image.as_str() {
            "" => self.identity.shell_image.as_deref().unwrap_or_default(),
            image => image,
        }
    }

    /// Checks whether the API has a Job or pod of an id's run that the watches have not shown yet. It looks in a config
    /// namespace, or in all if the run's is not known.
    pub(super) async fn is_run_unseen(
        &self,
        operation: Operation,
        id: &str,
        namespace: Option<&str>,
        known: RunObjects<'_>,
    ) -> Result<bool, WriteError> {
        let observed =
            |uid: &String| known.jobs.iter().any(|job| job.uid == *uid) || known.pods.iter().any(|pod| pod.uid == *uid);
        let namespaces = self.identity.config_namespaces.iter();
        for namespace in namespaces.filter(|other| namespace.is_none_or(|of| of == other.as_str())) {
            if !self.writes.runs(operation, namespace, id).await?.iter().all(observed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the time of a run, as RFC 3339 with microseconds. It differs with each attempt.
    pub(super) fn timestamp(&self) -> String {
        format!("{:.6}", self.clock.wall())
    }

    /// Returns the present recipe of a class.
    pub(super) fn class_recipe(&self, class: &str) -> Option<Arc<Recipe>> {
        match self.cluster.index().classes().lookup(class) {
            ClassLookup::Ours(class) => class.recipe.as_ref().ok().cloned(),
            _ => None,
        }
    }

    /// Returns the recipe of Jobs that are known by their labels.
    pub(super) fn recipe_of_jobs(&self, jobs: &[Arc<Job>]) -> Option<Arc<Recipe>> {
        let index = self.cluster.index();
        jobs.iter()
            .filter(|job| hash_of(&job.recipe_version).is_some())
            .find_map(|job| index.recipe(&job.recipe_version))
    }

    /// Returns the present time in the form of a status.
    pub(super) fn time_in_status(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Waits for the next event. Ends at the decided time, and earlier if a new Job must be visible then whose name has
    /// one of these prefixes.
    pub(super) fn wait(&self, requeue_at: Option<i64>, jobs: &[String]) -> Requeue {
        let index = self.cluster.index();
        let decided = requeue_at.map(|at| Duration::from_secs(at.saturating_sub(self.clock.now()).max(1) as u64));
        let expected = jobs.iter().any(|job| index.has_expectation(job)).then_some(EXPECTATION_TIMEOUT);
        decided.into_iter().chain(expected).min().map_or(Requeue::Done, Requeue::After)
    }

    pub(super) fn retry_after(&self, item: &WorkItem) -> Duration {
        let mut failures = self.failures.lock().expect("no code panics while it holds the failures");
        let count = failures.entry(item.clone()).or_default();
        *count += 1;
        Duration::from_millis(200).saturating_mul(1 << (*count - 1).min(8)).min(Duration::from_secs(30))
    }

    /// Records that the API server has failed a write of an item with these words. Returns the time since when it does.
    pub(super) fn failing_for(&self, item: &WorkItem, words: &str) -> Duration {
        let now = self.clock.passed();
        let mut faults = self.faults.lock().expect("no code panics while it holds the faults");
        faults.retain(|_, fault| now.saturating_sub(fault.last) < SAME_FAULT);
        let new = || Fault { words: words.to_owned(), since: now, last: now };
        let fault = faults.entry(item.clone()).or_insert_with(new);
        if fault.words != words {
            *fault = new();
        }
        fault.last = now;
        now.saturating_sub(fault.since)
    }

    pub(super) fn succeeded(&self, item: &WorkItem) {
        self.failures.lock().expect("no code panics while it holds the failures").remove(item);
    }
}

/// Says that the node of a run is lost, if the run changes a volume and its pod fits on no node. Else the reader would look
/// for an error in the config.
fn with_lost_node(index: &Index, job: &Job, state: RunState) -> RunState {
    let changes = [Operation::Expand, Operation::Modify].iter().any(|operation| job.run_labels.operation == *operation);
    match (state, &job.volume) {
        (RunState::Stuck { cause, since }, Some(volume))
            if changes && StuckReason::of(&cause.reason, "") == StuckReason::Unschedulable =>
        {
            let node_states = index.node_states(job.node.iter());
            let message = node_states.why_change_is_stuck(job.node.as_deref(), volume, &cause.message);
            RunState::Stuck { cause: Cause::new(cause.reason, message), since }
        }
        (state, _) => state,
    }
}

/// Returns the refusal of a run whose Job cannot be created. The reason is a quota, admission, a
/// namespace that is gone, or a Job that the API server rejects as invalid.
///
/// # Errors
/// If any other error occurred: the Job may exist.
pub(super) fn refused_job(error: WriteError) -> Result<JobRefusal, WriteError> {
    let (reaction, why) = match error {
        WriteError::Refused { message, invalid: true, .. } => (Reaction::Never, message),
        WriteError::Refused { message, .. } | WriteError::NotFound { message, .. } => (Reaction::Retry, message),
        WriteError::Incomplete { message, .. } => {
            return Ok(JobRefusal { cause: Cause::new(cause::SCRIPT_LOST, message), reaction: Reaction::Retry });
        }
        error => return Err(error),
    };
    let cause = Cause::new(cause::JOB_REFUSED, format!("Kubernetes refuses the provisioner's Job: {why}"));
    Ok(JobRefusal { cause, reaction })
}

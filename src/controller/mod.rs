//! The reconcilers: workers take items from the queue, observe the cache, call the pure decision, and take its step.

mod batches;
mod capacity;
mod changes;
pub mod claims;
pub mod configs;
mod contents;
mod copies;
mod deletes;
mod expansion;
mod late;
mod markers;
mod modification;
mod pools;
mod snapshots;
pub mod sweep;
pub mod volumes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::exit::Failure;
use contract::request::Operation;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::clock::Clock;
use crate::cluster::events::{About, Events};
use crate::cluster::index::{Asker, BEHIND, EXPECTED, Key};
use crate::cluster::watch::Shared;
use crate::cluster::writes::{WriteError, Writes};
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::metrics::Metrics;
use crate::run::state::{Cause, RunState, state};
use crate::run::view::{Job, Pod};

/// The number of items that are reconciled at one time.
const WORKERS: usize = 64;
/// The longest time of a reconcile with all its steps. Then it is requeued.
const PATIENCE: Duration = Duration::from_secs(60);
/// The delay of an item in the fair queue. Normally it is requeued when its turn comes; this is for the case that items
/// before it have left.
const IN_LINE: Duration = Duration::from_secs(30);
/// The largest number of steps in a reconcile. A healthy claim needs five.
const STEPS: usize = 16;

/// The services that a worker needs.
pub struct Context {
    /// The names of the orchestrator.
    pub identity: Identity,
    /// The cache and the queue.
    pub shared: Shared,
    /// The writes to the cluster.
    pub writes: Writes,
    /// The recorder of events.
    pub events: Events,
    /// The metrics.
    pub metrics: Metrics,
    /// The address that images get as `KUBE_API`.
    pub kube_api: String,
    /// The clock.
    pub clock: Clock,
    /// The state of the search for findings.
    pub sweep: sweep::Sweep,
    capacity: capacity::Pace,
    failures: Mutex<HashMap<Key, u32>>,
}

/// The result of a reconcile.
#[derive(Debug)]
pub enum Pass {
    /// Nothing is to be done until the next event.
    Done,
    /// The cache is stale, and nothing was decided. The item's event requeues it, or a delay.
    Behind,
    /// A Job was created. Its event requeues the item, or a delay.
    Started,
    /// There is no free slot. The item's turn requeues it, or a delay.
    InLine,
    /// The item is requeued after this time, whatever happens.
    After(Duration),
}

impl Context {
    /// Makes a context without any failures.
    pub fn new(
        identity: Identity,
        shared: Shared,
        writes: Writes,
        events: Events,
        metrics: Metrics,
        kube_api: String,
        clock: Clock,
    ) -> Arc<Self> {
        let (sweep, capacity, failures) = Default::default();
        Arc::new(Context { identity, shared, writes, events, metrics, kube_api, clock, sweep, capacity, failures })
    }

    /// Reconciles a work item. The future is boxed, so that it is compiled here only, and not also where it is awaited.
    pub fn pass<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Pass, WriteError>> {
        if self.shared.index().is_behind(key) {
            return std::future::ready(Ok(Pass::Behind)).boxed();
        }
        match key {
            Key::Configs => configs::pass(self).boxed(),
            Key::Claim(name) => claims::pass(self, name).boxed(),
            Key::Volume(name) => volumes::pass(self, name).boxed(),
            Key::Batch(name) => batches::pass(self, name).boxed(),
            Key::Snapshot(name) => snapshots::pass(self, name).boxed(),
            Key::Content(name) => contents::pass(self, name).boxed(),
            Key::Markers => markers::pass(self).boxed(),
            Key::Pool(class) => pools::pass(self, class).boxed(),
            Key::Orphans => sweep::pass(self).boxed(),
            Key::Capacity => capacity::pass(self).boxed(),
        }
    }

    fn tell(&self, about: About, tell: crate::decision::Tell) {
        let crate::decision::Tell { warning, reason, message } = tell;
        self.events.tell(about, warning, reason, message);
    }

    /// Returns the state of a volume id's run, by the name of its Job.
    fn run_state(&self, jobs: &[Arc<Job>], pods: &[Arc<Pod>], name: &str) -> RunState {
        let job = jobs.iter().find(|job| job.name.name == name).map(Arc::as_ref);
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).filter(|pod| pod.job == name).collect();
        let uids = job.map(|job| job.uid.as_str()).into_iter().chain(pods.iter().map(|pod| pod.uid.as_str()));
        let index = self.shared.index();
        let complaints = index.complaints_about(uids);
        let complaints: Vec<_> = complaints.iter().map(Arc::as_ref).collect();
        match state(job, &pods, &complaints) {
            RunState::Absent if index.is_expected(name) => RunState::Running,
            state => state,
        }
    }

    /// Takes a slot of the class for a run whose Job will have this name. Without a free slot the item joins the queue,
    /// and its reconcile ends with the returned value.
    fn wait_for_place(&self, job: &str, asker: &Asker, recipe: &Recipe) -> Option<Pass> {
        if self.shared.index().reserve(job, asker, recipe) {
            return None;
        }
        tracing::debug!(job, "waits for a place");
        self.shared.change(|index| index.stand_in_line(asker, recipe));
        Some(Pass::InLine)
    }

    /// Creates the Job of a run. Until the watch shows the Job, it does not count as absent.
    async fn create_job(&self, job: &k8s_openapi::api::batch::v1::Job) -> Result<(), WriteError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        // The expectation begins before the Job exists, because the watch may be faster than the answer.
        self.shared.index().expect_job(name);
        let created = self.writes.create_job(job).await;
        // After any other error the Job may exist.
        if matches!(created, Err(WriteError::Refused { .. } | WriteError::NotFound { .. } | WriteError::Foreign(_))) {
            self.shared.change(|index| index.forget_expected(name));
        }
        created
    }

    /// Checks whether the API has a Job or pod of an id's run that the watches have not shown yet. It looks in a config
    /// namespace, or in all if the run's is not known.
    async fn is_run_unseen(
        &self,
        operation: Operation,
        id: &str,
        namespace: Option<&str>,
        (jobs, pods): (&[Arc<Job>], &[Arc<Pod>]),
    ) -> Result<bool, WriteError> {
        let seen = |uid: &String| jobs.iter().any(|job| job.uid == *uid) || pods.iter().any(|pod| pod.uid == *uid);
        let namespaces = self.identity.config_namespaces.iter();
        for namespace in namespaces.filter(|other| namespace.is_none_or(|of| of == other.as_str())) {
            if !self.writes.runs(operation, namespace, id).await?.iter().all(seen) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the present time in the form of a status.
    fn time_in_status(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Waits for the next event. Ends at the decided time, or when a new Job must be visible whose name has one of
    /// these prefixes.
    fn wait(&self, wake_at: Option<i64>, jobs: &[String]) -> Pass {
        let index = self.shared.index();
        match wake_at {
            None if jobs.iter().any(|job| index.is_any_expected(job)) => Pass::After(EXPECTED),
            None => Pass::Done,
            Some(at) => Pass::After(Duration::from_secs((at - self.clock.now()).max(1) as u64)),
        }
    }

    /// Emits an event about a refused write, where its reader looks. The write is repeated, but somebody must act.
    fn tell_refused(&self, key: &Key, error: &WriteError) {
        let index = self.shared.index();
        let (about, reason) = match key {
            Key::Claim(name) => match index.claim(name) {
                Some(claim) => (claims::about(&claim), contract::names::reason::PROVISIONING_FAILED),
                None => return,
            },
            Key::Volume(name) => match index.volume(name) {
                Some(volume) => (volumes::about(&volume), contract::names::reason::VOLUME_FAILED_DELETE),
                None => return,
            },
            Key::Snapshot(name) => match index.snapshot(name) {
                Some(snapshot) => (snapshots::about(&snapshot), contract::names::reason::SNAPSHOT_FAILED),
                None => return,
            },
            Key::Content(name) => match index.content(name) {
                Some(content) => (contents::about(&content), contract::names::reason::SNAPSHOT_FAILED),
                None => return,
            },
            Key::Configs | Key::Batch(_) | Key::Markers | Key::Pool(_) | Key::Orphans | Key::Capacity => return,
        };
        self.events.tell(about, true, reason, format!("Kubernetes refuses a write of the provisioner: {error}"));
    }

    /// Returns the latest time of the next reconcile after one of an item. `None` as its outcome means that it timed
    /// out because the API server did not answer.
    pub fn again(&self, key: &Key, outcome: Option<Result<Pass, WriteError>>) -> Option<Duration> {
        match outcome {
            Some(Ok(pass)) => {
                if !matches!(pass, Pass::Behind) {
                    self.succeeded(key);
                }
                match pass {
                    Pass::Done => None,
                    Pass::Behind => Some(BEHIND),
                    Pass::After(delay) => Some(delay),
                    Pass::Started => Some(EXPECTED),
                    Pass::InLine => Some(IN_LINE),
                }
            }
            // This happens all the time: somebody else wrote first. The event of that write requeues the item; the
            // delay is for the case that the event came before the refusal.
            Some(Err(WriteError::Conflict(what))) => {
                tracing::debug!(what, "changed meanwhile");
                self.metrics.errors("conflict");
                Some(Duration::from_millis(200))
            }
            Some(Err(error)) => {
                let delay = self.retry_after(key).max(error.retry_after().unwrap_or_default());
                self.metrics.errors(error.category());
                if matches!(error, WriteError::Refused { .. } | WriteError::Foreign(_)) {
                    self.tell_refused(key, &error);
                }
                tracing::warn!(?key, %error, ?delay, "a step failed and is repeated");
                Some(delay)
            }
            None => {
                let delay = self.retry_after(key);
                self.metrics.errors("timeout");
                tracing::warn!(?key, ?delay, "the API server did not answer in time; the step is repeated");
                Some(delay)
            }
        }
    }

    fn retry_after(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock().expect("no code panics while it holds the failures");
        let count = failures.entry(key.clone()).or_default();
        *count += 1;
        Duration::from_millis(200).saturating_mul(1 << (*count - 1).min(8)).min(Duration::from_secs(30))
    }

    fn succeeded(&self, key: &Key) {
        self.failures.lock().expect("no code panics while it holds the failures").remove(key);
    }
}

/// Returns the cause and the reaction for a run whose Job cannot be created. The reason is a quota, admission, a
/// namespace that is gone, or a Job that the API server rejects as invalid.
///
/// # Errors
/// If any other error occurred: the Job may exist.
fn refused_job(error: WriteError) -> Result<(Failure, Cause), WriteError> {
    let (kind, why) = match error {
        WriteError::Refused { message, invalid: true, .. } => (Failure::Never, message),
        WriteError::Refused { message, .. } | WriteError::NotFound { message, .. } => (Failure::Retry, message),
        error => return Err(error),
    };
    Ok((kind, Cause::new("JobRefused", format!("Kubernetes refuses the provisioner's Job: {why}"))))
}

/// Starts the workers. They work while the queue is not paused.
pub fn start(context: &Arc<Context>) {
    for _ in 0..WORKERS {
        let context = context.clone();
        tokio::spawn(async move {
            loop {
                let key = context.shared.queue.next().await;
                work(&context, &key).await;
                context.shared.queue.done(&key);
            }
        });
    }
}

async fn work(context: &Context, key: &Key) {
    let outcome = tokio::time::timeout(PATIENCE, context.pass(key)).await.ok();
    if let Some(delay) = context.again(key, outcome) {
        context.shared.queue.add_after(key.clone(), delay);
    }
}

//! `observe → decide → act`: workers take keys from the queue, look at the index, ask the pure
//! decision, and carry out its step.

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

/// Keys that are decided at one time.
const WORKERS: usize = 64;
/// A decision with all its steps takes no longer; then it starts anew.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who stands in line is woken when its turn has come; this is for the case that others before it have left.
const IN_LINE: Duration = Duration::from_secs(30);
/// Steps of one pass; a healthy claim needs five.
const STEPS: usize = 16;

/// All that a worker needs.
pub struct Context {
    /// Who we are.
    pub identity: Identity,
    /// What is known of the cluster.
    pub shared: Shared,
    /// What is written to it.
    pub writes: Writes,
    /// What is told.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
    /// The address that images get as `KUBE_API`.
    pub kube_api: String,
    /// What time it is.
    pub clock: Clock,
    /// What was found left over.
    pub sweep: sweep::Sweep,
    capacity: capacity::Pace,
    failures: Mutex<HashMap<Key, u32>>,
}

/// What a pass over one key left.
#[derive(Debug)]
pub enum Pass {
    /// All is done until the next event.
    Done,
    /// Nothing was decided: its event, or a while without one, decides.
    Behind,
    /// A Job was created: its event decides again, or a while without one.
    Started,
    /// There is no place for its run: its turn decides again, or a while without one.
    InLine,
    /// To be decided again after this time, whatever happens.
    After(Duration),
}

impl Context {
    /// A context with nothing failed yet.
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

    /// One pass over a key. In a box, so that it is compiled here alone, and not where it is awaited as well.
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

    /// What became of a run of a volume id, by the name of its Job.
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

    /// Takes a place of the class for a run whose Job will have this name. Where there is none, who asks stands in line, and its
    /// pass ends with what is returned.
    fn wait_for_place(&self, job: &str, asker: &Asker, recipe: &Recipe) -> Option<Pass> {
        if self.shared.index().reserve(job, asker, recipe) {
            return None;
        }
        tracing::debug!(job, "waits for a place");
        self.shared.change(|index| index.stand_in_line(asker, recipe));
        Some(Pass::InLine)
    }

    /// Creates the Job of a run, and does not take it for absent until the watch shows it.
    async fn create_job(&self, job: &k8s_openapi::api::batch::v1::Job) -> Result<(), WriteError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        // Before the Job exists: the watch may be faster than the answer.
        self.shared.index().expect_job(name);
        let created = self.writes.create_job(job).await;
        // After any other error it may have been created all the same.
        if matches!(created, Err(WriteError::Refused { .. } | WriteError::NotFound { .. } | WriteError::Foreign(_))) {
            self.shared.change(|index| index.forget_expected(name));
        }
        created
    }

    /// Whether the API has a Job or pod of a run under an id that the watches have not shown yet: in a config namespace, or
    /// in any where the run's is not known.
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

    /// The time as it stands in a status.
    fn time_in_status(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Waits for the next event; at the latest until the time that was decided, or until a created
    /// Job must have been seen, whose name begins as one of these.
    fn wait(&self, wake_at: Option<i64>, jobs: &[String]) -> Pass {
        let index = self.shared.index();
        match wake_at {
            None if jobs.iter().any(|job| index.is_any_expected(job)) => Pass::After(EXPECTED),
            None => Pass::Done,
            Some(at) => Pass::After(Duration::from_secs((at - self.clock.now()).max(1) as u64)),
        }
    }

    /// A refused write is told where its reader looks; it is repeated, but somebody has to help.
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

    /// When a key is decided again at the latest, after a pass over it. None as its outcome: it was
    /// broken off, because the API server did not answer.
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
            // Everyday life: somebody else wrote first. The event of that write decides anew; the
            // alarm is for the case that it came before our write was refused.
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

/// Why a Job cannot be created, and what follows for its run: for quota, admission, a namespace that is gone, and a Job that
/// the API server takes for malformed.
///
/// # Errors
/// Any other error says that nobody knows: the Job may exist.
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

//! What the reconcilers share: the services that they call, and what they do with a run's Job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::exit::Failure;
use contract::request::Operation;

use crate::api::events::{About, Events};
use crate::api::writes::{WriteError, Writes};
use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::classes::{Identity, Lookup};
use crate::config::record::hash_of;
use crate::metrics::Metrics;
use crate::reconcile::memory::{Pace, Sweep};
use crate::run::state::{Cause, RunState, state};
use crate::run::view::{Job, Pod};
use crate::state::Shared;
use crate::state::index::{Asker, EXPECTED, Key};

/// Steps of one pass; a healthy claim needs five.
pub(super) const STEPS: usize = 16;

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
    pub sweep: Sweep,
    pub(super) capacity: Pace,
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

    pub(super) fn tell(&self, about: About, tell: crate::decision::Tell) {
        let crate::decision::Tell { warning, reason, message } = tell;
        self.events.tell(about, warning, reason, message);
    }

    /// What became of a run of a volume id, by the name of its Job.
    pub(super) fn run_state(&self, jobs: &[Arc<Job>], pods: &[Arc<Pod>], name: &str) -> RunState {
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
    pub(super) fn wait_for_place(&self, job: &str, asker: &Asker, recipe: &Recipe) -> Option<Pass> {
        if self.shared.index().reserve(job, asker, recipe) {
            return None;
        }
        tracing::debug!(job, "waits for a place");
        self.shared.change(|index| index.stand_in_line(asker, recipe));
        Some(Pass::InLine)
    }

    /// Creates the Job of a run, and does not take it for absent until the watch shows it.
    pub(super) async fn create_job(&self, job: &k8s_openapi::api::batch::v1::Job) -> Result<(), WriteError> {
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
    pub(super) async fn is_run_unseen(
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

    /// The time of a run, as RFC 3339 with microseconds: it differs with every attempt.
    pub(super) fn timestamp(&self) -> String {
        format!("{:.6}", self.clock.wall())
    }

    /// The recipe of a class as it is now.
    pub(super) fn class_recipe(&self, class: &str) -> Option<Arc<Recipe>> {
        match self.shared.index().classes().lookup(class) {
            Lookup::Ours(class) => class.recipe.as_ref().ok().cloned(),
            _ => None,
        }
    }

    /// The recipe of a Job that is known by its labels.
    pub(super) fn recipe_of_jobs(&self, jobs: &[Arc<Job>]) -> Option<Arc<Recipe>> {
        let index = self.shared.index();
        jobs.iter().filter(|job| hash_of(&job.config).is_some()).find_map(|job| index.recipe(&job.config))
    }

    /// The time as it stands in a status.
    pub(super) fn time_in_status(&self) -> String {
        self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Waits for the next event; at the latest until the time that was decided, or until a created
    /// Job must have been seen, whose name begins as one of these.
    pub(super) fn wait(&self, wake_at: Option<i64>, jobs: &[String]) -> Pass {
        let index = self.shared.index();
        match wake_at {
            None if jobs.iter().any(|job| index.is_any_expected(job)) => Pass::After(EXPECTED),
            None => Pass::Done,
            Some(at) => Pass::After(Duration::from_secs((at - self.clock.now()).max(1) as u64)),
        }
    }

    pub(super) fn retry_after(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock().expect("no code panics while it holds the failures");
        let count = failures.entry(key.clone()).or_default();
        *count += 1;
        Duration::from_millis(200).saturating_mul(1 << (*count - 1).min(8)).min(Duration::from_secs(30))
    }

    pub(super) fn succeeded(&self, key: &Key) {
        self.failures.lock().expect("no code panics while it holds the failures").remove(key);
    }
}

/// Why a Job cannot be created, and what follows for its run: for quota, admission, a namespace that is gone, and a Job that
/// the API server takes for malformed.
///
/// # Errors
/// Any other error says that nobody knows: the Job may exist.
pub(super) fn refused_job(error: WriteError) -> Result<(Failure, Cause), WriteError> {
    let (kind, why) = match error {
        WriteError::Refused { message, invalid: true, .. } => (Failure::Never, message),
        WriteError::Refused { message, .. } | WriteError::NotFound { message, .. } => (Failure::Retry, message),
        error => return Err(error),
    };
    Ok((kind, Cause::new("JobRefused", format!("Kubernetes refuses the provisioner's Job: {why}"))))
}

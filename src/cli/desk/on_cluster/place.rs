//! A cluster as the place of runs: each run is a Job, which the orchestrator's own functions have built.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flex_contract::listing;
use flex_contract::names::{CONTAINER, LABEL_INSTANCE, VOLUME_FINALIZER};
use flex_desk::conformance::clean::{delete_storage, listed};
use flex_desk::conformance::leftovers::Leftovers;
use flex_desk::conformance::place::{Pending, Place};
use flex_desk::desk::{DeskError, Ended, Stop};
use flex_desk::setting::Setting;
use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::pod::{Progress, killed, progress};
use crate::api::watch::warning_event;
use crate::run::view;

/// The time between two reads of a run.
const POLL: Duration = Duration::from_millis(250);
/// The time after which a pod that does not start ends the command.
const STUCK: Duration = Duration::from_secs(30);
/// The time that a run has beyond the `timeout` of its config.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a deleted object must be gone.
const GONE: Duration = Duration::from_secs(60);
/// The grace period of a pod that is killed, in seconds. Without one, the pod's object would be gone before its processes.
const KILL_GRACE: u32 = 1;

/// The runs of one call of the command.
pub(super) struct OnCluster {
    client: Client,
    kube_api: String,
    setting: Setting,
    id: String,
    attempts: Cell<u32>,
    left: RefCell<Leftovers>,
}

impl OnCluster {
    /// Makes the place. `id` has eight hexadecimal digits.
    pub fn new(client: Client, kube_api: String, setting: Setting, id: String) -> Self {
        OnCluster { client, kube_api, setting, id, attempts: Cell::new(0), left: RefCell::default() }
    }

    fn namespace(&self) -> &str {
        &self.setting.recipe.config.namespace
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Returns the selector of all objects of this call.
    pub fn selector(&self) -> String {
        format!("{LABEL_INSTANCE}={}", self.setting.identity.instance)
    }

    fn ours(&self) -> ListParams {
        ListParams::default().labels(&self.selector())
    }

    fn next(&self) -> u32 {
        self.attempts.set(self.attempts.get() + 1);
        self.attempts.get()
    }

    /// Creates a Job, and follows it until it ends or something stops it. Deletes it then.
    async fn follow_job(&self, setting: &Setting, mut job: Job, stop: Stop<'_>) -> Result<Ended, DeskError> {
        // The Job of a list run has a name by its time, which is the same for all of these runs.
        let name = format!("{}-{}", job.metadata.name.unwrap_or_default(), self.next());
        job.metadata.name = Some(name.clone());
        let created = self.jobs().create(&PostParams::default(), &job).await;
        created.map_err(|error| broken(&format!("the Job {}/{name} cannot be created", self.namespace()), &error))?;
        let began = Instant::now();
        let limit = setting.recipe.timeout.saturating_add(START_TIMEOUT);
        let ended = match stop {
            Stop::Never => self.followed(&name, began, limit).await,
            Stop::Kill(killer) => {
                let killer = killer.borrow_mut().take();
                let event = async move {
                    match killer {
                        Some(killer) => killer.await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    ended = self.followed(&name, began, limit) => ended,
                    () = event => {
                        self.kill(&name).await?;
                        return Ok(killed(began.elapsed()));
                    }
                }
            }
            Stop::Terminate(_) => tokio::select! {
                ended = self.followed(&name, began, limit) => ended,
                pod = self.started(&name) => {
                    let at = Instant::now();
                    let deleted = self.pods().delete(&pod, &DeleteParams::default()).await;
                    deleted.map_err(|error| broken(&format!("the pod {pod} cannot be deleted"), &error))?;
                    let ended = self.followed(&name, began, limit).await;
                    ended.map(|ended| Ended { stopped_after: Some(at.elapsed()), ..ended })
                }
            },
        };
        let deleted = self.jobs().delete(&name, &DeleteParams::background()).await;
        gone_is_fine(deleted).map_err(|error| broken(&format!("the Job {name} cannot be deleted"), &error))?;
        Ok(Ended { took: began.elapsed(), ..ended? })
    }

    /// Reads a run. Returns `None` if a request fails: it is repeated.
    async fn read(&self, name: &str) -> Option<(view::Job, Vec<view::Pod>, Vec<view::WarningEvent>)> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let (job, pods) = (self.jobs().get_opt(name).await.ok()??, self.pods().list(&of_job).await.ok()?);
        let pods: Vec<view::Pod> = pods.items.iter().map(view::Pod::from).collect();
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace());
        let mut warnings = Vec::new();
        if !pods.iter().any(|pod| pod.started) {
            for about in pods.iter().map(|pod| pod.name.name.as_str()).chain([name]) {
                let about = ListParams::default().fields(&format!("involvedObject.name={about},type=Warning"));
                warnings.extend(events.list(&about).await.into_iter().flatten().filter_map(warning_event));
            }
        }
        Some((view::Job::from(&job), pods, warnings))
    }

    /// Follows a run to its end.
    async fn followed(&self, name: &str, began: Instant, limit: Duration) -> Result<Ended, DeskError> {
        let mut stuck_since: Option<Instant> = None;
        while began.elapsed() < limit {
            sleep(POLL).await;
            let Some((job, pods, warnings)) = self.read(name).await else { continue };
            match progress(&job, &pods, &warnings) {
                Progress::Runs => stuck_since = None,
                Progress::Stuck(cause) => {
                    if stuck_since.get_or_insert_with(Instant::now).elapsed() > STUCK {
                        self.kill(name).await?;
                        let (namespace, after) = (self.namespace(), STUCK.as_secs());
                        return Err(DeskError::Machine(format!(
                            "the pod of the Job {namespace}/{name} has not started within {after} s: {}: {}",
                            cause.reason, cause.message
                        )));
                    }
                }
                Progress::Ended(ended, pod) => {
                    let log = match pod {
                        Some(pod) => self.log(&pod).await?,
                        None => String::new(),
                    };
                    return Ok(Ended { log, ..*ended });
                }
            }
        }
        self.kill(name).await?;
        Err(DeskError::Machine(format!(
            "the Job {}/{name} has neither succeeded nor failed within {} s",
            self.namespace(),
            limit.as_secs()
        )))
    }

    /// Waits until the image runs, and returns the name of its pod.
    async fn started(&self, name: &str) -> String {
        loop {
            sleep(POLL).await;
            let Some((_, pods, _)) = self.read(name).await else { continue };
            if let Some(pod) = pods.iter().find(|pod| pod.started && pod.terminated.is_none() && !pod.is_over()) {
                return pod.name.name.clone();
            }
        }
    }

    async fn log(&self, pod: &str) -> Result<String, DeskError> {
        // One byte more than the limit is read, so that a longer list is noticed.
        let limit = i64::try_from(listing::LONGEST_LOG + 1).unwrap_or(i64::MAX);
        let params = LogParams { container: Some(CONTAINER.into()), limit_bytes: Some(limit), ..LogParams::default() };
        self.pods()
            .logs(pod, &params)
            .await
            .map_err(|error| broken(&format!("the log of pod {pod} cannot be read"), &error))
    }

    /// Ends a run, and waits until none of its processes can be left.
    async fn kill(&self, name: &str) -> Result<(), DeskError> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let failed = |error: kube::Error| broken(&format!("the Job {name} cannot be ended"), &error);
        gone_is_fine(self.jobs().delete(name, &DeleteParams::background()).await).map_err(failed)?;
        self.end_pods(&of_job).await
    }

    /// Ends pods, and waits until they are gone.
    async fn end_pods(&self, which: &ListParams) -> Result<(), DeskError> {
        let began = Instant::now();
        loop {
            let pods = self.pods().list(which).await.map_err(|error| broken("pods cannot be listed", &error))?;
            let names: Vec<String> = pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
            if names.is_empty() {
                return Ok(());
            }
            for name in &names {
                let deleted = self.pods().delete(name, &DeleteParams::default().grace_period(KILL_GRACE)).await;
                gone_is_fine(deleted).map_err(|error| broken(&format!("the pod {name} cannot be deleted"), &error))?;
            }
            if began.elapsed() > GONE {
                let (names, after) = (names.join(", "), GONE.as_secs());
                return Err(DeskError::Machine(format!("the pods {names} have not ended within {after} s")));
            }
            sleep(POLL).await;
        }
    }

    async fn get_volume(&self, name: &str) -> Result<Option<PersistentVolume>, DeskError> {
        let found = self.volumes().get_opt(name).await;
        found.map_err(|error| broken(&format!("the PersistentVolume {name} cannot be read"), &error))
    }

    /// Removes a PersistentVolume, and waits until it is gone.
    async fn remove_volume(&self, name: &str) -> Result<(), DeskError> {
        let began = Instant::now();
        loop {
            let Some(volume) = self.get_volume(name).await? else { return Ok(()) };
            let finalizers = volume.metadata.finalizers.unwrap_or_default();
            let kept: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != VOLUME_FINALIZER).collect();
            let failed = |error: kube::Error| broken(&format!("the PersistentVolume {name} cannot be removed"), &error);
            if kept.len() < finalizers.len() {
                let version = volume.metadata.resource_version;
                let body = json!({ "metadata": { "finalizers": kept, "resourceVersion": version } });
                let patched = self.volumes().patch(name, &PatchParams::default(), &Patch::Merge(body)).await;
                // After a conflict, the loop reads the volume again.
                match gone_is_fine(patched) {
                    Err(kube::Error::Api(status)) if status.code == 409 => continue,
                    patched => patched.map_err(failed)?,
                }
            }
            if volume.metadata.deletion_timestamp.is_none() {
                gone_is_fine(self.volumes().delete(name, &DeleteParams::default()).await).map_err(failed)?;
            }
            if began.elapsed() > GONE {
                let (kept, after) = (json!(kept), GONE.as_secs());
                return Err(DeskError::Machine(format!(
                    "the PersistentVolume {name} is not gone after {after} s; its finalizers are {kept}"
                )));
            }
            sleep(POLL).await;
        }
    }

    /// Returns the names of the PersistentVolumes of this call.
    async fn own_volumes(&self) -> Result<BTreeSet<String>, DeskError> {
        let labelled = self.volumes().list(&self.ours()).await;
        let labelled = labelled.map_err(|error| broken("PersistentVolumes cannot be listed", &error))?;
        let labelled = labelled.items.into_iter().filter_map(|volume| volume.metadata.name);
        Ok(labelled.chain(self.left.borrow().names()).collect())
    }

    async fn remove_volumes(&self) -> Result<(), DeskError> {
        let names = self.own_volumes().await?;
        let removed = join_all(names.iter().map(|name| self.remove_volume(name))).await;
        removed.into_iter().collect()
    }

    /// Deletes the Jobs and pods of this call.
    async fn remove_jobs(&self) -> Result<(), DeskError> {
        let jobs = self.jobs().list(&self.ours()).await.map_err(|error| broken("Jobs cannot be listed", &error))?;
        for name in jobs.items.into_iter().filter_map(|job| job.metadata.name) {
            let deleted = self.jobs().delete(&name, &DeleteParams::background()).await;
            gone_is_fine(deleted).map_err(|error| broken(&format!("the Job {name} cannot be deleted"), &error))?;
        }
        self.end_pods(&self.ours()).await
    }

    /// Returns the volumes of this call that a list run still shows.
    async fn listed(&self) -> Result<Vec<String>, DeskError> {
        if self.left.borrow().names().is_empty() {
            return Ok(Vec::new());
        }
        listed(self, &self.setting, &format!("{}-", self.id)).await
    }

    /// Removes everything that this call has made. Returns what is left, or may be.
    pub async fn clean(&self) -> Vec<String> {
        let mut left = Vec::new();
        let unknown = |left: &mut Vec<String>, done: Result<(), DeskError>| {
            left.extend(done.err().map(|error| error.to_string()));
        };
        unknown(&mut left, self.remove_jobs().await);
        match delete_storage(self, &self.setting).await {
            Ok(more) => left.extend(more),
            Err(error) => left.push(format!("storage of this run, perhaps: {error}")),
        }
        match self.listed().await {
            Ok(more) => left.extend(more),
            Err(error) => left.push(format!("storage of this run, perhaps: {error}")),
        }
        unknown(&mut left, self.remove_volumes().await);
        unknown(&mut left, self.remove_jobs().await);
        left
    }
}

impl Place for OnCluster {
    fn kube_api(&self) -> String {
        self.kube_api.clone()
    }

    fn attempt(&self) -> u32 {
        self.next()
    }

    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended> {
        Box::pin(self.follow_job(setting, job, stop))
    }

    fn leftovers(&self) -> &RefCell<Leftovers> {
        &self.left
    }

    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>> {
        Box::pin(self.get_volume(name))
    }

    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(self.remove_volume(name))
    }

    /// Storage that cannot be deleted stays noted, and the end of the command names it.
    fn clear(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            delete_storage(self, &self.setting).await?;
            self.remove_volumes().await
        })
    }

    fn desk(&self) -> Option<&flex_desk::conformance::OnDesk> {
        None
    }
}

fn broken(what: &str, error: &kube::Error) -> DeskError {
    DeskError::Machine(format!("{what}: {error}"))
}

/// Takes an object that is gone for a success.
fn gone_is_fine<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

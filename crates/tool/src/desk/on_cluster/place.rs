//! A cluster as the place of runs: each run is a Job, which the orchestrator's own functions have built.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flex_contract::names::{LABEL_INSTANCE, VOLUME_FINALIZER};
use flex_contract::operation::Operation;
use flex_core::run::view;
use flex_desk::conformance::clean::{delete_storage, listed};
use flex_desk::conformance::leftovers::Leftovers;
use flex_desk::conformance::mounts::Mounts;
use flex_desk::conformance::patience::Repeats;
use flex_desk::conformance::pending::Pending;
use flex_desk::conformance::place::Place;
use flex_desk::desk::{DeskError, Ended, Stop};
use flex_desk::order::Order;
use flex_desk::setting::Setting;
use flex_provisioner::api::watch::warning_event;
use flex_provisioner::api::{pages, says};
use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::left::{kept, sort};
use super::mount::{LABEL_MOUNT, MountPods, Mounter};
use super::pod::{Progress, killed, progress};
use super::requests::{GONE, KILL_GRACE, POLL, broken, gone_is_fine, is_busy, is_transient, patiently};
use crate::job::{log, log_of_list};

/// The time after which a pod that does not start ends the command.
const STUCK: Duration = Duration::from_secs(30);
/// How often a run begins whose container does not start.
const STARTS: u32 = 3;
/// The time that a run has beyond the `timeout` of its config.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The runs of one call of the command.
pub(super) struct OnCluster {
    client: Client,
    kube_api: String,
    setting: Setting,
    id: String,
    attempts: Cell<u32>,
    left: RefCell<Leftovers>,
    repeats: Repeats,
    mounter: Option<Mounter>,
}

impl OnCluster {
    /// Makes the place. `id` has eight hexadecimal digits. `pods` mount volumes; `None` if no case needs them.
    pub fn new(client: Client, kube_api: String, setting: Setting, id: String, pods: Option<MountPods>) -> Self {
        let mounter = pods.map(|pods| Mounter::new(client.clone(), pods));
        let (attempts, left, repeats) = (Cell::new(0), RefCell::default(), Repeats::default());
        OnCluster { client, kube_api, setting, id, attempts, left, repeats, mounter }
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

    /// Runs a Job to its end. If its container does not start, another Job follows, as from the orchestrator: the node may be
    /// busy, and have removed the directory that waited for the container.
    async fn follow_job(&self, setting: &Setting, job: Job, stop: Stop<'_>) -> Result<Ended, DeskError> {
        if !matches!(stop, Stop::Never) {
            return self.follow_once(setting, job, stop).await;
        }
        for attempt in 1..STARTS {
            let ended = self.follow_once(setting, job.clone(), Stop::Never).await?;
            let Some(why) = &ended.not_started else { return Ok(ended) };
            let operation = view::Job::from(&job).run_labels.operation;
            self.repeats.note(&operation.to_string(), attempt, ended.code, why);
        }
        self.follow_once(setting, job, Stop::Never).await
    }

    /// Creates a Job, and follows it until it ends or something stops it. Deletes it then.
    async fn follow_once(&self, setting: &Setting, mut job: Job, stop: Stop<'_>) -> Result<Ended, DeskError> {
        // The Job of a list run has a name by its time, which is the same for all of these runs.
        let name = format!("{}-{}", job.metadata.name.unwrap_or_default(), self.next());
        job.metadata.name = Some(name.clone());
        // After another error, the Job may exist.
        let created = patiently(is_busy, || async { self.jobs().create(&PostParams::default(), &job).await }).await;
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
        // A Job that stays has the label of the call. The end of the call removes the Job, or names it.
        let _ = self.delete_job(&name).await;
        Ok(Ended { took: began.elapsed(), ..ended? })
    }

    /// Reads a run. Returns `None` if a request fails: it is repeated.
    async fn read(&self, name: &str) -> Option<(view::Job, Vec<view::Pod>, Vec<view::WarningEvent>)> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let job = self.jobs().get_opt(name).await.ok()??;
        let pods = pages::all(&self.pods(), of_job, |pod| view::Pod::from(&pod)).await.ok()?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace());
        let mut warnings = Vec::new();
        if !pods.iter().any(|pod| pod.started) {
            for about in pods.iter().map(|pod| pod.name.name.as_str()).chain([name]) {
                let about = ListParams::default().fields(&format!("involvedObject.name={about},type=Warning"));
                warnings.extend(pages::all(&events, about, warning_event).await.into_iter().flatten().flatten());
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
                    let has_list = ended.code == 0 && job.run_labels.operation == Operation::List;
                    let log = match pod {
                        Some(pod) => self.log(&pod, has_list).await?,
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

    async fn log(&self, pod: &str, has_list: bool) -> Result<String, DeskError> {
        let read = if has_list { log_of_list(&self.pods(), pod).await } else { log(&self.pods(), pod).await };
        read.map_err(|error| broken(&format!("the log of pod {pod} cannot be read"), &error))
    }

    /// Ends a run, and waits until none of its processes can be left.
    async fn kill(&self, name: &str) -> Result<(), DeskError> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        self.delete_job(name).await?;
        self.end_pods(&of_job).await
    }

    async fn delete_job(&self, name: &str) -> Result<(), DeskError> {
        let deleted =
            patiently(is_transient, || async { self.jobs().delete(name, &DeleteParams::background()).await }).await;
        gone_is_fine(deleted).map_err(|error| broken(&format!("the Job {name} cannot be deleted"), &error))
    }

    /// Ends pods, and waits until they are gone. Asks for the end of each, also if another cannot be deleted.
    async fn end_pods(&self, which: &ListParams) -> Result<(), DeskError> {
        let began = Instant::now();
        loop {
            let read = || async { pages::all(&self.pods(), which.clone(), |pod| pod.metadata.name).await };
            let pods = patiently(is_transient, read).await;
            let pods = pods.map_err(|error| broken("pods cannot be listed", &error))?;
            let names: Vec<String> = pods.into_iter().flatten().collect();
            if names.is_empty() {
                return Ok(());
            }
            let mut failed = Vec::new();
            for name in &names {
                let now = DeleteParams::default().grace_period(KILL_GRACE);
                let deleted = patiently(is_transient, || async { self.pods().delete(name, &now).await }).await;
                let why = gone_is_fine(deleted).err();
                failed.extend(why.map(|error| format!("the pod {name} cannot be deleted: {}", says::error(&error))));
            }
            if !failed.is_empty() {
                return Err(DeskError::Machine(failed.join("; ")));
            }
            if began.elapsed() > GONE {
                let (names, after) = (names.join(", "), GONE.as_secs());
                return Err(DeskError::Machine(format!("the pods {names} have not ended within {after} s")));
            }
            sleep(POLL).await;
        }
    }

    async fn get_volume(&self, name: &str) -> Result<Option<PersistentVolume>, DeskError> {
        let found = patiently(is_transient, || async { self.volumes().get_opt(name).await }).await;
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
                let body = Patch::Merge(body);
                let patch = || async { self.volumes().patch(name, &PatchParams::default(), &body).await };
                let patched = patiently(is_transient, patch).await;
                // After a conflict, the loop reads the volume again.
                match gone_is_fine(patched) {
                    Err(kube::Error::Api(status)) if status.code == 409 => continue,
                    patched => patched.map_err(failed)?,
                }
            }
            if volume.metadata.deletion_timestamp.is_none() {
                let delete = || async { self.volumes().delete(name, &DeleteParams::default()).await };
                gone_is_fine(patiently(is_transient, delete).await).map_err(failed)?;
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

    /// Removes the PersistentVolumes of this call whose storage is deleted. Returns what is left.
    async fn remove_volumes(&self, runs_ended: bool) -> Vec<String> {
        let read = || async { pages::all(&self.volumes(), self.ours(), |volume| volume).await };
        let labelled = patiently(is_transient, read).await;
        let is_made_by_run = |volume: &PersistentVolume| {
            !volume.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LABEL_MOUNT))
        };
        let (labelled, failed) = match labelled {
            Ok(labelled) => (labelled.into_iter().filter(is_made_by_run).collect(), None),
            Err(error) => (Vec::new(), Some(broken("PersistentVolumes cannot be listed", &error).to_string())),
        };
        let sorted = sort(&labelled, &self.left.borrow(), runs_ended);
        let removed = join_all(sorted.remove.iter().map(|name| self.remove_volume(name))).await;
        let mut left: Vec<String> =
            removed.into_iter().filter_map(|removed| Some(removed.err()?.to_string())).collect();
        left.extend(failed);
        for name in &sorted.keep {
            // A run that failed may have created none.
            if !matches!(self.get_volume(name).await, Ok(None)) {
                left.push(kept(name));
            }
        }
        left
    }

    /// Deletes the Jobs and pods of this call. Returns what is left.
    async fn remove_jobs(&self) -> Vec<String> {
        let mut left = Vec::new();
        let read = || async { pages::all(&self.jobs(), self.ours(), |job| job.metadata.name).await };
        match patiently(is_transient, read).await {
            Ok(jobs) => {
                for name in jobs.into_iter().flatten() {
                    left.extend(self.delete_job(&name).await.err().map(|error| error.to_string()));
                }
            }
            Err(error) => left.push(broken("Jobs cannot be listed", &error).to_string()),
        }
        left.extend(self.end_pods(&self.ours()).await.err().map(|error| error.to_string()));
        left
    }

    /// Returns the volumes of this call that a list run still shows.
    async fn listed(&self) -> Result<Vec<String>, DeskError> {
        if self.left.borrow().names().is_empty() {
            return Ok(Vec::new());
        }
        listed(self, &self.setting, &format!("{}-", self.id)).await
    }

    /// Removes everything that this call has made. Returns what is left, or may be. An error stops nothing but its own step.
    pub async fn clean(&self) -> Vec<String> {
        let mut left = self.remove_jobs().await;
        let runs_ended = left.is_empty();
        let mounts = match &self.mounter {
            Some(mounter) => mounter.clean(&BTreeMap::new()).await,
            None => BTreeMap::new(),
        };
        let is_mounted = !mounts.is_empty();
        left.extend(mounts.values().cloned());
        if is_mounted {
            left.push(
                "the storage of the volumes: a pod may still use one of them, so no delete run was started".into(),
            );
        } else {
            left.extend(delete_storage(self, &self.setting).await);
            let listed = self.listed().await;
            left.extend(
                listed.unwrap_or_else(|error| vec![format!("storage that no list run could show, perhaps: {error}")]),
            );
        }
        left.extend(self.remove_volumes(runs_ended && !is_mounted).await);
        for what in self.remove_jobs().await {
            if !left.contains(&what) {
                left.push(what);
            }
        }
        if let Some(mounter) = &self.mounter {
            left.extend(mounter.clean(&mounts).await.into_values());
        }
        left
    }
}

impl Place for OnCluster {
    fn kube_api(&self) -> String {
        self.kube_api.clone()
    }

    /// The number of a run in the call grows faster than that of an attempt. It gives the Job its name.
    fn attempt(&self, _: &Order, attempt: u32) -> u32 {
        self.next().max(attempt)
    }

    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended> {
        Box::pin(self.follow_job(setting, job, stop))
    }

    fn leftovers(&self) -> &RefCell<Leftovers> {
        &self.left
    }

    fn repeats(&self) -> &Repeats {
        &self.repeats
    }

    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>> {
        Box::pin(self.get_volume(name))
    }

    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            if let Some(volume) = self.get_volume(name).await? {
                self.left.borrow_mut().forgets(volume);
            }
            self.remove_volume(name).await
        })
    }

    /// Storage that cannot be deleted stays noted, and keeps its PersistentVolume. The end of the command tries again.
    fn clear(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            delete_storage(self, &self.setting).await;
            self.remove_volumes(true).await;
            Ok(())
        })
    }

    fn desk(&self) -> Option<&flex_desk::conformance::OnDesk> {
        None
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        self.mounter.as_ref().map(|mounter| mounter as &dyn Mounts)
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;

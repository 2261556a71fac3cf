//! A simulated node: it takes each pod that has no gate, plays its image, and reports to the API as a kubelet does. A
//! running pod disappears only when this node reports its end.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use futures::{FutureExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::until_answered;
use orchestrator::dice::Dice;
use orchestrator::kubelet::gates;

/// The course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The run does its work.
    Works,
    /// The run fails before it has done anything.
    FailsFirst,
    /// The run fails after the storage is made or removed, and before it reports that.
    FailsBetween,
    /// The run fails after everything is done.
    FailsLast,
    /// The run succeeds without having done anything.
    Lies,
    /// The run never ends by itself.
    Hangs,
    /// The kubelet ends the pod before the image has begun.
    Evicted,
    /// Another client removes the Job during the run.
    JobRemoved,
    /// Another client removes the pod during the run.
    PodRemoved,
}

const PROVISION: &[(u64, Fate)] = &[
    (780, Fate::Works),
    (70, Fate::FailsFirst),
    (40, Fate::FailsBetween),
    (30, Fate::FailsLast),
    (20, Fate::Lies),
    (3, Fate::Hangs),
    (17, Fate::Evicted),
    (20, Fate::JobRemoved),
    (20, Fate::PodRemoved),
];
/// A delete run that lies leaves storage behind, which no orchestrator can detect.
const DELETE: &[(u64, Fate)] = &[
    (850, Fate::Works),
    (50, Fate::FailsFirst),
    (47, Fate::FailsBetween),
    (3, Fate::Hangs),
    (10, Fate::Evicted),
    (20, Fate::JobRemoved),
    (20, Fate::PodRemoved),
];
const NAME: &str = "simulated";

/// The storage, and observations of the processes that work on it.
#[derive(Debug, Default)]
pub struct Backend {
    /// The volumes that exist, by their ids.
    pub volumes: HashSet<String>,
    running: HashMap<String, usize>,
    tries: HashMap<String, usize>,
    /// How many runs had each fate.
    pub fates: BTreeMap<(&'static str, Fate), usize>,
    /// Ids on which two runs worked at one time.
    pub overlaps: Vec<String>,
    /// The history of each pod, by the id on which it works.
    pub story: HashMap<String, Vec<String>>,
}

/// The simulated node.
#[derive(Clone)]
pub struct SimulatedNode {
    client: Client,
    namespace: String,
    seed: u64,
    backend: Arc<Mutex<Backend>>,
    _heard: Arc<cluster::SimulatedNode>,
}

/// A process of an image works on a volume while this value lives.
struct Running(String, Arc<Mutex<Backend>>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut backend = self.1.lock().expect("no code panics while it holds the backend");
        *backend.running.get_mut(&self.0).expect("the process was counted") -= 1;
    }
}

/// Returns whether the image makes the claim's volume too small, so that it is never bound. The claim's number decides.
pub fn is_wrong(seed: u64, claim: &str) -> bool {
    Dice::of(seed, 0, claim).roll(100) == 0
}

impl SimulatedNode {
    /// Starts to run the pods of a namespace.
    pub async fn start(client: Client, namespace: &str, seed: u64) -> Self {
        let heard = cluster::SimulatedNode::start(client.clone(), NAME, &[]).await.expect("the node joins");
        let node = SimulatedNode {
            client,
            namespace: namespace.into(),
            seed,
            backend: Arc::default(),
            _heard: Arc::new(heard),
        };
        let following = node.clone();
        tokio::spawn(async move { following.follow().await });
        node
    }

    /// Locks and returns the storage.
    pub fn backend(&self) -> MutexGuard<'_, Backend> {
        self.backend.lock().expect("no code panics while it holds the backend")
    }

    /// Records an event of a pod.
    fn note(&self, pod: &Pod, what: &str) {
        let id = pod.labels().get(names::LABEL_VOLUME_ID).cloned().unwrap_or_default();
        let line = format!("{} {} {what}", jiff::Timestamp::now(), pod.name_any());
        self.backend().story.entry(id).or_default().push(line);
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn follow(self) {
        let mut containers: HashMap<String, JoinHandle<()>> = HashMap::new();
        let mut listed = HashSet::new();
        let mut stream = pin!(watcher(self.pods(), watcher::Config::default()).default_backoff());
        loop {
            let pod = match stream.try_next().await {
                Ok(Some(watcher::Event::Apply(pod))) => pod,
                Ok(Some(watcher::Event::Init)) => {
                    listed.clear();
                    continue;
                }
                Ok(Some(watcher::Event::InitApply(pod))) => {
                    listed.insert(pod.uid().unwrap_or_default());
                    pod
                }
                // A watch that begins again does not tell which pods were removed meanwhile.
                Ok(Some(watcher::Event::InitDone)) => {
                    containers.extract_if(|uid, _| !listed.contains(uid)).for_each(|(_, gone)| gone.abort());
                    continue;
                }
                Ok(Some(watcher::Event::Delete(pod))) => {
                    // Removed without this node: the client that did so assumes that the process is dead.
                    self.note(&pod, "is gone");
                    if let Some(container) = containers.remove(&pod.uid().unwrap_or_default()) {
                        container.abort();
                    }
                    continue;
                }
                Ok(None) => return,
                Err(error) => {
                    eprintln!("the node's watch was interrupted: {error}");
                    continue;
                }
            };
            // Neither scheduler nor kubelet knows it.
            if !gates(pod.spec.as_ref()).is_empty() {
                continue;
            }
            let uid = pod.uid().unwrap_or_default();
            let over = matches!(phase(&pod), "Succeeded" | "Failed");
            if over {
                containers.remove(&uid);
            } else if pod.metadata.deletion_timestamp.is_some() {
                let container = containers.remove(&uid);
                self.note(&pod, "is to stop");
                let node = self.clone();
                tokio::spawn(async move { node.stop(&pod, container).await });
            } else if let Entry::Vacant(vacant) = containers.entry(uid) {
                let node = self.clone();
                vacant.insert(tokio::spawn(async move { node.run(&pod).await }));
            }
        }
    }

    /// Ends the process, reports that, and lets Kubernetes delete the pod.
    async fn stop(&self, pod: &Pod, container: Option<JoinHandle<()>>) {
        if let Some(container) = container {
            container.abort();
            let _ = container.await;
        }
        self.note(pod, "was stopped");
        self.ended(pod, Some(137), "killed").await;
        let name = pod.name_any();
        patiently(|| async {
            let gone = self.pods().delete(&name, &DeleteParams::default().grace_period(0)).await;
            gone.map(drop)
        })
        .await;
    }

    async fn run(&self, pod: &Pod) {
        let name = pod.name_any();
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": { "apiVersion": "v1", "kind": "Node", "name": NAME } });
        let (pods, none) = (self.pods(), PostParams::default());
        loop {
            match pods.create_subresource::<Value, Value>("binding", &name, &none, &binding).await {
                Ok(_) => break,
                // The pod was deleted before the node ran it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        let env = pod.spec.as_ref().and_then(|spec| spec.containers[0].env.clone()).unwrap_or_default();
        let request = RunRequest::from_env(|name| env.iter().find(|variable| variable.name == name)?.value.clone())
            .expect("the environment of a run is complete");
        let (operation, fates) = match request.operation {
            Operation::Delete => ("delete", DELETE),
            _ => ("provision", PROVISION),
        };
        // An attempt whose Job was removed begins again under its number, and may then have another fate.
        let again = self.tries(format!("{operation} {} {}", request.volume_id, request.attempt));
        let what = format!("{operation} {} {again}", request.claim.name);
        let mut dice = Dice::of(self.seed, u64::from(request.attempt), &what);
        let fate = dice.choose(fates);
        self.note(pod, &format!("begins, {fate:?}"));
        let running = self.begins(&request.volume_id, operation, fate);
        tokio::time::sleep(dice.time(Duration::from_millis(200))).await;
        let says = match (fate, operation) {
            (Fate::Lies, _) => (Some(0), ""),
            (Fate::FailsFirst, _) => (Some(75), "the array is busy"),
            (Fate::Evicted, _) => (None, "the node was low on memory"),
            (Fate::Hangs, _) => return forever().await,
            (Fate::PodRemoved, _) => {
                patiently(|| async { self.pods().delete(&name, &DeleteParams::default()).await.map(drop) }).await;
                return forever().await;
            }
            (Fate::JobRemoved, _) => {
                let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
                let job = pod.labels().get("job-name").cloned().unwrap_or_default();
                patiently(|| async { jobs.delete(&job, &DeleteParams::background()).await.map(drop) }).await;
                return forever().await;
            }
            (fate, "delete") => {
                self.backend().volumes.remove(&request.volume_id);
                if fate == Fate::Works { (Some(0), "") } else { (Some(1), "the array went away") }
            }
            (fate, _) => {
                self.backend().volumes.insert(request.volume_id.clone());
                tokio::time::sleep(dice.time(Duration::from_millis(50))).await;
                if fate == Fate::FailsBetween {
                    (Some(1), "the array went away")
                } else {
                    self.create_volume(&request).await;
                    if fate == Fate::Works { (Some(0), "") } else { (Some(1), "after all was done") }
                }
            }
        };
        // A kubelet reports the end of a process after it.
        self.note(pod, &format!("ends, {says:?}"));
        drop(running);
        self.ended(pod, says.0, says.1).await;
    }

    /// Returns how often an attempt began before.
    fn tries(&self, attempt: String) -> usize {
        let mut backend = self.backend();
        let tries = backend.tries.entry(attempt).or_default();
        *tries += 1;
        *tries - 1
    }

    fn begins(&self, id: &str, operation: &'static str, fate: Fate) -> Running {
        let mut backend = self.backend();
        *backend.fates.entry((operation, fate)).or_default() += 1;
        let running = backend.running.entry(id.to_owned()).or_default();
        *running += 1;
        if *running > 1 {
            backend.overlaps.push(format!("{operation} {id}"));
        }
        Running(id.to_owned(), self.backend.clone())
    }

    async fn create_volume(&self, request: &RunRequest) {
        let nfs =
            NFSVolumeSource { server: "10.0.0.1".into(), path: format!("/{}", request.volume_id), read_only: None };
        let source = PersistentVolumeSpec { nfs: Some(nfs), ..PersistentVolumeSpec::default() };
        let mut volume = persistent_volume(request, Made { source, ..Made::default() });
        if is_wrong(self.seed, &request.claim.name) {
            let capacity =
                volume.spec.as_mut().and_then(|spec| spec.capacity.as_mut()).expect("the volume has a capacity");
            capacity.values_mut().for_each(|size| size.0 = "1Mi".into());
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        patiently(|| async { volumes.create(&PostParams::default(), &volume).await.map(drop) }).await;
    }

    /// Writes the status of an ended pod, as the kubelet does; without a code its container never ran.
    async fn ended(&self, pod: &Pod, code: Option<i32>, texts: &str) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let phase = if code == Some(0) { "Succeeded" } else { "Failed" };
        let status = match code {
            None => json!({ "phase": phase, "reason": "Evicted", "message": texts }),
            Some(code) => {
                let reason = if code == 0 { "Completed" } else { "Error" };
                let end = json!({ "terminated": { "exitCode": code, "reason": reason, "message": texts, "finishedAt": now } });
                json!({ "phase": phase, "containerStatuses": [{
                    "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0, "state": end,
                }] })
            }
        };
        let (pods, name, body) = (self.pods(), pod.name_any(), Patch::Merge(json!({ "status": status })));
        patiently(|| async { pods.patch_status(&name, &PatchParams::default(), &body).await.map(drop) }).await;
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Waits until the pod is ended from outside.
async fn forever() {
    std::future::pending::<()>().await;
}

/// Repeats a request while the API server is busy; its object may be gone.
async fn patiently<F: Future<Output = Result<(), kube::Error>>>(request: impl Fn() -> F) {
    until_answered(|| {
        request().map(|answer| match answer {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            other => other,
        })
    })
    .await;
}

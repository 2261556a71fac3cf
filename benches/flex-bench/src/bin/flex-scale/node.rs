//! A simulated node: it takes each pod of the config namespace that has no gate, does the work of the image, and reports
//! its end at once. A benchmark can pause the node, so that runs stay in progress.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use cluster::Cluster;
use flex_bench::audit;
use flex_contract::batch;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const NAME: &str = "simulated";
/// The number of members of a batch that are made at one time, as by `flex-pv each --jobs`.
const JOBS: usize = 8;

/// The node, until this is dropped.
pub struct Node {
    following: JoinHandle<()>,
    work: Arc<Work>,
    _heard: cluster::SimulatedNode,
}

struct Work {
    /// The kubelet's client, whose requests are counted apart from those of images.
    kubelet: Client,
    image: Client,
    /// Whether pods wait before they do anything.
    paused: watch::Sender<bool>,
    /// The number of claims whose pods wait.
    waiting: AtomicUsize,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Node {
    /// Adds the node, and runs the pods of a namespace.
    ///
    /// # Errors
    /// The API server refuses the node.
    pub async fn join(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let image = cluster.client_as(audit::IMAGE, &["system:masters"]).await?;
        Node::join_with(cluster, namespace, image).await
    }

    /// Does the same, with another client of the images.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn join_with(cluster: &Cluster, namespace: &str, image: Client) -> Result<Self> {
        let kubelet = cluster.client_as(audit::NODE, &["system:masters"]).await?;
        let heard = cluster::SimulatedNode::start(kubelet.clone(), NAME, &[]).await?;
        let work = Work { kubelet, image, paused: watch::Sender::new(false), waiting: AtomicUsize::new(0) };
        let work = Arc::new(work);
        let following = tokio::spawn(follow(work.clone(), namespace.to_owned()));
        Ok(Node { following, work, _heard: heard })
    }

    /// Pauses or resumes the node: while it is paused, pods begin and wait.
    pub fn pause(&self, paused: bool) {
        self.work.paused.send_replace(paused);
    }

    /// Returns the number of claims whose pods wait.
    pub fn waiting(&self) -> usize {
        self.work.waiting.load(Ordering::Relaxed)
    }
}

async fn follow(work: Arc<Work>, namespace: String) {
    let pods: Api<Pod> = Api::namespaced(work.kubelet.clone(), &namespace);
    let mut begun = HashSet::new();
    let mut stream = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    loop {
        match stream.try_next().await {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
                let waits = gates.is_some_and(|gates| !gates.is_empty());
                let ends = pod.metadata.deletion_timestamp.is_some();
                if !waits && !ends && begun.insert(pod.uid().unwrap_or_default()) {
                    let work = work.clone();
                    tokio::spawn(async move {
                        // A pod that could not be run is not repeated: the burst then does not end, and reports that.
                        if let Err(error) = work.run(&pod).await {
                            eprintln!("pod {}: {error:#}", pod.name_any());
                        }
                    });
                }
            }
            Ok(Some(watcher::Event::Delete(pod))) => drop(begun.remove(&pod.uid().unwrap_or_default())),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => eprintln!("the node's watch was interrupted: {error}"),
        }
    }
}

impl Work {
    async fn run(&self, pod: &Pod) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.kubelet.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        let target = json!({ "apiVersion": "v1", "kind": "Node", "name": NAME });
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": target });
        pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await?;
        let requests = requests(pod)?;
        self.wait(requests.len()).await?;
        let made = requests.into_iter().filter(|request| request.operation == Operation::Provision);
        stream::iter(made.map(|request| self.provision(request))).buffer_unordered(JOBS).try_collect::<()>().await?;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now } });
        let container = json!({
            "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0,
            "state": end,
        });
        let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } });
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Waits while the node is paused.
    async fn wait(&self, claims: usize) -> Result<()> {
        self.waiting.fetch_add(claims, Ordering::Relaxed);
        self.paused.subscribe().wait_for(|paused| !paused).await?;
        self.waiting.fetch_sub(claims, Ordering::Relaxed);
        Ok(())
    }

    async fn provision(&self, request: RunRequest) -> Result<()> {
        let path = format!("/{}", request.volume_id);
        let nfs = NFSVolumeSource { server: "10.0.0.1".into(), path, read_only: None };
        let source = PersistentVolumeSpec { nfs: Some(nfs), ..PersistentVolumeSpec::default() };
        let volumes: Api<PersistentVolume> = Api::all(self.image.clone());
        let volume = persistent_volume(&request, Made { source, ..Made::default() });
        volumes.create(&PostParams::default(), &volume).await?;
        Ok(())
    }
}

/// Returns the requests that the image in a pod would get: one, or one for each member of a batch.
fn requests(pod: &Pod) -> Result<Vec<RunRequest>> {
    let env = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.env.clone()).unwrap_or_default();
    let run: BTreeMap<_, _> = env.into_iter().filter_map(|variable| Some((variable.name, variable.value?))).collect();
    let members = match run.get("OPERATION").map(String::as_str) {
        Some(batch::OPERATION) => batch::read(list(pod).context("a batch without a list")?)?,
        _ => vec![BTreeMap::new()],
    };
    let request = |own: BTreeMap<String, String>| {
        RunRequest::from_env(|name| own.get(name).or_else(|| run.get(name)).cloned()).context("a run's environment")
    };
    members.into_iter().map(request).collect()
}

/// Returns the list of members, which an image has as a file and the pod as an annotation.
fn list(pod: &Pod) -> Option<&str> {
    let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let sources = volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
    let mut items = sources.filter_map(|source| source.downward_api.as_ref()?.items.as_ref()).flatten();
    let field = items.find(|item| item.path == batch::FILE)?.field_ref.as_ref()?;
    let key = field.field_path.strip_prefix("metadata.annotations['")?.strip_suffix("']")?;
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

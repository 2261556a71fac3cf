//! A simulated node: its kubelet runs an image whose storage can be counted.
//!
//! The test plays scheduler and kubelet as far as the API shows it. Pods without a gate are bound to a node, run and end,
//! and are deleted only when their process is dead. The image's storage is the [`Backend`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flex_contract::batch::{self, MemberFailure, MemberVariables};
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::model::snapshot::api::VolumeSnapshot;
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Binding, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use orchestrator::kubelet::{gates, list, nfs_volume_of};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend::{Backend, lock};

/// All nodes; runs without a node are on the first.
const NAMES: [&str; 2] = ["simulated", "second"];
/// Parameter: this many attempts find no space, and leave something on their node.
pub const FULL: &str = "full";
/// Parameter: this many attempts fail after making the storage.
pub const FAILS: &str = "fails";
/// Parameter: the stage at which the image stops until it is released or killed.
pub const HOLDS_AT: &str = "holds-at";

/// The capacity that the image reports, in bytes.
pub const CAPACITY: u64 = 1_234_567;

/// The stages at which an image can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The image runs, and has done nothing.
    Started,
    /// The image reads the source of its clone.
    Copying,
    /// The image reads the snapshot with which it fills its volume.
    Restoring,
    /// The storage is made, the PersistentVolume is not.
    Made,
    /// The image is about to delete a volume.
    Deleting,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Started => "started",
            Stage::Copying => "copying",
            Stage::Restoring => "restoring",
            Stage::Made => "made",
            Stage::Deleting => "deleting",
        }
    }
}

/// The simulated nodes.
pub struct Node {
    _heard: Vec<cluster::SimulatedNode>,
    shared: Arc<Shared>,
    kubelet: JoinHandle<()>,
}

struct Shared {
    client: Client,
    backend: Backend,
    reached: Mutex<HashSet<(String, Stage)>>,
    open: watch::Sender<HashSet<String>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kubelet.abort();
    }
}

impl Node {
    /// Adds the nodes to the cluster; the images see them as one.
    pub async fn start(client: Client) -> Node {
        let mut heard = Vec::new();
        for name in NAMES {
            heard.push(cluster::SimulatedNode::start(client.clone(), name, &[]).await.expect("the node joins"));
        }
        let shared = Arc::new(Shared {
            client,
            backend: Backend::new(),
            reached: Mutex::default(),
            open: watch::Sender::default(),
        });
        Node { kubelet: tokio::spawn(kubelet(shared.clone())), shared, _heard: heard }
    }

    pub fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    /// Returns whether an image of this namespace has reached a stage.
    pub fn has_reached(&self, namespace: &str, stage: Stage) -> bool {
        lock(&self.shared.reached).contains(&(namespace.to_owned(), stage))
    }

    /// Releases the images of this namespace.
    pub fn release_images(&self, namespace: &str) {
        self.shared.open.send_if_modified(|open| open.insert(namespace.to_owned()));
    }
}

/// Runs each pod once, as soon as it has no gate, and ends it when it is deleted.
async fn kubelet(shared: Arc<Shared>) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let config = watcher::Config::default().labels(names::LABEL_OPERATION);
    let mut stream = watcher(pods, config).default_backoff().applied_objects().boxed();
    let mut known: HashMap<String, watch::Sender<bool>> = HashMap::new();
    while let Some(pod) = stream.next().await {
        let Ok(pod) = pod else { continue };
        let uid = pod.uid().unwrap_or_default();
        let terminating = pod.metadata.deletion_timestamp.is_some();
        match known.get(&uid) {
            Some(killed) => {
                if terminating {
                    killed.send_replace(true);
                }
            }
            None if terminating || !gates(pod.spec.as_ref()).is_empty() => {}
            None => {
                let (kill, killed) = watch::channel(false);
                known.insert(uid, kill);
                tokio::spawn(shared.clone().run(pod, killed));
            }
        }
    }
}

/// The end of a process.
struct Exit {
    code: i32,
    message: String,
}

impl Shared {
    /// Plays the life of a pod on the node. A missing pod is no error: another actor was faster.
    async fn run(self: Arc<Self>, pod: Pod, mut killed: watch::Receiver<bool>) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let env = |name: &str| {
            let env = pod.spec.as_ref()?.containers[0].env.as_ref()?;
            env.iter().find(|variable| variable.name == name)?.value.clone()
        };
        let list = pod.spec.as_ref().and_then(|spec| list(spec, &pod.metadata));
        let members = match &list {
            Some(list) => batch::read(list).expect("the list of a batch can be read"),
            None => vec![MemberVariables::new()],
        };
        let request = |own: &MemberVariables| {
            let mut request = RunRequest::from_env(|name| own.get(name).cloned().or_else(|| env(name))).ok()?;
            let own = [FAILS, HOLDS_AT, FULL].map(|name| (name, env(&flex_contract::parameter::env_name(name))));
            request.parameters = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            Some(request)
        };
        // A pod that no orchestrator made reports nothing, and ends by itself.
        let Some(requests) = members.iter().map(request).collect::<Option<Vec<_>>>() else { return };
        let node = NAMES.into_iter().find(|name| *name == requests[0].node_name).unwrap_or(NAMES[0]);
        let binding: Binding =
            serde_json::from_value(json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } }))
                .unwrap();
        let bound: Result<Value, _> = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
        if bound.is_err() {
            return;
        }
        let status = |status: Value| {
            let (pods, name) = (pods.clone(), name.clone());
            async move {
                let _ =
                    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await;
            }
        };
        let running = json!({ "running": { "startedAt": now() } });
        status(json!({ "phase": "Running", "startTime": now(), "containerStatuses": [container(running, true)] }))
            .await;
        let exit = tokio::select! {
            exit = self.images(&requests, list.is_some(), (&namespace, &name)) => exit,
            _ = killed.wait_for(|killed| *killed) => Exit { code: 137, message: String::new() },
        };
        let reason = if exit.code == 0 { "Completed" } else { "Error" };
        let ended = json!({ "terminated": { "exitCode": exit.code, "reason": reason, "message": exit.message, "startedAt": now(), "finishedAt": now() } });
        let phase = if exit.code == 0 { "Succeeded" } else { "Failed" };
        status(json!({ "phase": phase, "containerStatuses": [container(ended, false)] })).await;
        // The process is dead: the API server need not keep the pod for it.
        let _ = killed.wait_for(|killed| *killed).await;
        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
    }

    /// Runs the members of a batch at one time.
    async fn images(&self, requests: &[RunRequest], is_batch: bool, (namespace, pod): (&str, &str)) -> Exit {
        let mut exits = join_all(requests.iter().map(|request| self.image(request, namespace, pod))).await;
        if !is_batch {
            return exits.remove(0);
        }
        let failed = exits.into_iter().enumerate().filter(|(_, exit)| exit.code != 0);
        let failed = failed.map(|(at, Exit { code, message })| MemberFailure { member: at + 1, code, message });
        Exit { code: 0, message: batch::write_outcomes(&failed.collect::<Vec<_>>()) }
    }

    async fn image(&self, request: &RunRequest, namespace: &str, pod: &str) -> Exit {
        let snapshot = request.snapshot.as_ref().filter(|_| request.operation.is_of_snapshot());
        // Runs that concern no volume are limited to one of a kind at a time.
        let of = match (snapshot, request.operation.is_of_volume()) {
            (Some(snapshot), _) => snapshot.id.clone(),
            (None, true) => request.volume_id.clone(),
            (None, false) => format!("none, but the {} of {}", request.operation, request.storage_class),
        };
        let _working = self.backend.work(&of, &format!("{namespace}/{pod}"));
        match request.operation {
            Operation::Provision => self.provision(request, namespace).await,
            Operation::Delete => self.delete(request, namespace).await,
            Operation::Expand => self.expand(request).await,
            Operation::Modify => self.modify(request).await,
            Operation::Capacity => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Exit {
                    code: 0,
                    message: flex_contract::capacity::Answer { bytes: CAPACITY, largest: None }.to_string(),
                }
            }
            Operation::Snapshot => self.snapshot(request, namespace).await,
            Operation::DeleteSnapshot => self.delete_snapshot(request, namespace).await,
            Operation::List => Exit { code: 78, message: "this image cannot list".into() },
            Operation::MoveIn | Operation::MoveOut => Exit { code: 64, message: "nothing moves in here".into() },
        }
    }

    async fn provision(&self, request: &RunRequest, namespace: &str) -> Exit {
        self.pause(request, namespace, Stage::Started).await;
        let claim = format!("{}/{}", request.claim.namespace, request.claim.name);
        let source = request.clone_of.as_ref();
        let _reading = source.map(|source| self.backend.copy(&source.id, &request.volume_id, &claim));
        let snapshot = request.snapshot.as_ref();
        let _restoring = snapshot.map(|snapshot| self.backend.restore(&snapshot.id, &request.volume_id, &claim));
        if source.is_some() {
            self.pause(request, namespace, Stage::Copying).await;
        }
        if snapshot.is_some() {
            self.pause(request, namespace, Stage::Restoring).await;
        }
        let full = request.parameters.get(FULL).and_then(|full| full.parse().ok()).unwrap_or(0);
        if request.attempt <= full {
            self.backend.add_leftover(&request.volume_id, &request.node_name, &claim);
            return Exit { code: 69, message: "no room here".into() };
        }
        self.backend.make(&request.volume_id, &request.node_name, &claim);
        let fails = request.parameters.get(FAILS).and_then(|fails| fails.parse().ok()).unwrap_or(0);
        if request.attempt <= fails {
            return Exit { code: 75, message: "the array is busy".into() };
        }
        self.pause(request, namespace, Stage::Made).await;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        match volumes.create(&PostParams::default(), &nfs_volume_of(request)).await {
            Ok(_) => Exit { code: 0, message: String::new() },
            // The storage may be that of an earlier attempt.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                Exit { code: 0, message: String::new() }
            }
            Err(error) => Exit { code: 75, message: error.to_string() },
        }
    }

    async fn snapshot(&self, request: &RunRequest, namespace: &str) -> Exit {
        let snapshot = request.snapshot.as_ref().expect("the contract reads it");
        let owner = format!("{}/{}", snapshot.namespace, snapshot.name);
        let _reading = self.backend.snapshot(&request.volume_id, &owner);
        self.pause(request, namespace, Stage::Copying).await;
        self.backend.keep_snapshot(&snapshot.id, &owner);
        let fails = request.parameters.get(FAILS).and_then(|fails| fails.parse().ok()).unwrap_or(0);
        match request.attempt <= fails {
            true => Exit { code: 75, message: "the array is busy".into() },
            false => Exit { code: 0, message: String::new() },
        }
    }

    async fn delete_snapshot(&self, request: &RunRequest, namespace: &str) -> Exit {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let snapshot = request.snapshot.as_ref().expect("the contract reads it");
        let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &snapshot.namespace);
        let found = snapshots.get_opt(&snapshot.name).await.ok().flatten();
        let lives = |found: &VolumeSnapshot| {
            found.metadata.uid.as_ref() == Some(&snapshot.id) && found.metadata.deletion_timestamp.is_none()
        };
        if found.as_ref().is_some_and(lives) {
            self.backend.record_violation(format!(
                "the living snapshot {}/{} was deleted ({namespace})",
                snapshot.namespace, snapshot.name
            ));
        }
        self.backend.remove_snapshot(&snapshot.id);
        Exit { code: 0, message: String::new() }
    }

    async fn expand(&self, request: &RunRequest) -> Exit {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match self.backend.volumes().contains_key(&request.volume_id) {
            true => {
                self.backend.expand(&request.volume_id, request.size_bytes);
                Exit { code: 0, message: String::new() }
            }
            false => Exit { code: 65, message: "no such volume".into() },
        }
    }

    async fn modify(&self, request: &RunRequest) -> Exit {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if !self.backend.volumes().contains_key(&request.volume_id) {
            return Exit { code: 65, message: "no such volume".into() };
        }
        let fails = request.parameters.get(FAILS).and_then(|fails| fails.parse().ok()).unwrap_or(0);
        let fails = request.attempt <= fails;
        let class = if fails { "in between" } else { &request.attributes_class };
        self.backend.modify(&request.volume_id, class);
        match fails {
            true => Exit { code: 75, message: "the array is busy".into() },
            false => Exit { code: 0, message: String::new() },
        }
    }

    async fn delete(&self, request: &RunRequest, namespace: &str) -> Exit {
        self.pause(request, namespace, Stage::Deleting).await;
        // Long enough to detect a process that should not run at the same time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (id, node) = (&request.volume_id, &request.node_name);
        if self.backend.remove_leftover(id, node) || self.backend.is_elsewhere(id, node) {
            return Exit { code: 0, message: String::new() };
        }
        if let Some(claim) = self.living_owner(&request.volume_id).await {
            self.backend.record_violation(format!(
                "volume {} of the living claim {claim} was deleted ({namespace})",
                request.volume_id
            ));
        }
        self.backend.remove(&request.volume_id);
        Exit { code: 0, message: String::new() }
    }

    /// Returns the claim to which this storage belongs, if it exists and stays: the claim for which the storage was
    /// made, or to which it was assigned.
    async fn living_owner(&self, id: &str) -> Option<String> {
        let made_for = self.backend.volumes().get(id)?.clone();
        if self.lives(&made_for, id).await {
            return Some(made_for);
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = volumes.get_opt(&names::pv_name(id)).await.ok()??;
        let given_to = volume.spec?.claim_ref?;
        let claim = format!("{}/{}", given_to.namespace?, given_to.name?);
        self.lives(&claim, &given_to.uid?).await.then_some(claim)
    }

    async fn lives(&self, claim: &str, uid: &str) -> bool {
        let Some((namespace, name)) = claim.split_once('/') else { return false };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let found = claims.get_opt(name).await.ok().flatten();
        found.is_some_and(|found| found.uid().as_deref() == Some(uid) && found.metadata.deletion_timestamp.is_none())
    }

    /// Stops at a stage if the config says so.
    async fn pause(&self, request: &RunRequest, namespace: &str, stage: Stage) {
        lock(&self.reached).insert((namespace.to_owned(), stage));
        if request.parameters.get(HOLDS_AT).map(String::as_str) == Some(stage.as_str()) {
            let _ = self.open.subscribe().wait_for(|open| open.contains(namespace)).await;
        }
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn container(state: Value, ready: bool) -> Value {
    json!({ "name": "provisioner", "image": "example/image", "imageID": "", "ready": ready, "restartCount": 0, "state": state })
}

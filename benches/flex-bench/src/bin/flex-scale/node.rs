//! A node that is simulated: it takes every pod of the config namespace, does what its image would do, and reports its
//! end, at once.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use anyhow::Result;
use contract::request::{Operation, Request};
use contract::volume::{Made, persistent_volume};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const NAME: &str = "simulated";

/// The node, until this is dropped.
pub struct Node {
    following: JoinHandle<()>,
    _heard: cluster::SimulatedNode,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Node {
    /// Lets it join, and run the pods of a namespace.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn join(client: Client, namespace: &str) -> Result<Self> {
        let heard = cluster::SimulatedNode::start(client.clone(), NAME, &[]).await?;
        let following = tokio::spawn(follow(client, namespace.to_owned()));
        Ok(Node { following, _heard: heard })
    }
}

async fn follow(client: Client, namespace: String) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut begun = HashSet::new();
    let mut stream = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    loop {
        match stream.try_next().await {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                let ends = pod.metadata.deletion_timestamp.is_some();
                if !ends && begun.insert(pod.uid().unwrap_or_default()) {
                    let client = client.clone();
                    let pod = Arc::new(pod);
                    tokio::spawn(async move {
                        // A pod that could not be run is not asked for again: the burst would not end, and say so.
                        if let Err(error) = run(&client, &pod).await {
                            eprintln!("pod {}: {error}", pod.name_any());
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

async fn run(client: &Client, pod: &Pod) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let target = json!({ "apiVersion": "v1", "kind": "Node", "name": NAME });
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": target });
    pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await?;
    let env = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.env.clone()).unwrap_or_default();
    let request = Request::from_env(|name| env.iter().find(|variable| variable.name == name)?.value.clone())?;
    if request.operation == Operation::Provision {
        let path = format!("/{}", request.claim_uuid);
        let nfs = NFSVolumeSource { server: "10.0.0.1".into(), path, read_only: None };
        let source = PersistentVolumeSpec { nfs: Some(nfs), ..PersistentVolumeSpec::default() };
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let volume = persistent_volume(&request, Made { source, ..Made::default() });
        volumes.create(&PostParams::default(), &volume).await?;
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now } });
    let container = json!({
        "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0, "state": end,
    });
    let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

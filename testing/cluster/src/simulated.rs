//! A node without a kubelet: the API has the node, and a test does the work of the kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;

/// The interval of heartbeats. After 40 seconds without a heartbeat, Kubernetes considers a node dead.
const BEAT: Duration = Duration::from_secs(10);

/// A node with heartbeats until this value is dropped.
#[derive(Debug)]
pub struct SimulatedNode(JoinHandle<()>);

impl SimulatedNode {
    /// Creates the node, with these labels beside those that each kubelet writes.
    ///
    /// # Errors
    /// The API server refuses the node, for example because one of that name exists.
    pub async fn start(client: Client, name: &str, labels: &[(&str, &str)]) -> Result<Self> {
        let nodes: Api<Node> = Api::all(client);
        let labels: BTreeMap<&str, &str> =
            [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")].iter().chain(labels).copied().collect();
        let node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
        nodes.create(&PostParams::default(), &node).await.with_context(|| format!("node {name}"))?;
        beat(&nodes, name).await.with_context(|| format!("status of node {name}"))?;
        let name = name.to_owned();
        Ok(SimulatedNode(tokio::spawn(async move {
            loop {
                tokio::time::sleep(BEAT).await;
                // A heartbeat that fails while the API server is down is repeated.
                let _ = beat(&nodes, &name).await;
            }
        })))
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn beat(nodes: &Api<Node>, name: &str) -> kube::Result<Node> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Simulated", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
    nodes.patch_status(name, &PatchParams::default(), &status).await
}

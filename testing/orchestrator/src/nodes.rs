//! Nodes, as far as the API knows them, and the scheduler's choice of one.

use flex_contract::names;
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LocalVolumeSource, Node, PersistentVolume, PersistentVolumeSpec, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::kubelet::request;
use crate::ring::Ring;

/// The key by which the scheduler selects the node of a volume.
pub const ON_NODE: (&str, &str) = ("placement", "selected-node");

impl Ring {
    /// Creates a node, as far as the API knows.
    pub async fn node(&self, name: &str) {
        let labels = json!({ names::HOSTNAME: name, names::OS: names::OS_LINUX });
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    /// Puts the pod of a Job on a new node, and returns the pod's name. From then on the pod ends when the test's
    /// kubelet says so; Kubernetes itself would end a pod without a node.
    pub async fn pod_on_node(&self, job: &Job, node: &str) -> String {
        self.node(node).await;
        let pod = self.pod_of(job).await;
        let name = pod.metadata.name.unwrap();
        let to_node = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let pods = self.api::<Pod>(job.metadata.namespace.as_deref().unwrap());
        pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &to_node).await.unwrap();
        name
    }

    /// Reports that the processes of a terminating pod have ended, as the kubelet does.
    pub async fn pod_is_over(&self, namespace: &str, name: &str) {
        self.api::<Pod>(namespace).delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Selects a node for the first pod of a claim, as the scheduler does.
    pub async fn select(&self, claim: &str, node: &str) {
        let body = json!({ "metadata": { "annotations": { names::SELECTED_NODE: node } } });
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(body)).await.unwrap();
    }

    pub async fn delayed_class(&self, name: &str, keys: &[(&str, &str)]) {
        let more = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
        self.class(name, names::DEFAULT_PROVISIONER, more).await;
        self.config(name, name, &[&[ON_NODE], keys].concat()).await;
    }
}

/// Builds the volume of an image that makes directories on its node.
pub fn local_volume(job: &Job, node: &str) -> PersistentVolume {
    let request = RunRequest { node_name: node.into(), ..request(job) };
    let path = format!("/data/{}", request.volume_id);
    let source = PersistentVolumeSpec {
        local: Some(LocalVolumeSource { path, fs_type: None }),
        ..PersistentVolumeSpec::default()
    };
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": names::HOSTNAME, "operator": "In", "values": [node] }] }] } });
    let mut volume = persistent_volume(&request, Made { source, ..Made::default() });
    volume.spec.as_mut().unwrap().node_affinity = serde_json::from_value(affinity).unwrap();
    volume
}

/// Returns the node on which the pod of a Job must run.
pub fn pinned_to(job: &Job) -> Option<String> {
    let affinity = json!(job.spec.as_ref()?.template.spec.as_ref()?.affinity);
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    let at = |kind: &str| terms[kind][0]["values"][0].as_str().map(str::to_owned);
    at("matchFields").or(at("matchExpressions"))
}

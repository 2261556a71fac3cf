//! Nodes: what attempts leave on them, and nodes that go.

use contract::exit;
use contract::names::{self, reason};
use contract::request::Request;
use contract::volume::{Made, persistent_volume};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LocalVolumeSource, Node, PersistentVolume, PersistentVolumeSpec};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::kubelet::request;
use crate::orchestrator::{ADMIN, Ring, annotation, uid};
use crate::wait::{seen, until};

const KEYS: &[(&str, &str)] = &[("volume-sources", "local:/data"), ("backoff", "1s")];

impl Ring {
    /// Creates a node, as far as the API goes.
    pub async fn node(&self, name: &str) {
        let node = json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: name } } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    async fn node_goes(&self, name: &str) {
        Api::<Node>::all(self.client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// What the scheduler does for the first pod of a claim.
    pub async fn select(&self, claim: &str, node: &str) {
        let body = json!({ "metadata": { "annotations": { names::SELECTED_NODE: node } } });
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(body)).await.unwrap();
    }

    /// Waits until the scheduler is asked for another node.
    async fn unselected(&self, claim: &str) {
        self.claim_when(claim, "has no selected node", |claim| annotation(claim, names::SELECTED_NODE).is_none()).await;
    }

    pub async fn delayed_class(&self, name: &str, keys: &[(&str, &str)]) {
        let more = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
        self.class(name, names::DEFAULT_PROVISIONER, more).await;
        self.config(name, name, keys).await;
    }

    /// Waits until a volume's storage is noted on these nodes only.
    async fn noted(&self, volume: &str, nodes: &str) {
        until(format!("volume {volume} is on {nodes}"), || async {
            let found = self.volumes().get(volume).await.map_err(|error| error.to_string())?;
            let noted = found.metadata.annotations.and_then(|all| all.get(names::NODES).cloned());
            if noted.as_deref() == Some(nodes) { Ok(()) } else { seen(noted) }
        })
        .await;
    }
}

/// The volume of an image that makes directories on its node.
pub fn local_volume(job: &Job, node: &str) -> PersistentVolume {
    let request = Request { node_name: node.into(), ..request(job) };
    let path = format!("/data/{}", request.claim_uuid);
    let source = PersistentVolumeSpec {
        local: Some(LocalVolumeSource { path, fs_type: None }),
        ..PersistentVolumeSpec::default()
    };
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": names::HOSTNAME, "operator": "In", "values": [node] }] }] } });
    let mut volume = persistent_volume(&request, Made { source, ..Made::default() });
    volume.spec.as_mut().unwrap().node_affinity = serde_json::from_value(affinity).unwrap();
    volume
}

/// Where the pod of a Job must run.
pub fn pinned_to(job: &Job) -> Option<String> {
    let affinity = json!(job.spec.as_ref()?.template.spec.as_ref()?.affinity);
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    let at = |kind: &str| terms[kind][0]["values"][0].as_str().map(str::to_owned);
    at("matchFields").or(at("matchExpressions"))
}

#[tokio::test]
async fn what_attempts_leave_on_other_nodes_is_deleted() {
    let ring = Ring::start().await;
    for node in ["n1", "n2", "n3"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", KEYS).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.get_claim("a").await);
    for (attempt, node) in [(1, "n1"), (2, "n2")] {
        ring.select("a", node).await;
        let job = ring.job(ADMIN, "provision", &id, attempt).await;
        assert_eq!(pinned_to(&job).as_deref(), Some(node));
        ring.pod_ends(&job, exit::UNAVAILABLE, "full").await;
        ring.unselected("a").await;
    }
    ring.select("a", "n3").await;
    let job = ring.job(ADMIN, "provision", &id, 3).await;
    let volume = local_volume(&job, "n3");
    ring.create_volume(&volume).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let name = volume.metadata.name.clone().unwrap();

    // While the claim is in use: on the nodes where its storage is not.
    for (node, left) in [("n1", "n2,n3"), ("n2", "n3")] {
        let job = ring.job_on("delete", &id, node).await;
        assert_eq!(request(&job).volume_source, "", "of the volume nothing is said");
        ring.pod_ends(&job, 0, "").await;
        ring.noted(&name, left).await;
    }
    ring.delete_claim("a").await;
    let job = ring.job_on("delete", &id, "n3").await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_node_that_is_gone_is_answered_as_the_class_says() {
    let ring = Ring::start().await;
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", KEYS).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.get_claim("a").await);
    // The selected node goes before the attempt begins, and another while it waits there.
    ring.select("a", "never-was").await;
    ring.event(&ring.user, "a", reason::RESCHEDULING, "the selected node never-was is gone").await;
    ring.unselected("a").await;
    ring.select("a", "n1").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let volume = local_volume(&job, "n1");
    ring.create_volume(&volume).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let name = volume.metadata.name.clone().unwrap();
    ring.node_goes("n1").await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "node n1, where something is to be deleted, is gone")
        .await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty(), "nothing is run where nothing can be reached");
    // What the class says now counts.
    ring.config("c", "c", &[KEYS, &[("node-gone", "run-elsewhere")]].concat()).await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!((pinned_to(&job), request(&job).node_name.as_str()), (None, "n1"));
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;

    // The same for a claim that goes half-way, forgotten.
    ring.config("c", "c", &[KEYS, &[("node-gone", "forget")]].concat()).await;
    ring.claim("b", "c").await;
    let id = uid(&ring.get_claim("b").await);
    ring.select("b", "n2").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_ends(&job, exit::TEMPFAIL, "half made").await;
    ring.event(&ring.user, "b", reason::PROVISIONING_FAILED, "half made").await;
    ring.node_goes("n2").await;
    ring.delete_claim("b").await;
    ring.claim_gone("b").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

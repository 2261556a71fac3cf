//! Tests of nodes: storage that attempts leave on them, and nodes that disappear.

use flex_contract::exit;
use flex_contract::names::{self, reason};
use flex_contract::request::RunRequest;
use flex_contract::volume::{Made, persistent_volume};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LocalVolumeSource, Node, PersistentVolume, PersistentVolumeSpec, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::kubelet::request;
use crate::orchestrator::{ADMIN, Ring, annotation, uid};
use crate::wait::{unexpected, until};

const ON_NODE: (&str, &str) = ("placement", "selected-node");
const KEYS: &[(&str, &str)] = &[("volume-sources", "local:/data"), ("backoff", "1s"), ON_NODE];

impl Ring {
    /// Creates a node, as far as the API knows.
    pub async fn node(&self, name: &str) {
        let node = json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: name } } });
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

    async fn delete_node(&self, name: &str) {
        Api::<Node>::all(self.client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Selects a node for the first pod of a claim, as the scheduler does.
    pub async fn select(&self, claim: &str, node: &str) {
        let body = json!({ "metadata": { "annotations": { names::SELECTED_NODE: node } } });
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(body)).await.unwrap();
    }

    /// Waits until the orchestrator asks the scheduler for another node.
    async fn unselected(&self, claim: &str) {
        self.claim_when(claim, "has no selected node", |claim| annotation(claim, names::SELECTED_NODE).is_none()).await;
    }

    pub async fn delayed_class(&self, name: &str, keys: &[(&str, &str)]) {
        let more = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
        self.class(name, names::DEFAULT_PROVISIONER, more).await;
        self.config(name, name, &[&[ON_NODE], keys].concat()).await;
    }

    /// Waits until a volume's storage is noted on these nodes only.
    async fn noted(&self, volume: &str, nodes: &str) {
        until(format!("volume {volume} is on {nodes}"), || async {
            let found = self.volumes().get(volume).await.map_err(|error| error.to_string())?;
            let noted = found.metadata.annotations.and_then(|all| all.get(names::NODES).cloned());
            if noted.as_deref() == Some(nodes) { Ok(()) } else { unexpected(noted) }
        })
        .await;
    }
}

/// Builds the volume of an image that makes directories on its node.
pub fn local_volume(job: &Job, node: &str) -> PersistentVolume {
    let request = RunRequest { node_name: node.into(), ..request(job) };
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

/// Returns the node on which the pod of a Job must run.
pub fn pinned_to(job: &Job) -> Option<String> {
    let affinity = json!(job.spec.as_ref()?.template.spec.as_ref()?.affinity);
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    let at = |kind: &str| terms[kind][0]["values"][0].as_str().map(str::to_owned);
    at("matchFields").or(at("matchExpressions"))
}

#[tokio::test]
async fn leftovers_of_attempts_on_other_nodes_are_deleted() {
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

    // While the claim is in use, delete runs clean the nodes that do not have its volume.
    for (node, remaining) in [("n1", "n2,n3"), ("n2", "n3")] {
        let job = ring.job_on("delete", &id, node).await;
        assert_eq!(request(&job).volume_source, "", "the request does not name the volume");
        ring.pod_ends(&job, 0, "").await;
        ring.noted(&name, remaining).await;
    }
    ring.delete_claim("a").await;
    let job = ring.job_on("delete", &id, "n3").await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_deleted_node_is_handled_as_the_class_says() {
    let ring = Ring::start().await;
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", KEYS).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.get_claim("a").await);
    // The selected node is deleted before the attempt begins, and another one while the attempt waits there.
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
    ring.delete_node("n1").await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "node n1, where something must be deleted, is gone")
        .await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty(), "no run begins on an unreachable node");
    // The class's present setting counts.
    ring.config("c", "c", &[KEYS, &[("node-gone", "run-elsewhere")]].concat()).await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!((pinned_to(&job), request(&job).node_name.as_str()), (None, "n1"));
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;

    // The same for a claim that is deleted half-way, with the setting to forget the node.
    ring.config("c", "c", &[KEYS, &[("node-gone", "forget")]].concat()).await;
    ring.claim("b", "c").await;
    let id = uid(&ring.get_claim("b").await);
    ring.select("b", "n2").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_ends(&job, exit::TEMPFAIL, "half made").await;
    ring.event(&ring.user, "b", reason::PROVISIONING_FAILED, "half made").await;
    ring.delete_node("n2").await;
    ring.delete_claim("b").await;
    ring.claim_gone("b").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

const ZONE: &str = "topology.kubernetes.io/zone";

/// Three nodes in two zones.
async fn zones(ring: &Ring) {
    let nodes: Api<Node> = Api::all(ring.client.clone());
    for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "b")] {
        let node = json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: name, ZONE: zone } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
}

/// A class whose volumes may be in zone b alone.
async fn class_of_zone_b(ring: &Ring, name: &str, binding: &str, keys: &[(&str, &str)]) {
    let zone = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["b"] }] }]);
    let more = json!({ "volumeBindingMode": binding, "allowedTopologies": zone });
    ring.class(name, names::DEFAULT_PROVISIONER, more).await;
    ring.config(name, name, &[&[ON_NODE], keys].concat()).await;
}

/// Returns the required terms of a Job's pod as they are written.
fn terms(job: &Job) -> serde_json::Value {
    let affinity = json!(job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().affinity);
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
}

/// Returns the required terms of a volume.
async fn terms_of(ring: &Ring, volume: &str) -> serde_json::Value {
    let spec = ring.volumes().get(volume).await.unwrap().spec.unwrap();
    json!(spec.node_affinity)["required"]["nodeSelectorTerms"].clone()
}

#[tokio::test]
async fn a_selected_node_outside_of_the_allowed_topologies_is_not_used() {
    let ring = Ring::start().await;
    zones(&ring).await;
    class_of_zone_b(&ring, "c", "WaitForFirstConsumer", &[("volume-affinity", ZONE), ("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    ring.select("a", "n1").await;
    let reason_text = "the selected node n1 is outside the allowedTopologies of class c";
    ring.event(&ring.user, "a", reason::RESCHEDULING, reason_text).await;
    ring.unselected("a").await;
    let claim = ring.get_claim("a").await;
    let id = uid(&claim);
    assert!(annotation(&claim, names::ATTEMPT).is_none() && ring.jobs(ADMIN, "provision", &id).await.is_empty());
    ring.select("a", "n2").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let zone = json!({ "key": ZONE, "operator": "In", "values": ["b"] });
    let name = json!({ "key": "metadata.name", "operator": "In", "values": ["n2"] });
    assert_eq!(terms(&job), json!([{ "matchExpressions": [zone], "matchFields": [name] }]));
    assert_eq!(request(&job).class_topologies, format!(r#"[{{"{ZONE}":["b"]}}]"#));
    // That zone has no space: the scheduler selects a node of another zone, and then the last one.
    ring.pod_ends(&job, exit::UNAVAILABLE, "full").await;
    ring.unselected("a").await;
    ring.select("a", "n1").await;
    ring.unselected("a").await;
    ring.select("a", "n3").await;
    let job = ring.job(ADMIN, "provision", &id, 2).await;
    // The image names no nodes: its volume is bound to the zone of the node on which it was made.
    ring.create_volume(&crate::kubelet::nfs_volume(&job)).await;
    ring.bound("a").await;
    assert_eq!(terms_of(&ring, &names::pv_name(&id)).await, json!([{ "matchExpressions": [zone] }]));
    let delete = |job: &Job| terms(job).as_array().map(|terms| terms.len());
    ring.pod_ends(&job, 0, "").await;
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!((pinned_to(&job).as_deref(), delete(&job)), (Some("n3"), Some(1)));
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&names::pv_name(&id)).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn an_immediate_class_makes_and_binds_its_volumes_in_the_allowed_topologies() {
    let ring = Ring::start().await;
    zones(&ring).await;
    let keys = [("volume-affinity", names::HOSTNAME), ("backoff", "1s")];
    class_of_zone_b(&ring, "c", "Immediate", &keys).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let first = pinned_to(&job).expect("without a scheduler the orchestrator chooses a node");
    let other = if first == "n2" { "n3" } else { "n2" };
    let zone = json!({ "key": ZONE, "operator": "In", "values": ["b"] });
    let name = json!({ "key": "metadata.name", "operator": "In", "values": [first] });
    assert_eq!(terms(&job), json!([{ "matchExpressions": [zone], "matchFields": [name] }]));
    // A failure on the node is retried there; then the node has no space, and another node follows at once.
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &id, 2).await;
    assert_eq!(pinned_to(&job).as_ref(), Some(&first));
    ring.pod_ends(&job, exit::UNAVAILABLE, "full").await;
    ring.event(
        &ring.user,
        "a",
        reason::PROVISIONING_FAILED,
        "attempt 2 failed: exit code 69: no room here: full; the provisioner tries another node",
    )
    .await;
    let job = ring.job(ADMIN, "provision", &id, 3).await;
    assert_eq!(pinned_to(&job).as_deref(), Some(other));
    let volume = names::pv_name(&id);
    ring.create_volume(&crate::kubelet::nfs_volume(&job)).await;
    ring.bound("a").await;
    let host = json!({ "key": names::HOSTNAME, "operator": "In", "values": [other] });
    assert_eq!(terms_of(&ring, &volume).await, json!([{ "matchExpressions": [host] }]));
    ring.pod_ends(&job, 0, "").await;
    // The volume is bound to one host, so that the other host can only have leftovers.
    let job = ring.job_on("delete", &id, &first).await;
    ring.pod_ends(&job, 0, "").await;
    ring.noted(&volume, other).await;
    ring.delete_claim("a").await;
    let job = ring.job_on("delete", &id, other).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;

    // Storage on the network is made from any node; the request names the allowed topologies, and the image reports
    // where the volume is.
    class_of_zone_b(&ring, "any", "Immediate", &[("placement", "any")]).await;
    ring.claim("b", "any").await;
    let (job, volume) = ring.provision("b").await;
    assert!(terms(&job).is_null());
    assert_eq!(request(&job).class_topologies, format!(r#"[{{"{ZONE}":["b"]}}]"#));
    assert!(terms_of(&ring, volume.metadata.name.as_deref().unwrap()).await.is_null());
}

#[tokio::test]
async fn a_volume_that_cannot_be_bound_to_its_topology_waits_and_says_why() {
    let ring = Ring::start().await;
    ring.node("n1").await;
    ring.delayed_class("c", &[("volume-affinity", ZONE), ("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    ring.select("a", "n1").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.create_volume(&crate::kubelet::nfs_volume(&job)).await;
    ring.event(&ring.user, "a", reason::VOLUME_REFUSED, "the node n1 lacks the label topology.kubernetes.io/zone")
        .await;
    // The admin fixes the node; the next reconciliation of the claim binds the volume.
    let labels = json!({ "metadata": { "labels": { ZONE: "a" } } });
    let nodes: Api<Node> = Api::all(ring.client.clone());
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    ring.bound("a").await;
    let zone = json!({ "key": ZONE, "operator": "In", "values": ["a"] });
    assert_eq!(terms_of(&ring, &names::pv_name(&id)).await, json!([{ "matchExpressions": [zone] }]));
}

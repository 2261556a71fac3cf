//! Tests of nodes: storage that attempts leave on them, and nodes that disappear.

use flex_contract::exit;
use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::nodes::{ON_NODE, local_volume, pinned_to};
use orchestrator::ring::{ADMIN, Ring, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};

const KEYS: &[(&str, &str)] = &[("volume-sources", "local:/data"), ("backoff", "1s"), ON_NODE];

async fn delete_node(ring: &Ring, name: &str) {
    Api::<Node>::all(ring.client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until the orchestrator asks the scheduler for another node.
async fn unselected(ring: &Ring, claim: &str) {
    ring.claim_when(claim, "has no selected node", |claim| annotation(claim, names::SELECTED_NODE).is_none()).await;
}

/// Waits until a volume's storage is noted on these nodes only.
async fn noted(ring: &Ring, volume: &str, nodes: &str) {
    until(format!("volume {volume} is on {nodes}"), || async {
        let found = ring.volumes().get(volume).await.map_err(|error| error.to_string())?;
        let noted = found.metadata.annotations.and_then(|all| all.get(names::NODES).cloned());
        if noted.as_deref() == Some(nodes) { Ok(()) } else { unexpected(noted) }
    })
    .await;
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
        unselected(&ring, "a").await;
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
        noted(&ring, &name, remaining).await;
    }
    ring.delete_claim("a").await;
    let job = ring.job_on("delete", &id, "n3").await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

/// The scheduler has selected another node for the second attempt, but the storage is on none.
#[tokio::test]
async fn no_delete_run_follows_earlier_attempts_for_storage_that_is_on_no_node() {
    let ring = Ring::start().await;
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", &[("placement", "any"), ("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.get_claim("a").await);
    ring.select("a", "n1").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    assert_eq!((request(&job).node_name.as_str(), pinned_to(&job)), ("n1", None));
    ring.select("a", "n2").await;
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &id, 2).await;
    assert_eq!(request(&job).node_name, "n2");
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let noted = ring.volume_of("a").await.metadata.annotations.and_then(|all| all.get(names::NODES).cloned());
    assert_eq!(noted, None);
    stays("no delete run begins", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "delete", &id).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!(pinned_to(&job), None);
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&names::pv_name(&id)).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

/// A StatefulSet makes the claim of a lost pod again within a second.
#[tokio::test]
async fn a_claim_that_is_made_again_with_another_class_does_not_wait_for_a_node_that_died() {
    let mut ring = Ring::start().await;
    ring.node("n1").await;
    ring.delayed_class("local", &[("volume-sources", "local:/data"), ("backoff", "1h..2h")]).await;
    ring.config("other", "other", &[]).await;
    ring.claim("data-0", "local").await;
    let first = uid(&ring.get_claim("data-0").await);
    ring.select("data-0", "n1").await;
    let job = ring.job(ADMIN, "provision", &first, 1).await;
    ring.pod_ends(&job, exit::TEMPFAIL, "half made").await;
    ring.claim_when("data-0", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    delete_node(&ring, "n1").await;
    ring.catch_up().await;
    ring.delete_claim("data-0").await;
    ring.claim_vanished("data-0").await;
    let second = uid(&ring.claim("data-0", "other").await);
    let job = ring.job(ADMIN, "provision", &second, 1).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("data-0").await;
    ring.pod_ends(&job, 0, "").await;
    assert!(ring.jobs(ADMIN, "delete", &first).await.is_empty(), "no run begins on a node that is gone");

    // The node comes back, and what the first claim left there goes.
    ring.node("n1").await;
    let job = ring.job_on("delete", &first, "n1").await;
    ring.pod_ends(&job, 0, "").await;
    ring.no_records().await;
    ring.deleted_with_volume("data-0").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_deleted_node_is_handled_as_the_class_says() {
    let mut ring = Ring::start().await;
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", KEYS).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.get_claim("a").await);
    // The selected node is deleted before the attempt begins, and another one while the attempt waits there.
    ring.select("a", "never-was").await;
    ring.event(&ring.user, "a", reason::RESCHEDULING, "the selected node never-was is gone").await;
    unselected(&ring, "a").await;
    ring.select("a", "n1").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let volume = local_volume(&job, "n1");
    ring.create_volume(&volume).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let name = volume.metadata.name.clone().unwrap();
    delete_node(&ring, "n1").await;
    ring.catch_up().await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "node n1 is gone, and storage on it must be deleted")
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
    delete_node(&ring, "n2").await;
    ring.catch_up().await;
    ring.delete_claim("b").await;
    ring.claim_gone("b").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

const ZONE: &str = "topology.kubernetes.io/zone";

/// Starts an orchestrator that knows three nodes in two zones.
async fn zones() -> Ring {
    let mut ring = Ring::without_orchestrator(&[]).await;
    let nodes: Api<Node> = Api::all(ring.client.clone());
    for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "b")] {
        let node = json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: name, names::OS: names::OS_LINUX, ZONE: zone } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    ring.run().await;
    ring
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
    let ring = zones().await;
    class_of_zone_b(&ring, "c", "WaitForFirstConsumer", &[("volume-affinity", ZONE), ("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    ring.select("a", "n1").await;
    let reason_text = "the selected node n1 is outside the allowedTopologies of class c";
    ring.event(&ring.user, "a", reason::RESCHEDULING, reason_text).await;
    unselected(&ring, "a").await;
    let claim = ring.get_claim("a").await;
    let id = uid(&claim);
    assert!(annotation(&claim, names::ATTEMPT).is_none() && ring.jobs(ADMIN, "provision", &id).await.is_empty());
    ring.select("a", "n2").await;
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let zone = json!({ "key": ZONE, "operator": "In", "values": ["b"] });
    let name = json!({ "key": "metadata.name", "operator": "In", "values": ["n2"] });
    assert_eq!(terms(&job), json!([{ "matchExpressions": [zone], "matchFields": [name] }]));
    assert_eq!(request(&job).class_topologies, format!(r#"[{{"{ZONE}":["b"]}}]"#));
    // The zone has no space: the scheduler selects a node of another zone, and then the last node.
    ring.pod_ends(&job, exit::UNAVAILABLE, "full").await;
    unselected(&ring, "a").await;
    ring.select("a", "n1").await;
    unselected(&ring, "a").await;
    ring.select("a", "n3").await;
    let job = ring.job(ADMIN, "provision", &id, 2).await;
    // The image names no nodes: its volume is bound to the zone of the node on which it was made.
    ring.create_volume(&nfs_volume(&job)).await;
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
    let ring = zones().await;
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
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    let host = json!({ "key": names::HOSTNAME, "operator": "In", "values": [other] });
    assert_eq!(terms_of(&ring, &volume).await, json!([{ "matchExpressions": [host] }]));
    ring.pod_ends(&job, 0, "").await;
    // The volume is bound to one host, so that the other host can only have leftovers.
    let job = ring.job_on("delete", &id, &first).await;
    ring.pod_ends(&job, 0, "").await;
    noted(&ring, &volume, other).await;
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
    ring.create_volume(&nfs_volume(&job)).await;
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

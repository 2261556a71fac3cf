//! Tests of storage that is on another node than its record says, while it is in use and has snapshots.

use std::pin::pin;

use flex_contract::names;
use flex_contract::reason;
use flex_core::model::volume::Volume;
use futures::stream::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use orchestrator::backup::flex;
use orchestrator::nodes::{ON_NODE, local_volume, pinned_to};
use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::GUARD;
use serde_json::{Value, json};

const KEYS: &[(&str, &str)] = &[ON_NODE, ("volume-sources", "local:/data"), ("reclaim-policy", "Delete")];

/// Serves a class whose volumes are on nodes, with a capability.
async fn class(ring: &Ring, capability: &str) {
    let more = json!({ "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true });
    ring.class("c", names::DEFAULT_PROVISIONER, more).await;
    ring.config("c", "c", &[KEYS, &[("capabilities", capability)]].concat()).await;
}

/// Binds a claim to a volume on a node. Returns the id.
async fn bound_on(ring: &Ring, claim: &str, node: &str) -> String {
    ring.claim(claim, "c").await;
    ring.select(claim, node).await;
    let id = uid(&ring.stamped(claim).await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.create_volume(&local_volume(&job, node)).await;
    ring.bound(claim).await;
    ring.pod_ends(&job, 0, "").await;
    id
}

/// Starts a cluster in which a volume on the node n1 has a snapshot. Returns the volume's name and the snapshot's UID.
async fn with_snapshot() -> (Ring, String, String) {
    let ring = Ring::with_snapshots().await;
    ring.node("n1").await;
    class(&ring, "snapshot").await;
    let name = names::pv_name(&bound_on(&ring, "a", "n1").await);
    let snapshot = ring.snapshot("monday", "a").await;
    let job = ring.job(ADMIN, "snapshot", &snapshot, 1).await;
    assert_eq!(pinned_to(&job).as_deref(), Some("n1"));
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;
    (ring, name, snapshot)
}

/// Waits for the run that deletes the snapshot on the renamed node, and ends it.
async fn deleted_on_renamed(ring: &Ring, snapshot: &str) {
    let delete = ring.job(ADMIN, "delete-snapshot", snapshot, 1).await;
    assert_eq!(pinned_to(&delete).as_deref(), Some("n1-new"));
    ring.pod_ends(&delete, 0, "").await;
    ring.content_gone(&names::content_name(snapshot)).await;
}

/// Gives the node n1 another name. Its disk and its label stay.
async fn rename(ring: &Ring) {
    let nodes: Api<Node> = Api::all(ring.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    let node =
        json!({ "metadata": { "name": "n1-new", "labels": { names::HOSTNAME: "n1", names::OS: names::OS_LINUX } } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
}

fn said(ring: &Ring, arguments: &[&str]) -> String {
    let output = flex(ring, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The orchestrator takes no state in between for a volume that a backup tool has restored.
#[tokio::test]
async fn a_volume_in_use_and_its_snapshots_get_another_node_by_vouch() {
    let (ring, name, snapshot) = with_snapshot().await;
    rename(&ring).await;

    let node_of = async || {
        let content = ring.content(&snapshot).await;
        let record: Value = serde_json::from_str(&content.annotations()[names::PROVENANCE]).unwrap();
        assert_eq!(record["content_uid"].as_str(), content.metadata.uid.as_deref());
        record["node"].as_str().unwrap_or_default().to_owned()
    };
    let moves = format!(
        "snapshot {}/monday (VolumeSnapshotContent {}): from node n1 to node n1-new",
        ring.user,
        names::content_name(&snapshot)
    );
    let shown = said(&ring, &["vouch", "--dry-run", "--node", "n1-new", &name]);
    assert!(shown.contains(&moves) && shown.contains("would be confirmed"), "{shown}");
    assert_eq!(node_of().await, "n1");

    let volumes = ring.volumes();
    let version = volumes.get(&name).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut versions = pin!(volumes.watch(&params, &version).await.unwrap());
    let shown = said(&ring, &["vouch", "--node", "n1-new", &name]);
    assert!(shown.contains(&moves), "{shown}");
    loop {
        let event = tokio::time::timeout(GUARD, versions.next()).await.expect("the record changes");
        let volume = match event {
            Some(Ok(WatchEvent::Modified(volume))) => Volume::from(&volume),
            Some(Ok(WatchEvent::Bookmark(_))) => continue,
            other => panic!("the watch ends with {other:?}"),
        };
        assert!(volume.is_adopted(), "its mark is always that of its record: {volume:?}");
        if volume.origin_node().as_deref() == Some("n1-new") {
            break;
        }
    }
    assert_eq!(node_of().await, "n1-new");

    ring.delete_snapshot("monday").await;
    deleted_on_renamed(&ring, &snapshot).await;
}

/// A snapshot may outlive its volume.
#[tokio::test]
async fn a_snapshot_whose_volume_is_gone_gets_another_node_by_vouch() {
    let (mut ring, name, snapshot) = with_snapshot().await;
    ring.deleted_with_volume("a").await;
    rename(&ring).await;
    ring.catch_up().await;
    ring.delete_snapshot("monday").await;
    ring.event(&ring.user, "monday", reason::SNAPSHOT_DELETION_FAILED, "node n1, which stores the snapshot, is gone")
        .await;
    let refused = flex(&ring, &["vouch", "--node", "n2", &name]);
    let why = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && why.contains("node n2 does not exist"), "{why}");
    let shown = said(&ring, &["vouch", "--node", "n1-new", &name]);
    assert!(shown.contains("its snapshots are confirmed"), "{shown}");
    deleted_on_renamed(&ring, &snapshot).await;
}

#[tokio::test]
async fn a_claim_that_grows_on_a_lost_node_says_how_to_name_another() {
    let mut ring = Ring::start().await;
    ring.node("n1").await;
    class(&ring, "expand").await;
    let id = bound_on(&ring, "a", "n1").await;
    let name = names::pv_name(&id);
    rename(&ring).await;
    ring.catch_up().await;
    ring.ask("a", "3Gi").await.unwrap();
    let job = ring.job_on("expand", &id, "n1").await;
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" });
    ring.pod_status(&job, json!({ "phase": "Pending", "conditions": [condition] })).await;
    let message = ring.event(&ring.user, "a", reason::VOLUME_RESIZE_FAILED, "it must run on node n1").await;
    let says =
        format!("node n1, which does not exist; if its storage is on another node: `flex-provisioner vouch {name}");
    assert!(message.contains(&says) && !message.contains("tolerations"), "{message}");

    said(&ring, &["vouch", "--node", "n1-new", &name]);
    let job = ring.job_on("expand", &id, "n1-new").await;
    ring.pod_ends(&job, 0, "").await;
    ring.has_size("a", &name, "3Gi").await;
}

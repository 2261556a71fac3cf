//! Tests of snapshots, and of claims that are restored from them: alone, and together with the snapshot-controller of
//! kubernetes-csi.

use flex_contract::exit;
use flex_contract::names;
use flex_contract::reason;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::nodes::{local_volume, pinned_to};
use orchestrator::ring::{ADMIN, Ring, WHILE, annotation, uid};
use orchestrator::snapshots::*;
use orchestrator::wait::{stays, unexpected};

/// A part of the event on a claim from a snapshot in a cluster without the custom resources.
const NOT_SERVED: &str = "this cluster serves no VolumeSnapshots";

#[tokio::test]
async fn a_snapshot_outlives_its_source_and_becomes_a_larger_claim() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.logged("snapshots are off: the cluster does not have the custom resources").await;
    ring.config(
        "c",
        "c",
        &[("capabilities", "snapshot"), ("placement", "any"), ("reclaim-policy", "Delete"), ("backoff", "1s")],
    )
    .await;
    ring.claim("source", "c").await;
    ring.provision("source").await;
    let source = uid(&ring.get_claim("source").await);
    ring.claim_with("early", "c", from("friday", "1Gi")).await;
    ring.event(&ring.user, "early", reason::WAITING_FOR_PROVISIONER, NOT_SERVED).await;
    // The orchestrator notices the new kinds without a restart.
    ring.serve_snapshots().await;
    let absent = "VolumeSnapshot team/friday, the data source of this claim, does not exist";
    ring.event(&ring.user, "early", reason::WAITING_FOR_PROVISIONER, absent).await;
    ring.delete_claim("early").await;
    ring.claim_gone("early").await;
    let id = ring.snapshot("monday", "source").await;
    let job = ring.job(ADMIN, "snapshot", &id, 1).await;
    let asked = request(&job);
    let snapshot_request = asked.snapshot.expect("the request names the snapshot");
    assert_eq!(
        (snapshot_request.id.as_str(), snapshot_request.of.as_str(), snapshot_request.size_bytes),
        (id.as_str(), source.as_str(), Some(1 << 30))
    );
    assert_eq!((snapshot_request.namespace.as_str(), snapshot_request.name.as_str()), ("team", "monday"));
    assert_eq!((asked.volume_id.as_str(), asked.pv_name), (source.as_str(), names::pv_name(&source)));
    assert_eq!(asked.volume_source, format!(r#"{{"nfs":{{"path":"/{source}","server":"10.0.0.1"}}}}"#));
    // The source is deleted while it is read: it stays, and an event says for which snapshot.
    ring.source_protected_for("source", &[&id]).await;
    ring.delete_claim("source").await;
    ring.event(&ring.user, "source", reason::BEING_CLONED, "snapshots are made: team/monday").await;
    ring.pod_ends(&job, exit::TEMPFAIL, "the array is busy").await;
    ring.snapshot_says("monday", "the array is busy").await;
    ring.event(&ring.user, "monday", reason::SNAPSHOT_CREATION_FAILED, "snapshot run 1 failed").await;
    let job = ring.job(ADMIN, "snapshot", &id, 2).await;
    ring.pod_ends(&job, 0, "flex-snapshot 1 snap-7").await;
    let ready = ring.snapshot_ready("monday").await.status.unwrap();
    assert_eq!(ready.restore_size.as_deref(), Some("1Gi"));
    assert_eq!(ready.bound_volume_snapshot_content_name, Some(names::content_name(&id)));
    assert!(ready.creation_time.is_some());
    // The storage's own id is kept for the later runs.
    assert_eq!(ring.content(&id).await.status.unwrap().snapshot_handle.as_deref(), Some("snap-7"));
    // The source is deleted, the snapshot stays.
    ring.claim_gone("source").await;
    let delete = ring.job(ADMIN, "delete", &source, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&source)).await;

    ring.claim_with("restored", "c", from("monday", "2Gi")).await;
    let restored = uid(&ring.stamped("restored").await);
    let job = ring.job(ADMIN, "provision", &restored, 1).await;
    let asked = request(&job);
    let snapshot_request = asked.snapshot.expect("the request names the snapshot");
    assert_eq!(
        (snapshot_request.id.as_str(), snapshot_request.of.as_str(), snapshot_request.size_bytes),
        (id.as_str(), source.as_str(), Some(1 << 30))
    );
    assert_eq!(snapshot_request.handle, "snap-7");
    assert_eq!((asked.size_bytes, asked.clone_of), (2 << 30, None));
    // The snapshot is deleted while it is read.
    ring.delete_snapshot("monday").await;
    ring.event(&ring.user, "monday", reason::SNAPSHOT_IN_USE, "filled from it: team/restored").await;
    assert!(ring.jobs(ADMIN, "delete-snapshot", &id).await.is_empty());
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("restored").await;
    ring.pod_ends(&job, 0, "").await;
    let delete = ring.job(ADMIN, "delete-snapshot", &id, 1).await;
    assert_eq!(request(&delete).snapshot.expect("the request names the snapshot").handle, "snap-7");
    ring.snapshot_deleted(&id).await;
    ring.content_gone(&names::content_name(&id)).await;
    ring.snapshot_gone("monday").await;
    ring.deleted_with_volume("restored").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn impossible_snapshots_and_restores_are_reported_and_can_be_fixed() {
    let ring = Ring::with_snapshots().await;
    ring.config("cannot", "cannot", &[("placement", "any")]).await;
    let keys = [("capabilities", "snapshot"), ("placement", "any"), ("volume-mode", "Filesystem, Block")];
    ring.config("c", "c", &keys).await;
    ring.claim("plain", "cannot").await;
    ring.provision("plain").await;
    let id = ring.snapshot("early", "later").await;
    ring.snapshot_says("early", "claim team/later, the source of the snapshot, does not exist").await;
    ring.event(&ring.user, "early", reason::SNAPSHOT_CREATION_FAILED, "the provisioner waits for it").await;
    ring.snapshot("refused", "plain").await;
    ring.snapshot_says(
        "refused",
        "admin/cannot does not declare that its image can make snapshots (`capabilities: snapshot`)",
    )
    .await;
    ring.snapshot_from("nameless", Value::Null, json!({ "persistentVolumeClaimName": "plain" })).await;
    ring.snapshot_says("nameless", "names no VolumeSnapshotClass, and none of driver").await;
    // The claim is created.
    ring.claim("later", "c").await;
    ring.provision("later").await;
    let job = ring.job(ADMIN, "snapshot", &id, 1).await;
    ring.claim_with("waits", "c", from("early", "1Gi")).await;
    ring.event(
        &ring.user,
        "waits",
        reason::WAITING_FOR_PROVISIONER,
        "VolumeSnapshot team/early, the data source of this claim, is not ready",
    )
    .await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("early").await;
    ring.provision("waits").await;
    // The config learns to snapshot; a default class is created.
    ring.config("cannot", "cannot", &[("capabilities", "snapshot"), ("placement", "any")]).await;
    let annotations = json!({ "metadata": { "annotations": { names::DEFAULT_SNAPSHOT_CLASS: "true" } } });
    ring.snapshot_class("default", "Retain", annotations).await;
    for name in ["refused", "nameless"] {
        let id = ring.snapshots().get(name).await.unwrap().metadata.uid.unwrap();
        let job = ring.job(ADMIN, "snapshot", &id, 1).await;
        ring.pod_ends(&job, 0, "").await;
        ring.snapshot_ready(name).await;
    }
    let class = ring.snapshots().get("nameless").await.unwrap().spec.volume_snapshot_class_name;
    assert_eq!(class.as_deref(), Some("default"));
    // Claims that cannot be made from the snapshot.
    let mut block = from("early", "1Gi");
    block["spec"]["volumeMode"] = json!("Block");
    let cases = [
        ("small", "c", from("early", "1Mi"), "is of a volume of 1Gi, this claim asks for 1Mi"),
        ("block", "c", block, "is of a volume of mode Filesystem, this claim has Block"),
        ("other", "cannot", from("early", "1Gi"), "is of a volume of class c"),
        ("nothing", "c", from("tuesday", "1Gi"), "does not exist; the provisioner waits for it"),
    ];
    for (name, class, more, says) in cases {
        ring.claim_with(name, class, more).await;
        ring.event(&ring.user, name, reason::WAITING_FOR_PROVISIONER, says).await;
        assert_eq!(annotation(&ring.get_claim(name).await, names::ATTEMPT), None, "{name} has no attempt");
    }
    ring.config("unable", "unable", &[("placement", "any")]).await;
    ring.claim_with("unable", "unable", from("early", "1Gi")).await;
    ring.event(&ring.user, "unable", reason::PROVISIONING_FAILED, "admin/unable of class unable does not declare")
        .await;
    // A retained content stays when its VolumeSnapshot is deleted.
    let kept = ring.snapshots().get("nameless").await.unwrap().metadata.uid.unwrap();
    ring.delete_snapshot("nameless").await;
    ring.snapshot_gone("nameless").await;
    assert!(ring.content(&kept).await.metadata.deletion_timestamp.is_none());
    ring.contents().delete(&names::content_name(&kept), &DeleteParams::default()).await.unwrap();
    ring.content_gone(&names::content_name(&kept)).await;
    assert!(ring.jobs(ADMIN, "delete-snapshot", &kept).await.is_empty());
}

#[tokio::test]
async fn an_existing_snapshot_is_bound_restored_and_deleted_by_its_class() {
    let ring = Ring::with_snapshots().await;
    ring.snapshot_class("known", "Delete", json!({ "parameters": { "storage-class": "c" } })).await;
    ring.config("c", "c", &[("capabilities", "snapshot"), ("placement", "any"), ("zone", "west")]).await;
    for (name, class) in [("known", Some("known")), ("unknown", None)] {
        let content = json!({
            "metadata": { "name": name },
            "spec": {
                "deletionPolicy": "Delete", "driver": names::DEFAULT_PROVISIONER, "source": { "snapshotHandle": format!("by-hand/{name}") },
                "volumeSnapshotClassName": class, "volumeSnapshotRef": { "namespace": ring.user, "name": name },
            },
        });
        let content = serde_json::from_value(content).unwrap();
        ring.contents().create(&PostParams::default(), &content).await.unwrap();
        ring.snapshot_from(name, json!(class), json!({ "volumeSnapshotContentName": name })).await;
        ring.snapshot_ready(name).await;
    }
    ring.claim_with("restored", "c", from("known", "1Gi")).await;
    let (job, _) = ring.provision("restored").await;
    assert_eq!(request(&job).snapshot.unwrap().id, "by-hand/known");
    ring.delete_snapshot("known").await;
    let run = ring.contents().get("known").await.unwrap().metadata.uid.unwrap();
    let delete = ring.job(ADMIN, "delete-snapshot", &run, 1).await;
    let asked = request(&delete);
    assert_eq!((asked.snapshot.unwrap().id.as_str(), asked.storage_class.as_str()), ("by-hand/known", "c"));
    ring.pod_ends(&delete, 0, "").await;
    ring.snapshot_gone("known").await;
    // The orchestrator does not know how to delete the other one, until an admin abandons it.
    ring.delete_snapshot("unknown").await;
    ring.event(&ring.user, "unknown", reason::SNAPSHOT_DELETION_FAILED, "does not name a StorageClass of this driver")
        .await;
    let abandon = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.contents().patch("unknown", &PatchParams::default(), &Patch::Merge(abandon)).await.unwrap();
    ring.snapshot_gone("unknown").await;
}

#[tokio::test]
async fn snapshots_of_a_volume_on_a_node_are_made_restored_and_deleted_there() {
    let ring = Ring::with_snapshots().await;
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", &[("capabilities", "snapshot"), ("volume-sources", "local:/data")]).await;
    ring.claim("source", "c").await;
    ring.select("source", "n1").await;
    let source = uid(&ring.stamped("source").await);
    let job = ring.job(ADMIN, "provision", &source, 1).await;
    ring.create_volume(&local_volume(&job, "n1")).await;
    ring.bound("source").await;
    ring.pod_ends(&job, 0, "").await;
    let id = ring.snapshot("monday", "source").await;
    let job = ring.job_on("snapshot", &id, "n1").await;
    assert_eq!(pinned_to(&job).as_deref(), Some("n1"));
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;
    ring.claim_with("restored", "c", from("monday", "1Gi")).await;
    ring.select("restored", "n2").await;
    let restored = uid(&ring.stamped("restored").await);
    let job = ring.job(ADMIN, "provision", &restored, 1).await;
    let asked = request(&job);
    assert_eq!((pinned_to(&job).as_deref(), asked.node_name.as_str()), (Some("n1"), "n1"));
    assert_eq!(asked.snapshot.unwrap().node, "n1");
    ring.create_volume(&local_volume(&job, "n1")).await;
    ring.bound("restored").await;
    ring.pod_ends(&job, 0, "").await;
    ring.delete_snapshot("monday").await;
    let delete = ring.job_on("delete-snapshot", &id, "n1").await;
    ring.pod_ends(&delete, 0, "").await;
    ring.snapshot_gone("monday").await;
}

#[tokio::test]
async fn orchestrator_and_snapshot_controller_together_come_to_rest() {
    let mut ring = Ring::with_snapshots_alone().await;
    let _controller = ring.snapshot_controller();
    ring.config(
        "c",
        "c",
        &[("capabilities", "snapshot"), ("placement", "any"), ("reclaim-policy", "Delete"), ("backoff", "1s")],
    )
    .await;
    ring.run().await;
    ring.claim("source", "c").await;
    ring.provision("source").await;
    // The snapshot-controller is first, refuses a volume that is not CSI, and says so in the status.
    ring.stop().await;
    let id = ring.snapshot("monday", "source").await;
    ring.snapshot_says("monday", "cannot find CSI PersistentVolumeSource").await;
    ring.run().await;
    let job = ring.job(ADMIN, "snapshot", &id, 1).await;
    ring.pod_ends(&job, exit::TEMPFAIL, "the array is busy").await;
    ring.snapshot_says("monday", "the array is busy").await;
    let job = ring.job(ADMIN, "snapshot", &id, 2).await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;
    // Both at once, and a default class.
    let annotations = json!({ "metadata": { "annotations": { names::DEFAULT_SNAPSHOT_CLASS: "true" } } });
    ring.snapshot_class("default", "Delete", annotations).await;
    let source = json!({ "persistentVolumeClaimName": "source" });
    let nameless = ring.snapshot_from("tuesday", Value::Null, source).await;
    let job = ring.job(ADMIN, "snapshot", &nameless, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("tuesday").await;
    // For an impossible snapshot the two do not overwrite each other for ever.
    ring.config("cannot", "cannot", &[("placement", "any")]).await;
    ring.claim("plain", "cannot").await;
    ring.provision("plain").await;
    ring.snapshot("refused", "plain").await;
    ring.snapshot_says("refused", "does not declare that its image can make snapshots").await;
    ring.snapshot("early", "nothing").await;
    ring.event(&ring.user, "early", reason::SNAPSHOT_CREATION_FAILED, "does not exist; the provisioner waits for it")
        .await;
    at_rest(&ring, &["monday", "tuesday", "refused", "early"]).await;
    // The snapshot is restored while it is deleted; both controllers keep it until then.
    ring.claim_with("restored", "c", from("monday", "1Gi")).await;
    let restored = uid(&ring.stamped("restored").await);
    let job = ring.job(ADMIN, "provision", &restored, 1).await;
    ring.delete_snapshot("monday").await;
    stays("the snapshot stays", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "delete-snapshot", &id).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("restored").await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_deleted(&id).await;
    ring.snapshot_gone("monday").await;
    ring.content_gone(&names::content_name(&id)).await;
    for name in ["refused", "early"] {
        ring.delete_snapshot(name).await;
        ring.snapshot_gone(name).await;
    }
    ring.delete_snapshot("tuesday").await;
    ring.snapshot_deleted(&nameless).await;
    ring.snapshot_gone("tuesday").await;
    ring.deleted_with_volume("source").await;
    ring.deleted_with_volume("plain").await;
    let leftovers = ring.contents().list(&Default::default()).await.unwrap().items;
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[tokio::test]
async fn for_csi_volumes_the_snapshot_controller_does_all_but_the_runs() {
    let ring = Ring::with_snapshots().await;
    ring.config("c", "c", &[("capabilities", "snapshot"), ("placement", "any"), ("volume-sources", "nfs, csi")]).await;
    ring.claim("source", "c").await;
    let source = uid(&ring.stamped("source").await);
    let job = ring.job(ADMIN, "provision", &source, 1).await;
    ring.create_volume(&csi_volume(&job)).await;
    ring.bound("source").await;
    ring.pod_ends(&job, 0, "").await;
    let id = ring.snapshot("monday", "source").await;
    stays("nothing happens before the controller made the content", WHILE, || async {
        let snapshot = ring.snapshots().get("monday").await.unwrap();
        let content = ring.contents().get_opt(&names::content_name(&id)).await.unwrap();
        if snapshot.metadata.finalizers.is_none() && content.is_none() { Ok(()) } else { unexpected(snapshot) }
    })
    .await;
    let _controller = ring.snapshot_controller();
    let job = ring.job(ADMIN, "snapshot", &id, 1).await;
    assert_eq!(request(&job).volume_id, source);
    let content = ring.content(&id).await;
    assert_eq!(content.spec.source.volume_handle, Some(format!("vol/{source}")));
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;
    at_rest(&ring, &["monday"]).await;
    ring.source_protected_for("source", &[]).await;
    ring.claim_with("restored", "c", from("monday", "1Gi")).await;
    ring.provision("restored").await;
    ring.delete_snapshot("monday").await;
    ring.snapshot_deleted(&id).await;
    ring.snapshot_gone("monday").await;
    ring.content_gone(&names::content_name(&id)).await;
}

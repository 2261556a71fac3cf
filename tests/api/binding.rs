//! Tests of binding by annotation: the right volume is bound at once, any other never.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, USER, annotation, merge, phase, uid};
use orchestrator::wait::{unexpected, until};

fn changed(volume: &PersistentVolume, change: Value) -> PersistentVolume {
    let mut value = serde_json::to_value(volume).unwrap();
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

/// Makes the PV controller reconcile all claims, as it does by itself every 15 s. It takes one claim after the other, and has
/// taken all when the last one is bound.
pub async fn all_reconciled(ring: &Ring) {
    let last = json!({
        "metadata": { "name": "last" },
        "spec": {
            "storageClassName": "", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "nfs": { "server": "s", "path": "/x" },
        },
    });
    ring.create_volume(&serde_json::from_value(last).unwrap()).await;
    ring.available("last").await;
    let change = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/look": "again" } } }));
    for claim in ring.claims().list(&ListParams::default()).await.unwrap() {
        ring.claims().patch(&claim.name_any(), &PatchParams::default(), &change).await.unwrap();
    }
    ring.claim_with("last", "", json!({ "spec": { "volumeName": "last" } })).await;
    ring.bound("last").await;
    ring.delete_claim("last").await;
    ring.claim_vanished("last").await;
    ring.volumes().delete("last", &DeleteParams::default()).await.unwrap();
    ring.volume_gone("last").await;
}

#[tokio::test]
async fn a_volume_is_bound_as_soon_as_it_appears() {
    for binding in ["direct", "controller"] {
        let ring = Ring::start_with(&["--binding", binding]).await;
        ring.config("c", "c", &[]).await;
        ring.claim("a", "c").await;
        let claim = ring.stamped("a").await;
        let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
        let began = std::time::Instant::now();
        ring.create_volume(&nfs_volume(&job)).await;
        let bound = ring.bound("a").await;
        println!("{binding}: volume created → claim Bound after {:?}", began.elapsed());
        assert_eq!(bound.spec.as_ref().unwrap().volume_name.as_deref(), Some(names::pv_name(&uid(&claim)).as_str()));
        assert_eq!(bound.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "1Gi");
        let has_finalizer =
            |finalizers: Option<Vec<String>>, name: &str| finalizers.unwrap_or_default().contains(&name.to_owned());
        ring.claim_when("a", "is no longer held", |claim| annotation(claim, names::HELD).is_none()).await;
        let volume = until("the volume is Bound", || async {
            let volume = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
            if volume.status.as_ref().unwrap().phase.as_deref() == Some("Bound") {
                Ok(volume)
            } else {
                unexpected(volume.status)
            }
        })
        .await;
        let annotations = volume.metadata.annotations.as_ref().unwrap();
        let provenance: Value = serde_json::from_str(&annotations[names::PROVENANCE]).unwrap();
        assert_eq!(provenance["class"], "c");
        assert_eq!(annotations[names::PROVISIONED_BY], "flex-provisioner.io/nfs", "no CSIDriver has this name");
        assert!(has_finalizer(volume.metadata.finalizers.clone(), names::VOLUME_FINALIZER));
        all_reconciled(&ring).await;
        assert_eq!(phase(&ring.get_claim("a").await), "Bound", "the PV controller agrees");
        // The pod ends by itself; then its Job is deleted.
        assert_eq!(ring.jobs(ADMIN, "provision", &uid(&claim)).await.len(), 1);
        ring.pod_ends(&job, 0, "").await;
        until("the Job is gone", || async {
            let remaining = ring.jobs(ADMIN, "provision", &uid(&claim)).await.len();
            if remaining == 0 { Ok(()) } else { unexpected(remaining) }
        })
        .await;
    }
}

#[tokio::test]
async fn the_volume_of_a_plain_script_is_bound_too() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    // The volume that kubectl would create from a few lines of YAML: no claimRef, no finalizer, and one of this project's
    // annotations.
    let volume = json!({
        "metadata": { "name": names::pv_name(&uid(&claim)), "annotations": { names::CLAIM_UID: uid(&claim) } },
        "spec": {
            "capacity": { "storage": "2Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "c", "nfs": { "server": "s", "path": "/x" },
        },
    });
    ring.volumes().create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let bound = ring.bound("a").await;
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "2Gi", "the volume's real size");
    // The PV controller may have bound it, before it was adopted.
    ring.claim_when("a", "is no longer held", |claim| annotation(claim, names::HELD).is_none()).await;
    let volume = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
    assert!(volume.metadata.finalizers.unwrap().contains(&names::VOLUME_FINALIZER.to_owned()));
    assert_eq!(volume.spec.unwrap().claim_ref.unwrap().uid, claim.metadata.uid);
}

#[tokio::test]
async fn a_mismatched_volume_gets_an_event_and_is_never_bound() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("volume-sources", "nfs,local:/data")]).await;
    let node = json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } } });
    let mut local = json!({ "spec": { "nfs": null, "local": { "path": "/etc" } } });
    merge(&mut local["spec"], node);
    let cases = [
        ("name", json!({ "metadata": { "name": "another-name" } }), "its name is `another-name`"),
        ("class", json!({ "spec": { "storageClassName": "gold" } }), "its class is `gold`"),
        ("size", json!({ "spec": { "capacity": { "storage": "1Mi" } } }), "its size is 1Mi, the claim asks for 1Gi"),
        ("modes", json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }), "it lacks the access mode ReadWriteOnce"),
        ("block", json!({ "spec": { "volumeMode": "Block" } }), "its volume mode is Block"),
        ("source", json!({ "spec": { "nfs": null, "hostPath": { "path": "/" } } }), "hostPath"),
        ("path", local, "does not allow local at `/etc`"),
    ];
    for (case, change, says) in cases {
        ring.claim(case, "c").await;
        let claim = ring.stamped(case).await;
        let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
        let volume = changed(&nfs_volume(&job), change);
        ring.create_volume(&volume).await;
        ring.event(USER, case, reason::VOLUME_REFUSED, says).await;
        ring.event("default", volume.metadata.name.as_deref().unwrap(), reason::VOLUME_REFUSED, says).await;
        assert_eq!(phase(&ring.get_claim(case).await), "Pending", "{case}");
        ring.event(USER, case, reason::PROVISIONING_FAILED, "does not fit").await;
    }
    all_reconciled(&ring).await;
    for claim in ring.claims().list(&ListParams::default()).await.unwrap() {
        assert_eq!(phase(&claim), "Pending", "{} is not bound", claim.name_any());
    }
}

#[tokio::test]
async fn a_volume_of_an_unknown_claim_is_told_and_waits_for_an_admin() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    let unknown = "c0ffee00-0000-4000-8000-00000000cafe";
    let change = json!({
        "metadata": { "name": names::pv_name(unknown), "annotations": { names::CLAIM_UID: unknown, names::VOLUME_ID: unknown } },
        "spec": { "claimRef": { "name": "nobody", "uid": unknown } },
    });
    ring.create_volume(&changed(&nfs_volume(&job), change)).await;
    let name = names::pv_name(unknown);
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "no run is known to have made it").await;
    let let_go = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.volumes().patch(&name, &PatchParams::default(), &Patch::Merge(let_go)).await.unwrap();
    ring.volume_gone(&name).await;
    assert_eq!(ring.all_jobs().await.len(), 1, "no delete run");
    assert_eq!(phase(&ring.get_claim("a").await), "Pending");
    assert_eq!(annotation(&ring.get_claim("a").await, names::ATTEMPT).as_deref(), Some("1"));
}

//! Tests of restored volumes whose status or record claims more than it proves.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use orchestrator::backup::{Backup, flex};
use orchestrator::commands::doctor;
use orchestrator::kubelet::request;
use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// Some backup tools restore the status, with the mark in it. A copy of a cluster's objects has that cluster's records.
#[tokio::test]
async fn neither_a_restored_mark_nor_a_record_of_another_cluster_counts() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    ring.provision("a").await;
    let id = uid(&ring.get_claim("a").await);
    let has_mark = until("the volume has its mark", || async {
        let volume = ring.volume_of("a").await;
        let mark = volume.status.as_ref().and_then(|status| status.reason.clone());
        mark.map_or_else(|| unexpected(&volume.status), |mark| Ok((volume.clone(), mark)))
    });
    let (volume, mark) = has_mark.await;
    let name = volume.name_any();
    let record: Value = serde_json::from_str(&volume.annotations()[names::PROVENANCE]).unwrap();
    let namespaces: Api<Namespace> = Api::all(ring.client.clone());
    let here = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
    assert_eq!(record["cluster"], json!(here), "the record names the cluster");

    let backup = Backup::of(&ring, "a").await;
    backup.lose(&ring).await;
    Backup::create(&ring, &backup.volume);
    let status = json!({ "status": { "reason": mark } });
    ring.volumes().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    ring.event("", &name, reason::VOLUME_RESTORED, "flex-provisioner vouch").await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty());

    let mut theirs = record.clone();
    theirs["cluster"] = json!("another-cluster");
    let metadata = json!({ "metadata": { "annotations": { names::PROVENANCE: theirs.to_string() } } });
    ring.volumes().patch(&name, &PatchParams::default(), &Patch::Merge(metadata)).await.unwrap();
    let said = |arguments: &[&str]| {
        let output = flex(&ring, arguments);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (done, why) = said(&["vouch", "--trust-record", &name]);
    assert!(!done && why.contains("add --from-cluster another-cluster"), "{why}");
    // The doctor leaves out volumes that were just created.
    until("the doctor lists the volume", || async {
        let (_, fixed) = doctor(&ring, ADMIN, &["--fix"]);
        if fixed.to_string().contains("--from-cluster another-cluster") { Ok(()) } else { unexpected(fixed) }
    })
    .await;
    let read = async || ring.volumes().get(&name).await.unwrap().annotations()[names::PROVENANCE].clone();
    assert_eq!(read().await, theirs.to_string(), "no option of doctor takes it over");

    let (done, what) = said(&["vouch", "--from-cluster", "another-cluster", &name]);
    assert!(done, "{what}");
    let now: Value = serde_json::from_str(&read().await).unwrap();
    assert_eq!(now, record, "from now on it is a volume of this cluster");
    Backup::create(&ring, &backup.claim);
    ring.bound("a").await;
    ring.delete_claim("a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!(request(&delete).pv_name, name);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&name).await;
}

//! Restores as Velero makes them: its order and its rules, from a table, played on the API server.
//!
//! Velero restores PersistentVolumes before claims, and leaves out what exists. A volume with the policy Delete, or with
//! a backup of its files, is not restored: its claim asks for a new one. All others lose their binding, and stay as they
//! are where they exist.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use orchestrator::backup::{Backup, saved};
use orchestrator::commands::doctor;
use orchestrator::deployed::kubectl;
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, phase};
use orchestrator::wait::{stays, unexpected, until};

/// How a claim is saved, lost and restored.
struct Case {
    name: &'static str,
    policy: &'static str,
    /// The volume's object is lost, as with its cluster. Else the claim alone is deleted, and the volume is Released.
    lost: bool,
    /// The files of the volume were saved by the tool.
    has_files: bool,
    /// The namespace of the restored claim.
    namespace: &'static str,
    expected: Restored,
}

/// What the restored claim gets.
enum Restored {
    /// Its volume, for which an admin must vouch.
    Own,
    /// An empty volume.
    Empty,
    /// Nothing, until an admin reserves the volume for it.
    Nothing,
}

const CASES: [Case; 5] = [
    Case { name: "a", policy: "Delete", lost: true, has_files: false, namespace: USER, expected: Restored::Empty },
    Case { name: "b", policy: "Retain", lost: true, has_files: false, namespace: USER, expected: Restored::Own },
    Case { name: "c", policy: "Retain", lost: true, has_files: true, namespace: USER, expected: Restored::Empty },
    Case { name: "d", policy: "Retain", lost: true, has_files: false, namespace: "mapped", expected: Restored::Own },
    Case { name: "e", policy: "Retain", lost: false, has_files: false, namespace: USER, expected: Restored::Nothing },
];

/// Removes annotations, and adds the labels of the tool.
fn reset(object: &mut Value, annotations: &[&str]) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(all) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        all.retain(|key, _| !annotations.contains(&key.as_str()));
    }
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels["velero.io/backup-name"] = json!("nightly");
    labels["velero.io/restore-name"] = json!("nightly-1");
}

async fn restore(ring: &Ring, backup: &Backup, case: &Case) {
    let (mut volume, mut claim) = (backup.volume.clone(), backup.claim.clone());
    let binding = [names::BIND_COMPLETED, names::BOUND_BY_CONTROLLER];
    reset(&mut volume, &binding);
    reset(&mut claim, &binding);
    volume["spec"]["claimRef"]["namespace"] = json!(case.namespace);
    claim["metadata"]["namespace"] = json!(case.namespace);
    if case.has_files || volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" {
        claim["spec"].as_object_mut().unwrap().remove("volumeName");
        let of_provisioner = [names::STORAGE_PROVISIONER, names::STORAGE_PROVISIONER_BETA, names::SELECTED_NODE];
        reset(&mut claim, &of_provisioner);
    } else {
        let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
        match ring.volumes().create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => assert!(!case.lost),
            created => drop(created.unwrap()),
        }
    }
    let claims: Api<PersistentVolumeClaim> = ring.api(case.namespace);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
}

/// Waits until a restored claim is bound. Returns the name of its volume.
async fn bound(ring: &Ring, case: &Case) -> String {
    let claims: Api<PersistentVolumeClaim> = ring.api(case.namespace);
    let bound = until("the restored claim is bound", || async {
        let claim = claims.get(case.name).await.map_err(|error| error.to_string())?;
        match phase(&claim).as_str() {
            "Bound" => Ok(claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default()),
            _ => unexpected((claim.metadata.annotations, claim.status)),
        }
    });
    ring.explained(bound).await
}

/// The doctor names the command that gives the claim its volume, and advises nobody to delete that.
async fn is_told_to_reserve(ring: &Ring, case: &Case, volume: &str) {
    let lists = until("the doctor lists the claim", || async {
        let (_, report) = doctor(ring, ADMIN, &[]);
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str, name: &str| {
            findings.iter().find(|it| it["kind"] == kind && it["object"]["name"] == name).map(ToString::to_string)
        };
        match (of("claim-lost", case.name), of("volume-retained", volume)) {
            (Some(claim), Some(volume)) => Ok([claim, volume]),
            _ => unexpected(report),
        }
    });
    for finding in lists.await {
        assert!(finding.contains(&format!("kubectl patch pv {volume}")), "{finding}");
        assert!(!finding.contains("kubectl delete"), "{finding}");
    }
    kubectl(
        ring.cluster(),
        &["patch", "pv", volume, "--type", "json", "-p", r#"[{"op":"remove","path":"/spec/claimRef/uid"}]"#],
    );
}

#[tokio::test]
async fn what_velero_restores_keeps_the_storage_of_each_policy() {
    let ring = Ring::start().await;
    ring.namespace("mapped", &[]).await;
    let mut ids = Vec::new();
    for case in &CASES {
        let class = case.policy.to_lowercase();
        ring.config(&class, &class, &[("reclaim-policy", case.policy)]).await;
        ring.claim(case.name, &class).await;
        let (_, made) = ring.provision(case.name).await;
        let (name, by) =
            (made.name_any(), ring.volume_of(case.name).await.annotations()[names::PROVISIONED_BY].clone());
        assert_ne!(by, names::DEFAULT_PROVISIONER, "Velero would look for a mount of a CSI driver");
        let backup =
            Backup { claim: saved(&ring, &["-n", USER, "pvc", case.name]), volume: saved(&ring, &["pv", &name]) };
        match case.lost {
            true => backup.lose(&ring).await,
            false => {
                ring.delete_claim(case.name).await;
                ring.claim_gone(case.name).await;
            }
        }
        restore(&ring, &backup, case).await;
        match case.expected {
            Restored::Own => {
                assert_eq!(bound(&ring, case).await, name, "case {}", case.name);
                ring.event("", &name, reason::VOLUME_RESTORED, "flex-provisioner vouch").await;
            }
            Restored::Empty => {
                ring.provision(case.name).await;
                assert_ne!(bound(&ring, case).await, name, "case {}", case.name);
            }
            Restored::Nothing => {
                is_told_to_reserve(&ring, case, &name).await;
                assert_eq!(bound(&ring, case).await, name, "case {}", case.name);
            }
        }
        ids.push(name.strip_prefix(names::PV_PREFIX).unwrap().to_owned());
    }
    stays("the storage of before stays", WHILE, || async {
        let mut deletes = Vec::new();
        for id in &ids {
            deletes.extend(ring.jobs(ADMIN, "delete", id).await);
        }
        if deletes.is_empty() { Ok(()) } else { unexpected(deletes) }
    })
    .await;
}

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::*;
use crate::config::record::EffectiveConfig;
use crate::model::snapshot;
use crate::model::snapshot::api::VolumeSnapshotContent;
use crate::model::volume::{Provenance, adoption_mark};
use crate::object::ObjectName;
use flex_contract::names;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";

fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: "default".into(),
        config_namespaces: vec!["admin".into()],
        namespace: "own".into(),
        shell_image: None,
    }
}

fn record() -> EffectiveConfig {
    EffectiveConfig { config: ObjectName::new("admin", "c"), class: "c".into(), ..EffectiveConfig::default() }
}

fn volume(from: &str) -> Value {
    let moved_in = MovedIn { path: "/a/b".into(), from: from.into(), size: 1 << 30, finalizers: vec![] };
    let provenance = json!(Provenance { record: record(), node: String::new(), moved_in: Some(moved_in) }).to_string();
    json!({
        "metadata": {
            "name": names::pv_name(ID),
            "labels": { names::LABEL_INSTANCE: "default" },
            "annotations": { names::PROVENANCE: provenance, names::CLAIM_UID: ID, names::VOLUME_ID: ID },
        },
        "spec": {
            "storageClassName": "c", "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/a/b" },
            "claimRef": { "namespace": "team", "name": "data", "uid": ID },
        },
        "status": { "phase": "Bound", "reason": adoption_mark(&provenance) },
    })
}

fn claim() -> Value {
    json!({
        "metadata": { "namespace": "team", "name": "data", "uid": ID },
        "spec": { "volumeName": names::pv_name(ID) },
        "status": { "phase": "Bound" },
    })
}

fn checked(object: Value, claim: Option<Value>, contents: &[&Content]) -> Result<MovedIn, String> {
    let object: PersistentVolume = serde_json::from_value(object).unwrap();
    let claim: Option<PersistentVolumeClaim> = claim.map(|claim| serde_json::from_value(claim).unwrap());
    let claim = claim.as_ref().map(Claim::from);
    move_out(&Volume::from(&object), &Dependents { claim: claim.as_ref(), contents, jobs: &[] }, &identity())
}

#[test]
fn an_unchanged_volume_moves_out_with_or_without_its_mark() {
    let mut object = volume("old");
    assert_eq!(checked(object.clone(), Some(claim()), &[]).unwrap().from, "old");
    object["status"]["reason"] = Value::Null;
    assert!(checked(object, Some(claim()), &[]).is_ok(), "an undo that was interrupted is repeated");
}

#[test]
fn a_volume_stays_if_its_former_provisioner_could_not_serve_it() {
    let refused = |change: &dyn Fn(&mut Value, &mut Value), says: &str| {
        let (mut object, mut claim) = (volume("old"), claim());
        change(&mut object, &mut claim);
        let why = checked(object, Some(claim), &[]).unwrap_err();
        assert!(why.contains(says), "{why}");
    };
    refused(&|volume, _| volume["spec"]["capacity"]["storage"] = json!("2Gi"), "was expanded");
    refused(&|volume, _| volume["status"]["phase"] = json!("Released"), "released");
    refused(&|volume, _| volume["metadata"]["labels"] = Value::Null, "another orchestrator");
    refused(&|volume, _| volume["metadata"]["annotations"][names::PROVENANCE] = json!("{}"), "has not moved in");
    refused(&|_, claim| claim["spec"]["volumeName"] = json!("other"), "is gone");
    refused(&|_, claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"), "is being deleted");
    for finalizer in [names::clone_finalizer("x"), names::source_finalizer("x")] {
        refused(&|_, claim| claim["metadata"]["finalizers"] = json!([finalizer]), "is being copied");
    }
    assert!(checked(volume("old"), None, &[]).unwrap_err().contains("is gone"));
    assert!(checked(volume(""), Some(claim()), &[]).unwrap_err().contains("imported"));
}

#[test]
fn a_volume_with_snapshots_stays() {
    let made_by = snapshot::SnapshotProvenance {
        record: record(),
        node: String::new(),
        volume_id: ID.into(),
        pv_name: names::pv_name(ID),
        size: 1,
        volume_mode: String::new(),
    };
    let content = json!({
        "metadata": { "name": "content", "annotations": { names::PROVENANCE: json!(made_by).to_string() } },
        "spec": {
            "deletionPolicy": "Delete", "driver": names::DEFAULT_PROVISIONER, "source": {},
            "volumeSnapshotRef": { "namespace": "team", "name": "monday" },
        },
    });
    let content: VolumeSnapshotContent = serde_json::from_value(content).unwrap();
    let content = Content::from(&content);
    let why = checked(volume("old"), Some(claim()), &[&content]).unwrap_err();
    assert!(why.contains("delete the VolumeSnapshot team/monday"), "{why}");
}

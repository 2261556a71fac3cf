use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::model::snapshot;
use crate::model::snapshot::api::VolumeSnapshotContent;
use crate::model::volume::{Provenance, adoption_mark};
use flex_contract::names;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";

fn effective_config() -> EffectiveConfig {
    let data = [("image", "vendor/image:1"), ("volume-sources", "hostPath:/a"), ("placement", "any")];
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    EffectiveConfig { config: config(), class: "c".into(), data, ..EffectiveConfig::default() }
}

fn config() -> ObjectName {
    ObjectName::new("admin", "c")
}

fn volume(from: &str) -> Value {
    let moved_in = MovedIn {
        path: "/a/b".into(),
        from: Some(from.to_owned()).filter(|from| !from.is_empty()),
        size: 1 << 30,
        finalizers: vec![],
    };
    let provenance = json!(Provenance {
        effective_config: effective_config(),
        origin_node: None,
        moved_in: Some(moved_in),
        cluster: None,
        others: Vec::new()
    })
    .to_string();
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
        "status": { "phase": "Bound", "reason": adoption_mark(&provenance, "") },
    })
}

fn claim() -> Value {
    json!({
        "metadata": { "namespace": "team", "name": "data", "uid": ID },
        "spec": { "volumeName": names::pv_name(ID) },
        "status": { "phase": "Bound" },
    })
}

fn checked(object: Value, claim: Option<Value>, contents: &[&Content]) -> Result<MovingOut, String> {
    with(object, claim, contents, &[], |volume, of| check_move_out(volume, "old", of, &Identity::of_tests()))
}

fn with<T>(
    object: Value,
    claim: Option<Value>,
    contents: &[&Content],
    jobs: &[&Job],
    check: impl FnOnce(&Volume, &Dependents<'_>) -> T,
) -> T {
    let object: PersistentVolume = serde_json::from_value(object).unwrap();
    let claim: Option<PersistentVolumeClaim> = claim.map(|claim| serde_json::from_value(claim).unwrap());
    let claim = claim.as_ref().map(Claim::from);
    let (place, config) = (Place::of(object.spec.as_ref().unwrap()), config());
    let recipe = effective_config().recipe().unwrap();
    let of = Dependents {
        claim: claim.as_ref(),
        contents,
        jobs,
        place: place.as_ref(),
        recipe: Some(&recipe),
        nodes: &[],
        config: &config,
    };
    check(&Volume::from(&object), &of)
}

/// Changes the record of a volume, which loses its mark.
fn forged(change: impl Fn(&mut Value)) -> Value {
    let mut object = volume("old");
    let annotation = &mut object["metadata"]["annotations"][names::PROVENANCE];
    let mut record: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    change(&mut record);
    *annotation = json!(record.to_string());
    object["status"]["reason"] = Value::Null;
    object
}

#[test]
fn an_unchanged_volume_moves_out_with_or_without_its_mark() {
    let mut object = volume("old");
    let moving_out = checked(object.clone(), Some(claim()), &[]).unwrap();
    assert_eq!((moving_out.moved_in().from.as_deref(), moving_out.is_confirmed), (Some("old"), true));
    object["status"]["reason"] = Value::Null;
    let moving_out = checked(object.clone(), Some(claim()), &[]).unwrap();
    assert!(!moving_out.is_confirmed, "an undo that was interrupted is repeated");
    object["status"]["phase"] = json!("Released");
    assert!(checked(object, None, &[]).is_ok(), "its claim was deleted meanwhile");
}

/// Everybody who can create volumes can write such a record.
#[test]
fn a_record_that_nobody_confirmed_chooses_neither_image_nor_place_nor_finalizers() {
    let moving_out = checked(
        forged(|record| {
            record["data"]["image"] = json!("stranger/image");
            record["data"]["service-account-name"] = json!("admin");
            record["node"] = json!("control-plane");
            record["moved-in"]["finalizers"] = json!(["stranger.example/stuck", FORMER_FINALIZER]);
        }),
        Some(claim()),
        &[],
    )
    .unwrap();
    assert_eq!(
        (&moving_out.provenance.effective_config, moving_out.provenance.origin_node.as_deref()),
        (&effective_config(), None)
    );
    assert_eq!(moving_out.moved_in().finalizers, [FORMER_FINALIZER]);
    let refused = |change: &dyn Fn(&mut Value), says: &str| {
        let why = checked(forged(change), Some(claim()), &[]).unwrap_err();
        assert!(why.contains(says), "{says}: {why}");
    };
    refused(&|record| record["moved-in"]["path"] = json!("/a/other"), "leads to /a/b");
    refused(&|record| record["class"] = json!("gold"), "names class gold");
    refused(&|record| record["config"]["namespace"] = json!("strangers"), "names the config strangers/c");
    refused(&|record| record["moved-in"]["from"] = json!("stranger"), "names the provisioner stranger");
    let mut outside = forged(|record| record["moved-in"]["path"] = json!("/etc/b"));
    outside["spec"]["hostPath"]["path"] = json!("/etc/b");
    assert!(checked(outside, Some(claim()), &[]).unwrap_err().contains("does not allow"));
    let mut renamed = forged(|_| {});
    renamed["metadata"]["annotations"][names::VOLUME_ID] = json!("c0ffee00-0000-4000-8000-000000000002");
    assert!(checked(renamed, Some(claim()), &[]).unwrap_err().contains("does not fit its name"));
}

#[test]
fn a_volume_moves_out_only_of_the_chosen_config_to_the_chosen_provisioner() {
    let as_to = |from: &str, config: ObjectName| {
        with(volume("old"), Some(claim()), &[], &[], |volume, of| {
            check_move_out(volume, from, &Dependents { config: &config, ..*of }, &Identity::of_tests())
        })
    };
    assert!(as_to("old", config()).is_ok());
    assert!(as_to("other", config()).unwrap_err().contains("see --provisioner"));
    assert!(as_to("old", ObjectName::new("admin", "d")).unwrap_err().contains("see --config"));
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
    let runs = |is_over: bool| {
        let job = Job { is_over, ..Job::default() };
        with(volume("old"), Some(claim()), &[], &[&job], |volume, of| {
            check_move_out(volume, "old", of, &Identity::of_tests())
        })
    };
    assert!(runs(true).is_ok() && runs(false).unwrap_err().contains("is in progress"));
}

#[test]
fn an_import_is_taken_back_once_its_claim_is_gone_and_its_data_stay() {
    let back = |from: &str, policy: &str, claim: Option<Value>| {
        let mut object = volume(from);
        object["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        with(object, claim, &[], &[], |volume, of| check_undo_import(volume, of, &Identity::of_tests()))
    };
    assert!(back("", "Retain", None).is_ok_and(|moving_out| moving_out.is_confirmed));
    assert!(back("", "Delete", None).unwrap_err().contains("write Retain"));
    assert!(back("", "Retain", Some(claim())).unwrap_err().contains("delete the claim first"));
    assert!(back("old", "Retain", None).unwrap_err().contains("adopt --undo"));
}

#[test]
fn a_volume_with_snapshots_stays() {
    let made_by = snapshot::SnapshotProvenance {
        effective_config: effective_config(),
        origin_node: None,
        volume_id: ID.into(),
        pv_name: names::pv_name(ID),
        size: 1,
        volume_mode: String::new(),
        content_uid: None,
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

/// Runs, snapshots and clones begin with this check.
#[test]
fn a_volume_that_leads_elsewhere_than_its_record_is_noticed() {
    let mut object = volume("old");
    let check = |object: &Value| {
        Volume::from(&serde_json::from_value::<PersistentVolume>(object.clone()).unwrap()).verify_place()
    };
    assert_eq!(check(&object), Ok(()));
    object["spec"]["hostPath"]["path"] = json!("/a/c");
    assert!(check(&object).unwrap_err().contains("the storage at /a/b, but the volume leads to /a/c"));
}

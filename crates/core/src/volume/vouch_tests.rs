use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::*;
use crate::config::classes::{Config, classes};
use crate::config::external_provisioner::ExternalProvisioners;
use crate::model::snapshot::api::VolumeSnapshotContent;
use crate::object::ObjectName;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";

/// The UID of the only claim that exists.
const LIVING: &str = "c0ffee00-0000-4000-8000-00000000000a";

fn data(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let base = [("image", "vendor/image:1"), ("volume-sources", "nfs"), ("base-path", "/exports")];
    base.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn effective_config(more: &[(&str, &str)]) -> EffectiveConfig {
    EffectiveConfig {
        config: ObjectName::new("admin", "c"),
        class: "silver".into(),
        data: data(more),
        ..EffectiveConfig::default()
    }
}

/// Returns a volume as a backup tool restores it, with this provenance.
fn restored(effective_config: &EffectiveConfig, change: impl FnOnce(&mut Value)) -> Volume {
    let provenance = Provenance {
        effective_config: effective_config.clone(),
        origin_node: None,
        moved_in: None,
        cluster: None,
        others: Vec::new(),
    };
    let mut object = json!({
        "metadata": {
            "name": format!("pvc-{ID}"),
            "labels": { names::LABEL_INSTANCE: "default" },
            "annotations": {
                names::PROVISIONED_BY: names::DEFAULT_PROVISIONER,
                names::CLAIM_UID: ID,
                names::VOLUME_ID: ID,
                names::PROVENANCE: json!(provenance).to_string(),
            },
        },
        "spec": {
            "storageClassName": "silver",
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "nfs": { "server": "s", "path": "/exports/x" },
            "claimRef": { "namespace": "team", "name": "data" },
        },
        "status": { "phase": "Available" },
    });
    change(&mut object);
    Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap())
}

/// Returns the result for a volume if the config of the class has these keys now.
fn said(volume: &Volume, now: Option<&[(&str, &str)]>, kept: &[String]) -> Result<Option<String>, String> {
    let config = now.map(|now| Config {
        name: ObjectName::new("admin", "c"),
        class: Some("silver".into()),
        data: data(&[now, &[("plugin-name", names::DEFAULT_PLUGIN)]].concat()),
        ..Config::default()
    });
    let (identity, recipes) = (Identity::of_tests(), kept.iter().cloned().collect());
    let classes = classes(&identity, config.iter(), [], &BTreeMap::new(), &ExternalProvisioners::none());
    let known = ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &[] };
    vouchable(volume, &known, ReferredClaim::of(volume, |uid| uid == LIVING), Answers::default())
        .map(|vouchable| vouchable.untrusted_difference)
}

#[test]
fn a_record_that_agrees_with_the_class_is_confirmed_in_spite_of_other_parameters() {
    let volume = restored(&effective_config(&[]), |_| {});
    assert_eq!(said(&volume, Some(&[]), &[]), Ok(None));
    assert_eq!(said(&volume, Some(&[("base-path", "/others")]), &[]), Ok(None), "a parameter of the image");
}

#[test]
fn the_configs_of_other_attempts_are_compared_too() {
    let of = |other: &EffectiveConfig| {
        restored(&effective_config(&[]), |object| {
            let text = object["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap().to_owned();
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record["others"] = json!([other]);
            object["metadata"]["annotations"][names::PROVENANCE] = json!(record.to_string());
        })
    };
    let (same, other) = (effective_config(&[("base-path", "/b")]), effective_config(&[("image", "another/image")]));
    assert_eq!(said(&of(&same), Some(&[]), &[]), Ok(None));
    let differs = said(&of(&other), Some(&[]), &[]).unwrap().expect("an admin must check it");
    assert!(differs.contains("image"), "{differs}");
    assert_eq!(said(&of(&other), Some(&[]), &[other.hash()]), Ok(None), "it is stored");
    let foreign = EffectiveConfig { config: ObjectName::new("tenant", "c"), ..same };
    let refused = said(&of(&foreign), Some(&[]), &[]).unwrap_err();
    assert!(refused.contains("not a config namespace"), "{refused}");
}

/// A tool may restore the UID of the former claim. The PV controller sets the phase of a new volume some time later.
#[test]
fn a_volume_whose_claim_is_gone_needs_an_admin_before_its_phase_says_so() {
    let of = |uid: Option<&str>, phase: &str, policy: &str| {
        restored(&effective_config(&[]), |object| {
            object["spec"]["claimRef"]["uid"] = json!(uid);
            object["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            object["status"]["phase"] = json!(phase);
        })
    };
    for phase in ["", "Pending", "Available", "Bound", "Released", "Failed"] {
        let why = said(&of(Some("former"), phase, "Delete"), Some(&[]), &[]).unwrap_err();
        assert!(why.contains("delete its storage at once") && why.contains("--also-released"), "{phase}: {why}");
        assert_eq!(said(&of(Some("former"), phase, "Retain"), Some(&[]), &[]), Ok(None), "{phase}");
    }
    for uid in [None, Some(LIVING)] {
        assert_eq!(said(&of(uid, "Pending", "Delete"), Some(&[]), &[]), Ok(None), "{uid:?}");
    }
}

/// "I trust this image" and "the other cluster is gone" are two decisions.
#[test]
fn a_record_of_another_cluster_is_a_question_of_its_own() {
    let of = |cluster: Option<&str>, own: &str| {
        let volume = restored(&effective_config(&[]), |object| {
            let text = object["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap().to_owned();
            let mut record: Value = serde_json::from_str(&text).unwrap();
            if let Some(cluster) = cluster {
                record["cluster"] = json!(cluster);
            }
            object["metadata"]["annotations"][names::PROVENANCE] = json!(record.to_string());
        });
        let identity = Identity { cluster: own.into(), ..Identity::of_tests() };
        let recipes = [effective_config(&[]).hash()].into();
        let classes = classes(&identity, [], [], &BTreeMap::new(), &ExternalProvisioners::none());
        let known = ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &[] };
        let vouchable = vouchable(&volume, &known, ReferredClaim::NotGone, Answers::default()).unwrap();
        assert_eq!(vouchable.untrusted_difference, None, "the image is known");
        vouchable.other_cluster
    };
    assert_eq!(of(Some("here"), "here"), None);
    assert_eq!(of(None, "here"), None, "a record of an earlier version");
    assert_eq!(of(Some("there"), "here").as_deref(), Some("there"));
    assert_eq!(of(Some("there"), "").as_deref(), Some("there"), "this cluster has no name");
}

/// The class does not say which directory moved in, and another volume may have it.
#[test]
fn a_record_with_a_place_of_its_own_needs_an_admin() {
    let of = |path: &str| {
        restored(&effective_config(&[]), |object| {
            let text = object["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap().to_owned();
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record["moved-in"] = json!({ "path": path, "from": "old", "size": 1 });
            object["metadata"]["annotations"][names::PROVENANCE] = json!(record.to_string());
        })
    };
    let why = said(&of("/exports/x"), Some(&[]), &[]).unwrap().unwrap();
    assert!(why.contains("its storage is /exports/x"), "{why}");
    assert!(said(&of("/exports/.hidden"), Some(&[]), &[]).unwrap_err().contains("cannot move in"));
}

/// After the backup a claim may have got the volume, and written data.
#[test]
fn a_volume_that_was_pooled_needs_an_admin() {
    let pooled = restored(&effective_config(&[]), |object| {
        object["metadata"]["labels"][names::LABEL_POOL] = json!(effective_config(&[]).hash());
        object["metadata"]["annotations"][names::POOL_SIZE] = json!("1073741824");
        object["metadata"]["annotations"].as_object_mut().unwrap().remove(names::CLAIM_UID);
        object["spec"]["claimRef"] = json!({ "namespace": "flex-provisioner", "name": ID });
    });
    // The command was killed after its first write.
    let without_label = Volume { pool: None, ..pooled.clone() };
    for volume in [pooled, without_label] {
        let why = said(&volume, Some(&[]), &[]).unwrap().unwrap();
        assert!(why.contains("a claim may have got it after the backup"), "{why}");
    }
}

#[test]
fn a_record_with_another_image_or_secret_needs_an_admin() {
    let volume = restored(&effective_config(&[("secret-env", "password-of-others")]), |_| {});
    let why = said(&volume, Some(&[]), &[]).unwrap().unwrap();
    assert!(why.contains("secret-env"), "{why}");
    let other_image = restored(&effective_config(&[("image", "stranger/image")]), |_| {});
    assert!(said(&other_image, Some(&[]), &[]).unwrap().is_some_and(|why| why.contains("image")));
    assert!(said(&volume, None, &[]).unwrap().is_some_and(|why| why.contains("does not serve")));
    let other_script =
        restored(&EffectiveConfig { script: Some("hash-of-another".into()), ..effective_config(&[]) }, |_| {});
    assert!(said(&other_script, Some(&[]), &[]).unwrap().is_some_and(|why| why.contains("script")));
    let kept = effective_config(&[("secret-env", "password-of-others")]).hash();
    assert_eq!(said(&volume, Some(&[]), &[kept]), Ok(None), "a version that the orchestrator itself keeps");
}

/// The class was written for another provisioner, and its parameters may name Secrets.
#[test]
fn a_record_with_another_parameter_of_the_class_needs_an_admin() {
    let secret = ("secret-of-driver".to_owned(), "of-others".to_owned());
    let forged = EffectiveConfig { parameters: [secret].into(), ..effective_config(&[]) };
    let why = said(&restored(&forged, |_| {}), Some(&[]), &[]).unwrap().unwrap();
    assert!(why.contains("in parameter secret-of-driver"), "{why}");
    assert_eq!(said(&restored(&forged, |_| {}), Some(&[]), &[forged.hash()]), Ok(None), "a version that is kept");
}

/// A delete-snapshot run on the former node would succeed, and leave the snapshot behind.
#[test]
fn the_snapshots_of_a_volume_follow_it_to_another_node() {
    let content = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut record = json!({
            "config": { "namespace": "admin", "name": "c" }, "class": "silver", "data": {}, "node": "a",
            "volume_id": ID, "pv_name": names::pv_name(ID), "size": 1, "volume_mode": "Filesystem",
        });
        change(&mut record);
        let driver = record["driver"].as_str().unwrap_or(names::DEFAULT_PROVISIONER).to_owned();
        let object = json!({
            "metadata": { "name": name, "uid": name, "annotations": { names::PROVENANCE: record.to_string() } },
            "spec": {
                "driver": driver, "deletionPolicy": "Delete", "source": { "volumeHandle": ID },
                "volumeSnapshotRef": { "namespace": "team", "name": "monday", "uid": "s" },
            },
        });
        Arc::new(Content::from(&serde_json::from_value::<VolumeSnapshotContent>(object).unwrap()))
    };
    let contents = [
        content("ours", &|_| {}),
        content("there-already", &|record| record["node"] = json!("b")),
        content("on-any-node", &|record| record["node"] = json!("")),
        content("of-another-volume", &|record| record["volume_id"] = json!("another")),
        content("of-another-driver", &|record| record["driver"] = json!("another")),
        content("unreadable", &|record| record["size"] = json!("large")),
    ];
    let found = |id: &str| snapshots_elsewhere(id, "b", contents.iter(), &Identity::of_tests());
    let ours = SnapshotElsewhere { content: contents[0].clone(), former_node: "a".into() };
    assert_eq!(found(ID), [ours]);
    assert!(found("").is_empty());
}

#[test]
fn a_record_that_contradicts_its_volume_is_refused() {
    let refused = |change: &dyn Fn(&mut Value), says: &str| {
        let volume = restored(&effective_config(&[]), |object| change(object));
        let why = said(&volume, Some(&[]), &[]).unwrap_err();
        assert!(why.contains(says), "{says}: {why}");
    };
    refused(&|o| o["metadata"]["annotations"][names::VOLUME_ID] = json!("another"), "is named");
    refused(&|o| o["spec"]["storageClassName"] = json!("gold"), "class");
    refused(&|o| o["metadata"]["labels"][names::LABEL_INSTANCE] = json!("other"), "another orchestrator");
    refused(&|o| o["metadata"]["annotations"][names::PROVENANCE] = json!("{"), "cannot be read");
    refused(&|o| drop(o["metadata"]["annotations"].as_object_mut().unwrap().remove(names::PROVENANCE)), "no record");
    let source = |o: &mut Value| {
        o["spec"].as_object_mut().unwrap().remove("nfs");
        o["spec"]["local"] = json!({ "path": "/" });
    };
    refused(&source, "volume-sources");
    let elsewhere = EffectiveConfig { config: ObjectName::new("strangers", "c"), ..effective_config(&[]) };
    let why = said(&restored(&elsewhere, |_| {}), Some(&[]), &[]).unwrap_err();
    assert!(why.contains("not a config namespace"), "{why}");
    refused(&|o| o["status"]["phase"] = json!("Released"), "delete its storage at once");
    let marked = |uid: &str| {
        restored(&effective_config(&[]), |o| {
            let record = o["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap().to_owned();
            o["status"]["reason"] = json!(crate::model::volume::adoption_mark(&record, "v"));
            o["metadata"]["uid"] = json!(uid);
        })
    };
    assert!(said(&marked("v"), Some(&[]), &[]).unwrap_err().contains("already"));
    // A backup tool has restored the status, too.
    assert!(marked("another").is_restored() && !marked("v").is_restored());
    assert_eq!(said(&marked("another"), Some(&[]), &[]), Ok(None));
}

fn node(name: &str, host: &str) -> Arc<Node> {
    let labels = [(names::HOSTNAME.to_owned(), host.to_owned())].into();
    Arc::new(Node { name: name.into(), labels, reachable: true, taints: vec![] })
}

/// A volume may have been copied to another node, with its record. A node may have been renamed, or another machine have
/// its disk.
#[test]
fn an_admin_names_the_node_of_the_storage_unless_record_and_node_affinity_agree() {
    // Each row has the host of the volume, the nodes, the answer, and the node of the new record or the refusal.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>, Result<&'a str, &'a str>);
    let both = &[("a", "a"), ("b", "b")][..];
    let table: &[Row<'_>] = &[
        ("a", both, None, Ok("a")),
        ("x", &[("a", "x")], None, Ok("a")),
        ("b", both, None, Err("if the storage is on node b, add --node b")),
        ("b", both, Some("b"), Ok("b")),
        ("b", both, Some("a"), Err("node a has not the labels of its node affinity (kubernetes.io/hostname=b)")),
        ("b", both, Some("c"), Err("node c does not exist")),
        ("b", &[("b", "b")], None, Err("add --node b")),
        ("a", &[("new", "a")], None, Err("add --node new")),
        ("a", &[("new", "a")], Some("new"), Ok("new")),
        ("x", &[("a", "x"), ("b", "x")], None, Err("leads to the nodes a, b")),
        ("x", &[("a", "x"), ("b", "x")], Some("a"), Ok("a")),
        ("x", &[("a", "a")], None, Err("node a, which has not the labels")),
        ("a", &[("b", "b")], None, Ok("a")),
        ("x", &[("b", "b")], None, Err("wait for its node")),
    ];
    let (identity, recipes) = (Identity::of_tests(), [effective_config(&[]).hash()].into());
    let classes = classes(&identity, [], [], &BTreeMap::new(), &ExternalProvisioners::none());
    for (host, nodes, named, expected) in table {
        let volume = restored(&effective_config(&[]), |object| {
            let host = json!({ "key": names::HOSTNAME, "operator": "In", "values": [host] });
            object["spec"]["nodeAffinity"] =
                json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [host] }] } });
            let annotation = &mut object["metadata"]["annotations"][names::PROVENANCE];
            let mut record: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
            record["node"] = json!("a");
            *annotation = json!(record.to_string());
        });
        let nodes: Vec<_> = nodes.iter().map(|(name, host)| node(name, host)).collect();
        let known = ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &nodes };
        let answers = Answers { node: *named, ..Answers::default() };
        let found = vouchable(&volume, &known, ReferredClaim::NotGone, answers);
        let found = found.and_then(|found| found.unknown_node.map_or(Ok(found.provenance.origin_node), Err));
        match (expected, &found) {
            (Ok(node), Ok(found)) => assert_eq!(found.as_deref(), Some(*node), "{host} {nodes:?} {named:?}"),
            (Err(says), Err(why)) => assert!(why.contains(says), "{why}"),
            _ => panic!("{host} {nodes:?} {named:?}: {found:?}"),
        }
    }
    let anywhere = restored(&effective_config(&[]), |_| {});
    let known = ClassConfigs { identity: &identity, classes: &classes, recipes: &recipes, nodes: &[node("a", "a")] };
    let answers = Answers { node: Some("a"), ..Answers::default() };
    assert!(vouchable(&anywhere, &known, ReferredClaim::NotGone, answers).unwrap_err().contains("leave out --node"));
}

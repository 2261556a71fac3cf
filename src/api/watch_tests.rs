use flex_core::capacity::{Driver, Published};
use flex_core::config::accounts::Account;
use flex_core::model::claim::Claim;
use flex_core::model::grant::Grant;
use flex_core::model::namespace::Namespace as CachedNamespace;
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::volume::Volume;
use flex_core::run::node::Node as CachedNode;
use flex_core::run::view;
use k8s_openapi::api::core::v1::NodeStatus;
use serde_json::json;

use super::super::filled::{LONG, filled};
use super::*;

/// The largest weight of an object in the cache. Each text of a filled object is longer.
const BOUND: usize = 90_000;

/// The kinds in which admins write configs. The orchestrator needs all that they write.
const CONFIGS: &[&str] =
    &["ConfigMap", "StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass", "ControllerRevision"];

/// Returns the values of annotations that some reader accepts, with texts as long as possible.
fn annotations() -> Vec<String> {
    let long = "x".repeat(LONG);
    let fields = json!({
        "operation": "provision", "kind": "retry", "attempt": 1, "at": 1, "size": 1, "tries": 1, "begun": 1, "run": 1,
        "failures": 1, "reason": long, "message": long, "config": long, "to": long, "hash": long, "class": long,
        "has_unknown_attributes": true, "parameters": { long.clone(): long }, "id": long, "volume": long,
        "fingerprint": long, "answered": 1, "largest": 1,
    });
    let list = (0..LONG / 4).map(|n| format!("n{n}")).collect::<Vec<_>>().join(",");
    vec![long.clone(), list, fields.to_string(), json!([fields]).to_string()]
}

/// Returns the heaviest cached form of a filled object, as text.
fn heaviest<K: DeserializeOwned, V: Debug>(view: fn(K) -> Option<V>) -> String {
    let text = |annotation: &String| view(filled::<K>(annotation)).map_or(String::new(), |view| format!("{view:?}"));
    annotations().iter().map(text).max_by_key(String::len).unwrap()
}

/// Returns the texts before the longest words: the names of their fields.
fn long_fields(text: &str) -> Vec<&str> {
    let long: Vec<_> = text.match_indices(&"x".repeat(10_000)).map(|(at, _)| at).collect();
    let first = |at: &usize| at.checked_sub(10_000).is_none_or(|before| !long.contains(&before));
    long.iter().filter(|at| first(at)).map(|at| text.get(at.saturating_sub(60)..*at).unwrap_or_default()).collect()
}

fn claim(claim: PersistentVolumeClaim) -> Option<Claim> {
    Some(Claim::from(&claim).kept(vec!["example.com/mine".into()]))
}

/// A record is kept whole up to the size that the orchestrator gives it. Here each volume has none.
fn volume(mut volume: PersistentVolume) -> Option<Volume> {
    volume.metadata.annotations.as_mut().unwrap().remove(names::PROVENANCE);
    convert(volume)
}

fn content(mut content: VolumeSnapshotContent) -> Option<Content> {
    content.metadata.annotations.as_mut().unwrap().remove(names::PROVENANCE);
    convert(content)
}

#[test]
fn no_text_of_an_object_fills_the_memory() {
    let weights = [
        ("PersistentVolumeClaim", heaviest(claim)),
        ("PersistentVolume", heaviest(volume)),
        ("Node", heaviest(convert::<Node, CachedNode>)),
        ("Namespace", heaviest(convert::<Namespace, CachedNamespace>)),
        ("CSIStorageCapacity", heaviest(convert::<CSIStorageCapacity, Published>)),
        ("CSIDriver", heaviest(convert::<CSIDriver, Driver>)),
        ("VolumeSnapshot", heaviest(convert::<VolumeSnapshot, Snapshot>)),
        ("VolumeSnapshotContent", heaviest(content)),
        ("ReferenceGrant", heaviest(convert::<ReferenceGrant, Grant>)),
        ("ServiceAccount", heaviest(convert::<ServiceAccount, Account>)),
        ("Job", heaviest(convert::<Job, view::Job>)),
        ("Pod", heaviest(convert::<Pod, view::Pod>)),
        ("Event", heaviest(warning_event)),
    ];
    let unread: Vec<_> = weights.iter().filter(|(_, text)| text.len() < 30).map(|(kind, _)| kind).collect();
    assert!(unread.is_empty(), "nothing is read of {unread:?}");
    let heavy: Vec<_> = weights.iter().filter(|(_, text)| text.len() > BOUND).collect();
    let said = heavy.iter().map(|(kind, text)| format!("{kind} {} {:#?}", text.len(), long_fields(text)));
    assert!(heavy.is_empty(), "too much is kept of {}", said.collect::<Vec<_>>().join("\n"));
    let followed = include_str!("watch.rs").split("follow::<").skip(1).map(|rest| rest.split(',').next().unwrap());
    for kind in followed.filter(|kind| *kind != "K" && !CONFIGS.contains(kind)) {
        assert!(weights.iter().any(|(weighed, _)| *weighed == kind), "{kind} is watched: weigh it here");
    }
}

#[test]
fn a_filled_object_has_each_text_of_its_kind() {
    let claim: PersistentVolumeClaim = filled("a");
    let status = claim.status.unwrap();
    assert!(status.current_volume_attributes_class_name.unwrap().len() == LONG);
    let conditions = status.conditions.unwrap();
    assert!(conditions.iter().any(|c| c.type_ == "Resizing" && c.message.as_ref().unwrap().len() == LONG));
    assert_eq!(claim.metadata.annotations.unwrap()[names::FAILURE], "a");
    let snapshot: VolumeSnapshot = filled("a");
    assert_eq!(snapshot.status.unwrap().error.unwrap().message.unwrap().len(), LONG);
    let node: Node = filled("a");
    assert!(matches!(node.status, Some(NodeStatus { images: Some(_), .. })));
}

#[test]
fn a_missing_namespace_is_checked_with_growing_delays() {
    let pauses: Vec<u64> = (0..8).map(|absent| recheck_delay(absent).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(recheck_delay(u32::MAX), MAX_RECHECK_INTERVAL);
}

#[test]
fn a_kept_object_counts_only_with_the_content_that_its_name_says() {
    let object = |name: String, data: serde_json::Value| {
        let meta = json!({ "name": name, "uid": "u", "creationTimestamp": "1970-01-01T00:00:07Z" });
        serde_json::from_value(json!({ "metadata": meta, "revision": 1, "data": data })).unwrap()
    };
    let name = script::kept_prefix(&script::hash("exit 0"));
    let kept = KeptScript { hash: script::hash("exit 0"), text: "exit 0".into(), uid: "u".into(), created: 7 };
    assert_eq!(stored(object(name.clone(), script::kept_data("exit 0"))), Some(Stored::Script(kept)));
    assert_eq!(stored(object(name.clone(), script::kept_data("rm -rf /"))), None, "somebody exchanged it");
    let effective_config = EffectiveConfig::default();
    assert_eq!(stored(object(name, json!(effective_config))), None);
    let recipe = stored(object(revision_name(&effective_config.hash()), json!(effective_config)));
    assert!(matches!(recipe, Some(Stored::Recipe(hash, _)) if hash == effective_config.hash()));
}

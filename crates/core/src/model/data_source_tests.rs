use serde_json::json;

use super::*;
use crate::model::claim::Claim;

fn source(spec: serde_json::Value) -> Option<DataSource> {
    DataSource::of(&serde_json::from_value(spec).unwrap(), "team")
}

#[test]
fn each_kind_of_data_source_is_distinguished() {
    let claim = |namespace: &str| Some(DataSource::Claim(ObjectName::new(namespace, "a")));
    let by_ref = |more: serde_json::Value| source(json!({ "dataSourceRef": more }));
    assert_eq!(source(json!({})), None);
    assert_eq!(source(json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "a" } })), claim("team"));
    let own = json!({ "apiGroup": "", "kind": "PersistentVolumeClaim", "name": "a", "namespace": "" });
    assert_eq!(by_ref(own), claim("team"));
    let other = json!({ "kind": "PersistentVolumeClaim", "name": "a", "namespace": "b" });
    assert_eq!(by_ref(other), claim("b"));
    let snapshot = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" });
    assert_eq!(by_ref(snapshot), Some(DataSource::Snapshot(ObjectName::new("team", "s"))));
    let group = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeGroupSnapshot", "name": "s" });
    assert_eq!(by_ref(group), Some(DataSource::Unknown("VolumeGroupSnapshot s".into())));
    // A kind of the same name in another group is another kind.
    let foreign = json!({ "apiGroup": "example.com", "kind": "PersistentVolumeClaim", "name": "a" });
    assert_eq!(by_ref(foreign), Some(DataSource::Populated("PersistentVolumeClaim.example.com a".into())));
}

#[test]
fn metrics_know_the_kinds_that_an_image_can_use() {
    let name = || ObjectName::new("team", "a");
    for (source, kind) in [
        (DataSource::Claim(name()), "PersistentVolumeClaim"),
        (DataSource::Snapshot(name()), "VolumeSnapshot"),
        (DataSource::Unknown("VolumeGroupSnapshot s".into()), "other"),
        (DataSource::Populated("Any.example.com a".into()), "other"),
        (DataSource::Dropped, ""),
    ] {
        assert_eq!(source.kind(), kind, "{source}");
    }
}

#[test]
fn finalizers_name_the_dependents_of_a_claim() {
    let spec = json!({ "metadata": { "name": "a", "finalizers": ["x", "y", names::clone_finalizer("u"), names::source_finalizer("s")] } });
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(spec).unwrap();
    let claim = Claim::from(&claim);
    assert_eq!(source_users_of(&claim.finalizers).collect::<Vec<_>>(), ["u"]);
    assert_eq!(snapshots_using(&claim.finalizers).collect::<Vec<_>>(), ["s"]);
}

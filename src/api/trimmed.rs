//! Objects of the API without `metadata.managedFields`. The field is often larger than the rest, and is read of Jobs
//! alone. To skip it takes a fraction of the time of building it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// An object without `metadata.managedFields`, unless it is a Job: a Job's writers say whether it was restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Trimmed<K>(pub K);

impl<K: Resource> Resource for Trimmed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl<'de, K> Deserialize<'de> for Trimmed<K>
where
    K: DeserializeOwned + Resource,
    K::DynamicType: Default,
{
    /// Reads the JSON of an API server as text, and cuts it before. Each kind is read from one form of text only,
    /// whatever its source, and so compiled once.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = <&RawValue>::deserialize(deserializer)?;
        let text = match K::kind(&K::DynamicType::default()) == "Job" {
            true => Ok(whole.get().into()),
            false => cut(whole.get()),
        };
        text.and_then(|text| serde_json::from_str(&text)).map(Trimmed).map_err(D::Error::custom)
    }
}

/// The fields of an object as text. Their names may contain escapes.
type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Cuts `metadata.managedFields` from an object. Anything else stays as it is.
fn cut(text: &str) -> serde_json::Result<Cow<'_, str>> {
    if !text.contains("managedFields") {
        return Ok(text.into());
    }
    let Ok(mut object) = serde_json::from_str::<Fields<'_>>(text) else { return Ok(text.into()) };
    let metadata = object.get("metadata").map(|metadata| metadata.get()).unwrap_or_default();
    let Ok(mut fields) = serde_json::from_str::<Fields<'_>>(metadata) else { return Ok(text.into()) };
    if fields.remove("managedFields").is_none() {
        return Ok(text.into());
    }
    let metadata = to_raw_value(&fields)?;
    object.insert("metadata".into(), &metadata);
    serde_json::to_string(&object).map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use flex_core::model::snapshot::api::VolumeSnapshot;
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
    use kube::ResourceExt;
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    fn managed() -> serde_json::Value {
        json!([{ "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": { "f:metadata": { "f:labels": {} } } }])
    }

    fn claim_with(managed: serde_json::Value) -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "a", "managedFields": managed, "annotations": { "managedFields": "mine", "q\"": "\u{e4}\n" },
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "later": { "than": ["we"] },
            },
            "spec": { "storageClassName": "s", "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "phase": "Bound", "conditions": [] },
        })
    }

    #[test]
    fn everything_but_the_managed_fields_is_read() {
        let claim = claim_with;
        let whole: PersistentVolumeClaim = serde_json::from_value(claim(json!(null))).unwrap();
        for text in [claim(managed()).to_string(), format!("{:#}", claim(managed()))] {
            let lean: Trimmed<PersistentVolumeClaim> = serde_json::from_str(&text).unwrap();
            assert_eq!(lean.0, whole);
            assert_eq!(serde_json::to_value(&lean).unwrap(), serde_json::to_value(&whole).unwrap());
        }
        let text = claim(managed()).to_string();
        let lean: Trimmed<PersistentVolumeClaim> = serde_json::from_str(&text).unwrap();
        assert_eq!((lean.name_any(), lean.0), ("a".into(), whole));
    }

    #[test]
    fn the_writers_of_a_job_are_read() {
        let job = json!({ "metadata": { "name": "j", "managedFields": managed() }, "spec": { "template": {} } });
        let whole: Trimmed<Job> = serde_json::from_str(&job.to_string()).unwrap();
        assert_eq!(whole.managed_fields()[0].manager.as_deref(), Some("m"));
    }

    #[test]
    fn kinds_with_their_own_readers_are_trimmed_too() {
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "s", "managedFields": managed() },
            "spec": { "source": { "persistentVolumeClaimName": "c" } },
        });
        let lean: Trimmed<VolumeSnapshot> = serde_json::from_str(&snapshot.to_string()).unwrap();
        assert_eq!((lean.name_any().as_str(), lean.managed_fields()), ("s", &[][..]));
        let list = json!({ "apiVersion": "v1", "kind": "VolumeSnapshotList", "metadata": {}, "items": [snapshot] });
        let list: kube::core::ObjectList<Trimmed<VolumeSnapshot>> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!((list.items.len(), list.items[0].name_any()), (1, lean.name_any()));
        let event = format!(r#"{{"type":"ADDED","object":{}}}"#, claim_with(managed()));
        let event: WatchEvent<Trimmed<PersistentVolumeClaim>> = serde_json::from_slice(event.as_bytes()).unwrap();
        let WatchEvent::Added(Trimmed(claim)) = event else { panic!("{event:?}") };
        assert_eq!((claim.name_any().as_str(), claim.managed_fields()), ("a", &[][..]));
    }

    #[test]
    fn objects_without_valid_metadata_are_read_as_usual() {
        for text in [
            r#"{"data":{"managedFields":"x"}}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"managedFields":null}}"#,
            r#"{"metadata":[1]}"#,
            r#"{"metadata":"text"}"#,
            r#"{"metadata":{"name":1}}"#,
            r#"{"kind":"Secret"}"#,
            "[]",
            "7",
            "null",
            "{",
        ] {
            let (whole, lean) =
                (serde_json::from_str::<ConfigMap>(text), serde_json::from_str::<Trimmed<ConfigMap>>(text));
            assert_eq!(lean.map(|lean| lean.0).ok(), whole.ok(), "{text}");
        }
    }
}

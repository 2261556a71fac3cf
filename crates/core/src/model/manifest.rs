//! The data source that the user requested, compared with the claim that the API server has stored.
//!
//! The API server silently drops a field that it does not know, and a data source that it does not allow. The stored
//! claim then requests an empty volume. An admission policy sees a source before it is dropped, and the annotation of
//! `kubectl apply` also shows a field with a wrong name.

use std::collections::BTreeMap;

use flex_contract::names::SOURCE_NAMESPACE;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use serde::Deserialize;
use serde_json::Value;

/// The annotation in which `kubectl apply` keeps the manifest.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that name a data source, in lower case and without `-` and `_`. So other spellings are found too.
const SOURCES: [&str; 2] = ["datasource", "datasourceref"];

/// The fields of a manifest that matter here.
#[derive(Debug, Deserialize)]
struct Manifest {
    metadata: Named,
    spec: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    namespace: Option<String>,
}

impl Manifest {
    /// Reads the manifest of the claim itself. A tool that copies claims may have copied that of another.
    fn of(claim: &PersistentVolumeClaim) -> Option<Self> {
        let text = claim.metadata.annotations.as_ref()?.get(LAST_APPLIED)?;
        let manifest: Manifest = serde_json::from_str(text).ok()?;
        let named = &manifest.metadata;
        let in_namespace = named.namespace.is_none() || named.namespace == claim.metadata.namespace;
        (Some(&named.name) == claim.metadata.name.as_ref() && in_namespace).then_some(manifest)
    }

    /// Returns the data sources that the manifest names.
    fn sources(&self) -> impl Iterator<Item = &Value> {
        let is_source = |field: &str| {
            let field: String = field.chars().filter(|c| !matches!(c, '-' | '_')).collect();
            SOURCES.contains(&field.to_lowercase().as_str())
        };
        self.spec.iter().filter(move |(field, source)| is_source(field) && !source.is_null()).map(|(_, source)| source)
    }
}

/// Checks whether the claim was created with a data source, or a namespace of one, that the API server has dropped.
pub fn is_source_dropped(claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.as_ref();
    let has = |spec: &PersistentVolumeClaimSpec| spec.data_source.is_some() || spec.data_source_ref.is_some();
    let namespace = spec.and_then(|spec| spec.data_source_ref.as_ref()?.namespace.as_deref()).unwrap_or_default();
    let own = claim.metadata.namespace.as_deref().unwrap_or_default();
    let is_kept = |from: &str| spec.is_some_and(has) && (from.is_empty() || from == own || from == namespace);
    let noted = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SOURCE_NAMESPACE));
    let manifest = Manifest::of(claim);
    let mut applied = manifest.iter().flat_map(Manifest::sources);
    noted.is_some_and(|from| !is_kept(from))
        || applied.any(|source| !is_kept(source["namespace"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the claim `team/copy` with a spec, and a manifest of this metadata and spec.
    fn claim(metadata: Value, manifest: Value, spec: Value) -> bool {
        let applied =
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": manifest });
        bearing(&applied.to_string(), spec)
    }

    fn bearing(applied: &str, spec: Value) -> bool {
        let metadata = json!({ "name": "copy", "namespace": "team", "annotations": { LAST_APPLIED: applied } });
        is_source_dropped(&serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    #[test]
    fn a_later_edit_takes_no_source_from_a_begun_claim() {
        let applied = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "copy", "namespace": "team" },
            "spec": { "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "original", "namespace": "gold" } },
        });
        let source = json!({ "kind": "PersistentVolumeClaim", "name": "original" });
        let of = |stamp: &str| {
            let annotations = json!({ LAST_APPLIED: applied.to_string(), flex_contract::names::CLAIM_UID: stamp });
            let metadata = json!({ "name": "copy", "namespace": "team", "uid": "u", "annotations": annotations });
            let claim = json!({ "metadata": metadata, "spec": { "dataSource": source } });
            let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            crate::model::claim::Claim::from(&claim).data_source
        };
        assert_eq!(of(""), Some(crate::model::data_source::DataSource::Dropped));
        assert!(matches!(of("u"), Some(crate::model::data_source::DataSource::Claim(_))), "{:?}", of("u"));
    }

    #[test]
    fn a_source_in_the_manifest_that_the_claim_lacks_was_dropped() {
        let own = || json!({ "name": "copy", "namespace": "team" });
        let source = json!({ "kind": "PersistentVolumeClaim", "name": "original" });
        let elsewhere = json!({ "kind": "PersistentVolumeClaim", "name": "original", "namespace": "gold" });
        let (old, new) = (json!({ "dataSource": source }), json!({ "dataSourceRef": source }));
        let both = json!({ "dataSource": source, "dataSourceRef": source });
        let far = json!({ "dataSourceRef": elsewhere });
        let none = json!({});
        for (what, manifest, spec, dropped) in [
            ("it names none", &none, &none, false),
            ("it has one that a webhook gave it", &none, &both, false),
            ("the old field", &old, &none, true),
            ("the new field", &new, &none, true),
            ("the old field is kept as both", &old, &both, false),
            ("an API server without the new field", &old, &old, false),
            ("the new field is kept as both", &new, &both, false),
            ("no source at all", &json!({ "dataSource": null }), &none, false),
            ("another spelling", &json!({ "datasource": source }), &none, true),
            ("another spelling of the new field", &json!({ "data_source_ref": source }), &none, true),
            ("another field", &json!({ "dataSourcing": source }), &none, false),
            ("another namespace", &far, &far, false),
            ("its namespace is dropped", &far, &both, true),
            ("its own namespace", &json!({ "dataSourceRef": { "name": "a", "namespace": "team" } }), &both, false),
        ] {
            assert_eq!(claim(own(), manifest.clone(), spec.clone()), dropped, "{what}");
        }
        for (what, from, spec, dropped) in [
            ("a source of the own namespace", "team", &both, false),
            ("a source of another namespace", "gold", &far, false),
            ("the whole source is dropped", "team", &none, true),
            ("the namespace is dropped", "gold", &both, true),
        ] {
            let metadata = json!({ "name": "copy", "namespace": "team", "annotations": { SOURCE_NAMESPACE: from } });
            let created = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            assert_eq!(is_source_dropped(&created), dropped, "whatever client has created it: {what}");
        }
        assert!(claim(json!({ "name": "copy" }), old.clone(), none.clone()), "kubectl may leave the namespace out");
        for other in [json!({ "name": "other" }), json!({ "name": "copy", "namespace": "gold" }), json!({})] {
            assert!(!claim(other, old.clone(), none.clone()), "the manifest of another claim");
        }
        for text in ["", "{", "[]", "{\"spec\":{\"dataSource\":{}}}", "{\"metadata\":{\"name\":\"copy\"},\"spec\":7}"] {
            assert!(!bearing(text, none.clone()), "{text}");
        }
    }
}

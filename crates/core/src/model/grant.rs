//! ReferenceGrants: a namespace allows claims of other namespaces to use its objects as data sources.
//!
//! The kind belongs to the Gateway API, and a cluster may lack it. The API server drops the namespace of a data source
//! unless the alpha gate `CrossNamespaceVolumeDataSource` is on.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::data_source::DataSource;
use crate::model::snapshot::api;
use crate::object::ObjectName;
use crate::text::name;

/// The largest number of items in each list of a grant.
const MAX_ITEMS: usize = 16;

/// The kind's name in the API.
pub const KIND: &str = "ReferenceGrant";

/// The fields of `gateway.networking.k8s.io/v1beta1` that the orchestrator reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrant {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The permission that the grant gives.
    #[serde(default)]
    pub spec: Spec,
}

/// A permission: each of `from` may refer to each of `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The objects that may refer.
    pub from: Vec<Referrer>,
    /// The objects in the grant's namespace to which they may refer.
    pub to: Vec<To>,
}

/// All objects of a kind in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Referrer {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind of the objects.
    pub kind: String,
    /// The namespace of the objects.
    pub namespace: String,
}

/// All objects of a kind, or one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct To {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind of the objects.
    pub kind: String,
    /// The name of the object; `None` or empty for all.
    pub name: Option<String>,
}

impl kube_core::Resource for ReferenceGrant {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "gateway.networking.k8s.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "referencegrants".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A ReferenceGrant in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The name of the grant.
    pub name: ObjectName,
    /// The permission that the grant gives.
    pub spec: Spec,
}

impl From<&ReferenceGrant> for Grant {
    fn from(grant: &ReferenceGrant) -> Self {
        let from = |from: &Referrer| Referrer {
            group: name(&from.group),
            kind: name(&from.kind),
            namespace: name(&from.namespace),
        };
        let to = |to: &To| To { group: name(&to.group), kind: name(&to.kind), name: to.name.as_deref().map(name) };
        // The kind allows no longer lists. A grant of an older CRD may have any.
        let spec = Spec {
            from: grant.spec.from.iter().take(MAX_ITEMS).map(from).collect(),
            to: grant.spec.to.iter().take(MAX_ITEMS).map(to).collect(),
        };
        Grant { name: ObjectName::of(&grant.metadata), spec }
    }
}

impl Grant {
    /// Checks whether claims of a namespace may have this data source, which is in the grant's namespace.
    pub fn permits(&self, namespace: &str, source: &DataSource) -> bool {
        let (group, kind, name) = match source {
            DataSource::Claim(name) => ("", "PersistentVolumeClaim", name),
            DataSource::Snapshot(name) => (api::GROUP, "VolumeSnapshot", name),
            DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped => return false,
        };
        let from = |from: &Referrer| {
            (from.group.as_str(), from.kind.as_str(), from.namespace.as_str())
                == ("", "PersistentVolumeClaim", namespace)
        };
        let to = |to: &To| {
            let named = to.name.as_deref().filter(|name| !name.is_empty());
            (to.group.as_str(), to.kind.as_str()) == (group, kind) && named.is_none_or(|named| named == name.name)
        };
        self.name.namespace == name.namespace && self.spec.from.iter().any(from) && self.spec.to.iter().any(to)
    }
}

/// Says which ReferenceGrant the claim's namespace needs, for the claim's event.
pub fn not_granted(claim: &Claim) -> String {
    let namespace = &claim.name.namespace;
    format!(
        "is in another namespace, where no ReferenceGrant (gateway.networking.k8s.io/v1beta1) lets claims of namespace {namespace} use it; its owner can create one"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grant_permits_the_named_objects_and_nothing_else() {
        let claim = |namespace: &str, name: &str| DataSource::Claim(ObjectName::new(namespace, name));
        let grant = |to: serde_json::Value| {
            let from = json!([{ "group": "", "kind": "PersistentVolumeClaim", "namespace": "team" }]);
            let grant =
                json!({ "metadata": { "name": "g", "namespace": "gold" }, "spec": { "from": from, "to": [to] } });
            Grant::from(&serde_json::from_value::<ReferenceGrant>(grant).unwrap())
        };
        let all = grant(json!({ "group": "", "kind": "PersistentVolumeClaim" }));
        assert!(all.permits("team", &claim("gold", "a")));
        assert!(!all.permits("other", &claim("gold", "a")), "another namespace asks");
        assert!(!all.permits("team", &claim("silver", "a")), "the grant is in another namespace");
        assert!(!all.permits("team", &DataSource::Snapshot(ObjectName::new("gold", "a"))), "another kind");
        let one = grant(json!({ "group": "", "kind": "PersistentVolumeClaim", "name": "a" }));
        assert!(one.permits("team", &claim("gold", "a")) && !one.permits("team", &claim("gold", "b")));
        let snapshots = grant(json!({ "group": api::GROUP, "kind": "VolumeSnapshot", "name": "" }));
        assert!(snapshots.permits("team", &DataSource::Snapshot(ObjectName::new("gold", "s"))));
        assert!(!snapshots.permits("team", &claim("gold", "s")));
    }
}

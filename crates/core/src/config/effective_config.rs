//! The stored form of a recipe. A revision holds it while claims use it, and the provenance of each volume contains it.
//!
//! An effective config holds the data of the ConfigMap, overridden by those of the StorageClass. So the same code can
//! check it again later, and neither object is needed any more. It never contains the service token, which is read from
//! the ConfigMap.

use std::collections::BTreeMap;

use super::keys;
use crate::object::{ObjectName, hash};

/// The effective data of a class, with its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct EffectiveConfig {
    /// The ConfigMap of the data.
    pub config: ObjectName,
    /// The name of the class.
    pub class: String,
    /// The ConfigMap had a service token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service_token: bool,
    /// The effective data, without the service token and the script.
    pub data: BTreeMap<String, String>,
    /// The [hash](super::script::hash) of the config's script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The CSI driver that is the provisioner of the StorageClass; empty for classes of this orchestrator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// The parameters of a StorageClass that was written for another provisioner. None of them is a key, whatever its
    /// name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl EffectiveConfig {
    /// Returns a hash of the whole config.
    pub fn hash(&self) -> String {
        hash(serde_json::json!(self).to_string().as_bytes())
    }

    /// Returns a hash of the data that make a difference to the volumes. It leaves out settings that only say how, when
    /// or how many.
    pub fn pool_hash(&self) -> String {
        let data = self.data.iter().filter(|(key, _)| keys::find(key).is_none_or(|key| key.affects_volume));
        let data = data.map(|(key, value)| (key.clone(), value.clone())).collect();
        EffectiveConfig { data, ..self.clone() }.hash()
    }

    /// Returns the [version](super::Recipe::version) of the recipe.
    pub fn version(&self) -> String {
        version(&self.config, &self.hash())
    }

    /// Returns the provisioner of the class and its volumes: the driver that the config replaces, or `own`.
    pub fn provisioner<'a>(&'a self, own: &'a str) -> &'a str {
        if self.replaces.is_empty() { own } else { &self.replaces }
    }

    /// Returns the value of `pv.kubernetes.io/provisioned-by` on a volume with this kind of source: the provisioner, or
    /// for a volume of `own` that no CSI driver mounts, `own/KIND`. Backup tools take each volume with the name of a
    /// CSIDriver for one of CSI, and the orchestrator creates a CSIDriver of its own name. No CSIDriver has a slash.
    pub fn provisioned_by(&self, own: &str, source_kind: Option<&str>) -> String {
        match (self.provisioner(own), source_kind) {
            (name, Some("csi")) => name.to_owned(),
            (name, kind) if name == own => format!("{name}/{}", kind.unwrap_or("unknown")),
            (name, _) => name.to_owned(),
        }
    }
}

pub(super) fn version(config: &ObjectName, hash: &str) -> String {
    format!("{config}@{hash}")
}

/// Returns the hash in a `namespace/name@hash`.
pub fn hash_of(version: &str) -> Option<&str> {
    version.rsplit_once('@').map(|(_, hash)| hash)
}

/// Returns the name of the ControllerRevision that holds the effective config with this hash.
pub fn revision_name(hash: &str) -> String {
    format!("flex-config-{hash}")
}

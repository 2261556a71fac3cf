//! The form in which a recipe is kept: in a revision while claims use it, and in the provenance of
//! the volumes that were made with it.
//!
//! A record holds the effective data (the ConfigMap's, with the StorageClass's over it), so that it
//! can be checked again by the same code that checked it first, and needs neither object any more.
//! The service token never enters it: it stays in the ConfigMap and is read there.

use std::collections::BTreeMap;

use super::check;
use super::{Problem, Recipe};
use crate::object::{ObjectName, hash};

/// Effective data of a class, with where it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The ConfigMap.
    pub config: ObjectName,
    /// The class.
    pub class: String,
    /// The ConfigMap had a service token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service_token: bool,
    /// The effective data, without the service token.
    pub data: BTreeMap<String, String>,
    /// The CSI driver whose name its StorageClass has as its provisioner; empty for classes of this one's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stands_for: String,
    /// The parameters of a StorageClass that was written for another provisioner: none of them is a key, whatever it is called.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl Record {
    /// A hash over everything in it.
    pub fn hash(&self) -> String {
        hash(serde_json::json!(self).to_string().as_bytes())
    }

    /// `namespace/name@hash`, as it stands on claims and Jobs.
    pub fn version(&self) -> String {
        format!("{}@{}", self.config, self.hash())
    }

    /// The provisioner of its class and its volumes: the driver that it stands for, or `own`.
    pub fn provisioner<'a>(&'a self, own: &'a str) -> &'a str {
        if self.stands_for.is_empty() { own } else { &self.stands_for }
    }

    /// The recipe that it records.
    pub fn recipe(&self) -> Result<Recipe, Vec<Problem>> {
        check::recipe(self.clone())
    }
}

/// The hash in a `namespace/name@hash`.
pub fn hash_of(version: &str) -> Option<&str> {
    version.rsplit_once('@').map(|(_, hash)| hash)
}

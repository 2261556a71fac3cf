//! What [`classes`](super::classes) are decided from: configs, StorageClasses and the revisions that are kept, as far as they
//! matter.

use std::collections::BTreeMap;

use contract::names;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;

use super::record::Record;
use super::sidecar;
use super::slips;
use super::topology::Topologies;
use super::{Problem, keys};
use crate::object::ObjectName;

/// What the orchestrator is called, and where it looks for configs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The provisioner name in StorageClasses.
    pub provisioner: String,
    /// The plugin name in ConfigMaps.
    pub plugin: String,
    /// The instance id on every object.
    pub instance: String,
    /// Where configs are looked for.
    pub config_namespaces: Vec<String>,
    /// Where the orchestrator itself lives.
    pub namespace: String,
}

/// A provisioner ConfigMap, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
    /// When it was created, RFC 3339.
    pub created: String,
    /// The class that its label names.
    pub class: Option<String>,
    /// Its data.
    pub data: BTreeMap<String, String>,
    /// The verdict that stands on it.
    pub verdict: Option<String>,
    /// Slips in its labels.
    pub slips: Vec<Problem>,
}

impl From<&ConfigMap> for Config {
    fn from(map: &ConfigMap) -> Self {
        let label = |key: &str| map.metadata.labels.as_ref()?.get(key).cloned();
        Config {
            name: ObjectName::of(&map.metadata),
            uid: map.metadata.uid.clone().unwrap_or_default(),
            created: map.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            class: label(names::LABEL_STORAGE_CLASS).filter(|class| !class.is_empty()),
            data: map.data.clone().unwrap_or_default(),
            verdict: map.metadata.annotations.as_ref().and_then(|a| a.get(names::VERDICT).cloned()),
            slips: slips::in_labels(&map.metadata),
        }
    }
}

impl Config {
    /// The CSI driver whose external provisioner it takes the place of.
    pub fn stands_for(&self) -> Option<&str> {
        sidecar::driver(&self.data)
    }

    /// Whether it is meant for this orchestrator.
    pub fn is_for(&self, identity: &Identity) -> bool {
        let plugin = |plugin: &String| plugin.trim() == identity.plugin;
        identity.config_namespaces.contains(&self.name.namespace)
            && self.data.get(keys::PLUGIN_NAME.name).is_none_or(plugin)
    }
}

/// When a claim's volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingMode {
    /// At once.
    Immediate,
    /// When the scheduler has selected a node for the first pod.
    WaitForFirstConsumer,
}

/// A StorageClass object, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassObject {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its provisioner.
    pub provisioner: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// Its reclaim policy.
    pub reclaim_policy: String,
    /// Its mount options.
    pub mount_options: Vec<String>,
    /// Its binding mode.
    pub binding: BindingMode,
    /// Its claims may ask for more later.
    pub allow_expansion: bool,
    /// Where its volumes may be.
    pub allowed: Topologies,
}

impl From<&StorageClass> for ClassObject {
    fn from(class: &StorageClass) -> Self {
        ClassObject {
            name: class.metadata.name.clone().unwrap_or_default(),
            uid: class.metadata.uid.clone().unwrap_or_default(),
            provisioner: class.provisioner.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
            reclaim_policy: class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into()),
            mount_options: class.mount_options.clone().unwrap_or_default(),
            binding: match class.volume_binding_mode.as_deref() {
                Some("WaitForFirstConsumer") => BindingMode::WaitForFirstConsumer,
                _ => BindingMode::Immediate,
            },
            allow_expansion: class.allow_volume_expansion.unwrap_or_default(),
            allowed: Topologies::from(class.allowed_topologies.as_deref().unwrap_or_default()),
        }
    }
}

/// A kept recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Higher is newer, within one config and class.
    pub number: i64,
    /// What it keeps.
    pub record: Record,
    /// When it was created, in seconds since 1970.
    pub created: i64,
}

/// The parameter of a StorageClass that names its config.
pub const CONFIG_PARAMETER: &str = "provisioner-config";

/// What other provisioners call `fs-type` in their StorageClasses.
const FS_TYPE: &[&str] = &["fsType", "fstype"];

/// The record of a config for a class without an object.
pub fn record_of(config: &Config, class: &str) -> Record {
    let mut data = config.data.clone();
    let service_token = data.remove(keys::SERVICE_TOKEN.name).is_some();
    data.remove(keys::PLUGIN_NAME.name);
    Record { config: config.name.clone(), class: class.to_owned(), service_token, data, ..Record::default() }
}

/// The record of a config for a StorageClass, whose fields and parameters win.
pub fn record_with(config: &Config, object: &ClassObject) -> Result<Record, Vec<Problem>> {
    let mut record = record_of(config, &object.name);
    let mut problems = Vec::new();
    // Its parameters are those of another provisioner, which knows none of our keys.
    let written_for_another = config.stands_for() == Some(object.provisioner.as_str());
    if written_for_another {
        record.stands_for = object.provisioner.clone();
        record.parameters = object.parameters.clone();
    }
    for (key, value) in object.parameters.iter().filter(|_| !written_for_another) {
        if key == CONFIG_PARAMETER {
            continue;
        }
        if keys::find(key).is_some_and(|key| !key.class_may_set) {
            problems.push(Problem::new(key.clone(), "as a parameter of the StorageClass is not allowed: it belongs in the provisioner ConfigMap (or, for the reclaim policy and mount options, in the StorageClass's own fields)"));
        }
        if FS_TYPE.contains(&key.as_str()) {
            if object.parameters.contains_key(keys::FS_TYPE.name) {
                problems.push(Problem::new(
                    key.clone(),
                    "names the file system a second time, beside `fs-type`; write one of the two",
                ));
            }
            // Images that hand parameters on need it by its own name, too.
            record.parameters.insert(key.clone(), value.clone());
            record.data.insert(keys::FS_TYPE.name.into(), value.clone());
            continue;
        }
        record.data.insert(key.clone(), value.clone());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    record.data.insert(keys::RECLAIM_POLICY.name.into(), object.reclaim_policy.clone());
    match object.mount_options.is_empty() {
        true => record.data.remove(keys::MOUNT_OPTIONS.name),
        false => {
            record.data.insert(keys::MOUNT_OPTIONS.name.into(), serde_json::json!(object.mount_options).to_string())
        }
    };
    Ok(record)
}

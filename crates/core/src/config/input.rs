//! The inputs of [`classes`](super::classes): configs, StorageClasses and stored revisions, with the fields that
//! matter.

use flex_contract::policy::ReclaimPolicy;
use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::names;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;

use super::effective_config::EffectiveConfig;
use super::identity::Identity;
use super::labels;
use super::topology::Topologies;
use super::{Problem, keys, script};
use crate::object::ObjectName;

/// A provisioner ConfigMap, with the fields that the orchestrator needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The name of the ConfigMap.
    pub name: ObjectName,
    /// The UID of the ConfigMap.
    pub uid: String,
    /// The time of its creation, RFC 3339.
    pub created: String,
    /// The class that the label of the ConfigMap names.
    pub class: Option<String>,
    /// The data of the ConfigMap.
    pub data: BTreeMap<String, String>,
    /// The verdict in its annotation.
    pub verdict: Option<String>,
    /// Probable mistakes in its labels.
    pub label_mistakes: Vec<Problem>,
}

impl From<&ConfigMap> for Config {
    fn from(map: &ConfigMap) -> Self {
        Config {
            name: ObjectName::of(&map.metadata),
            uid: map.metadata.uid.clone().unwrap_or_default(),
            created: map.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            class: labels::class(&map.metadata).map(|(_, class)| class.to_owned()),
            data: map.data.clone().unwrap_or_default(),
            verdict: map.metadata.annotations.as_ref().and_then(|a| a.get(names::VERDICT).cloned()),
            label_mistakes: labels::in_labels(&map.metadata),
        }
    }
}

impl Config {
    /// Returns the CSI driver whose external provisioner the config replaces.
    pub fn replaces(&self) -> Option<&str> {
        replaced_driver(&self.data)
    }

    /// Checks whether the config is meant for this orchestrator.
    pub fn is_for(&self, identity: &Identity) -> bool {
        let plugin = |plugin: &String| identity.is_plugin(plugin.trim());
        identity.config_namespaces.contains(&self.name.namespace)
            && self.data.get(keys::PLUGIN_NAME.name).is_none_or(plugin)
    }
}

/// Returns the driver that a config with this data replaces.
pub fn replaced_driver(data: &BTreeMap<String, String>) -> Option<&str> {
    data.get(keys::REPLACES_PROVISIONER.name).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// The time at which a claim's volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingMode {
    /// As soon as the claim exists.
    Immediate,
    /// When the scheduler has selected a node for the claim's first pod.
    WaitForFirstConsumer,
}

/// A StorageClass object, with the fields that the orchestrator needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassObject {
    /// The name of the class.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// The provisioner of the class.
    pub provisioner: String,
    /// The parameters of the class.
    pub parameters: BTreeMap<String, String>,
    /// The reclaim policy of the class.
    pub reclaim_policy: ReclaimPolicy,
    /// The mount options of the class.
    pub mount_options: Vec<String>,
    /// The binding mode of the class.
    pub binding: BindingMode,
    /// Bound claims may request a larger size.
    pub allow_expansion: bool,
    /// The topologies in which volumes may be.
    pub allowed: Topologies,
}

impl From<&StorageClass> for ClassObject {
    fn from(class: &StorageClass) -> Self {
        ClassObject {
            name: class.metadata.name.clone().unwrap_or_default(),
            uid: class.metadata.uid.clone().unwrap_or_default(),
            provisioner: class.provisioner.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
            reclaim_policy: class.reclaim_policy.as_deref().unwrap_or("Delete").into(),
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

/// A stored recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The number of the revision. A higher number is newer, within one class.
    pub number: i64,
    /// The recipe's data.
    pub effective_config: EffectiveConfig,
    /// The time of its creation, in seconds since 1970.
    pub created: i64,
}

/// A revision that is not stored yet.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// The effective config.
    pub effective_config: EffectiveConfig,
    /// The number of the revision.
    pub number: i64,
}

/// A stored script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptScript {
    /// The hash of the text.
    pub hash: String,
    /// The text.
    pub text: Arc<str>,
    /// The UID of the object that keeps the text.
    pub uid: String,
    /// The time of its creation, in seconds since 1970.
    pub created: i64,
}

/// The parameter of a StorageClass that names its config.
pub const CONFIG_PARAMETER: &str = "provisioner-config";

/// The names that other provisioners use for `fs-type` in their StorageClasses.
const FS_TYPE: &[&str] = &["fsType", "fstype"];

/// Returns the effective config of a class without an object.
pub fn effective_config_of(config: &Config, class: &str) -> EffectiveConfig {
    let mut data = config.data.clone();
    let service_token = data.remove(keys::SERVICE_TOKEN.name).is_some();
    let script = script::take(&mut data);
    data.remove(keys::PLUGIN_NAME.name);
    EffectiveConfig {
        config: config.name.clone(),
        class: class.to_owned(),
        service_token,
        data,
        script,
        ..EffectiveConfig::default()
    }
}

/// Returns the effective config of a StorageClass, whose fields and parameters override the config.
pub fn effective_config_with(config: &Config, object: &ClassObject) -> Result<EffectiveConfig, Vec<Problem>> {
    let mut effective_config = effective_config_of(config, &object.name);
    let mut problems = Vec::new();
    // The parameters were written for another provisioner, which does not know the keys of this project.
    let written_for_another = config.replaces() == Some(object.provisioner.as_str());
    if written_for_another {
        effective_config.replaces = object.provisioner.clone();
        effective_config.parameters = object.parameters.clone();
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
            // Images that pass parameters on need this one by its own name, too.
            effective_config.parameters.insert(key.clone(), value.clone());
            effective_config.data.insert(keys::FS_TYPE.name.into(), value.clone());
            continue;
        }
        effective_config.data.insert(key.clone(), value.clone());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    effective_config.data.insert(keys::RECLAIM_POLICY.name.into(), object.reclaim_policy.to_string());
    match object.mount_options.is_empty() {
        true => effective_config.data.remove(keys::MOUNT_OPTIONS.name),
        false => effective_config
            .data
            .insert(keys::MOUNT_OPTIONS.name.into(), serde_json::json!(object.mount_options).to_string()),
    };
    Ok(effective_config)
}

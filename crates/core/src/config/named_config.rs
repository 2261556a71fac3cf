//! The config that a StorageClass names, or lacks.

use std::collections::BTreeMap;

use super::common_mistakes;
use super::identity::Identity;
use super::input::{CONFIG_PARAMETER, ClassObject, Config};
use crate::object::ObjectName;

/// Says why a StorageClass that names no config has none.
pub(super) fn no_config(identity: &Identity, object: &ClassObject) -> String {
    if let Some(meant) = common_mistakes::meant_as_config(&object.parameters) {
        return format!(
            "no provisioner config serves the class, and its parameter `{meant}` names none; did you mean `{CONFIG_PARAMETER}`?"
        );
    }
    format!(
        "no provisioner config serves the class: create a ConfigMap with the labels `type: provisioner-config` and `storage-class: {}` in the namespace {}",
        object.name,
        identity.config_namespaces.join(" or ")
    )
}

/// Finds the config that the parameter of a StorageClass names.
///
/// # Errors
/// If the text is no name, or if there is no such config.
pub(super) fn config_of_parameter<'a>(
    identity: &Identity,
    configs: &BTreeMap<&ObjectName, &'a Config>,
    text: &str,
) -> Result<&'a Config, String> {
    let name: ObjectName =
        text.parse().map_err(|error| format!("the StorageClass's parameter {CONFIG_PARAMETER}: {error}"))?;
    if !identity.config_namespaces.contains(&name.namespace) {
        return Err(format!(
            "the StorageClass's parameter {CONFIG_PARAMETER} points to {name}, but configs are only read in {}",
            identity.config_namespaces.join(", ")
        ));
    }
    configs.get(&name).copied().ok_or_else(|| {
        format!("the ConfigMap {name}, which the StorageClass names, does not exist, lacks the label `type: provisioner-config`, or is meant for another plugin")
    })
}

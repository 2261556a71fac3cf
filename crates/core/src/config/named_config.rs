//! The config that a StorageClass names, or lacks.

use std::collections::BTreeMap;

use super::identity::Identity;
use super::input::{CONFIG_PARAMETER, ClassObject, Config};
use super::{common_mistakes, keys};
use crate::limits;
use crate::object::ObjectName;
use crate::text::line;

/// Says why a StorageClass that names no config has none. `others` are the configs for other orchestrators.
pub(super) fn no_config(identity: &Identity, object: &ClassObject, others: &[&Config]) -> String {
    if let Some(config) = others.iter().find(|config| config.class.as_deref() == Some(object.name.as_str())) {
        let plugin = config.data.get(keys::PLUGIN_NAME.name).map(|plugin| line(plugin, limits::NAME));
        return format!(
            "no provisioner config serves the class: ConfigMap {} has its label, but `plugin-name: {}`; write `plugin-name: {}`, in the namespace {}",
            config.name,
            plugin.unwrap_or_default(),
            identity.plugin,
            identity.config_namespaces.join(" or ")
        );
    }
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::storage::v1::StorageClass;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_for_another_plugin_is_named() {
        let class: StorageClass =
            serde_json::from_value(json!({ "metadata": { "name": "gold" }, "provisioner": "p" })).unwrap();
        let identity: Identity = serde_json::from_value(json!({
            "provisioner": "p", "plugin": "ours", "instance": "i", "config_namespaces": ["admin"], "namespace": "own",
            "shell_image": null,
        }))
        .unwrap();
        let config = |class: &str| Config {
            name: ObjectName::new("admin", "nfs"),
            class: Some(class.to_owned()),
            data: [("plugin-name".to_owned(), "flex-provisioner.io".to_owned())].into(),
            ..Config::default()
        };
        let said = |config: &Config| no_config(&identity, &ClassObject::from(&class), &[config]);
        let named = said(&config("gold"));
        assert!(named.contains("ConfigMap admin/nfs has its label, but `plugin-name: flex-provisioner.io`"), "{named}");
        assert!(named.contains("write `plugin-name: ours`"), "{named}");
        assert!(said(&config("silver")).contains("create a ConfigMap with the labels"));
    }
}

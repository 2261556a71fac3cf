//! The values of all keys of a class, each with the place where an admin finds or sets it.

use std::fmt;

use super::classes::{ClassObject, Config};
use super::effective_config::EffectiveConfig;
use super::{Recipe, keys};
use crate::object::ObjectName;

/// The place that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The data of this ConfigMap.
    ConfigMap(ObjectName),
    /// A stored version of this ConfigMap, which has errors now.
    StoredConfig(ObjectName),
    /// A parameter of the StorageClass.
    Parameter,
    /// This field of the StorageClass.
    Field(&'static str),
    /// Nobody has set the key.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::ConfigMap(name) => write!(f, "ConfigMap {name}"),
            Origin::StoredConfig(name) => write!(f, "the last valid version of ConfigMap {name}"),
            Origin::Parameter => f.write_str("parameter of the StorageClass"),
            Origin::Field(field) => write!(f, "{field} of the StorageClass"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A key, or a parameter of the image, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedValue {
    /// The name of the key or parameter.
    pub name: String,
    /// The value as its writer wrote it; for a default, its documentation in Markdown.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
    /// The orchestrator passes the value to the image, and does not know its meaning.
    pub is_parameter: bool,
}

/// Explains the values of a class: the keys in the order of their documentation, then the parameters.
///
/// `config` is the ConfigMap as it is now, and `object` the StorageClass. Either may be gone.
pub fn explain(recipe: &Recipe, config: Option<&Config>, object: Option<&ClassObject>) -> Vec<ExplainedValue> {
    let EffectiveConfig { data, script, service_token, parameters, .. } = &recipe.effective_config;
    let origin = |name: &str| origin(name, recipe, config, object);
    let mut values = Vec::new();
    for key in keys::ALL {
        let name = key.name;
        let hidden = match name {
            _ if name == keys::PLUGIN_NAME.name => continue,
            _ if name == keys::SCRIPT.name => script.as_ref().map(|hash| format!("(the text with hash {hash})")),
            _ if name == keys::SERVICE_TOKEN.name => service_token.then(|| "(not shown)".to_owned()),
            _ => None,
        };
        let (value, origin) = match hidden.or_else(|| data.get(name).cloned()) {
            Some(value) => (value, origin(name)),
            None => (key.default.to_owned(), Origin::Default),
        };
        values.push(ExplainedValue { name: name.to_owned(), value, origin, is_parameter: false });
    }
    let unknown = data.iter().filter(|(name, _)| !keys::is_key(name));
    for (name, value) in unknown.chain(parameters) {
        let (name, value) = (name.clone(), value.clone());
        values.push(ExplainedValue { origin: origin(&name), name, value, is_parameter: true });
    }
    values
}

fn origin(name: &str, recipe: &Recipe, config: Option<&Config>, object: Option<&ClassObject>) -> Origin {
    let of_class = &recipe.effective_config;
    if let Some(object) = object {
        match name {
            _ if name == keys::RECLAIM_POLICY.name => return Origin::Field("reclaimPolicy"),
            _ if name == keys::MOUNT_OPTIONS.name => return Origin::Field("mountOptions"),
            _ => {}
        }
        let is_file_system = name == keys::FS_TYPE.name && object.parameters.contains_key("fsType");
        if object.parameters.contains_key(name) || is_file_system {
            return Origin::Parameter;
        }
    }
    let is_current = config.is_some_and(|config| config.data.get(name) == of_class.data.get(name));
    let is_secret = of_class.service_token && name == keys::SERVICE_TOKEN.name;
    let is_script = of_class.script.is_some() && name == keys::SCRIPT.name;
    match is_current || (config.is_some() && (is_secret || is_script)) {
        true => Origin::ConfigMap(of_class.config.clone()),
        false => Origin::StoredConfig(of_class.config.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::storage::v1::StorageClass;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::classes::{effective_config_of, effective_config_with};

    fn config(data: Value) -> Config {
        let object = json!({ "metadata": { "name": "gold", "namespace": "admin" }, "data": data });
        Config::from(&serde_json::from_value::<ConfigMap>(object).unwrap())
    }

    fn class(parameters: Value) -> ClassObject {
        let object = json!({
            "metadata": { "name": "gold" }, "provisioner": "flex-provisioner.io", "parameters": parameters,
            "reclaimPolicy": "Retain",
        });
        ClassObject::from(&serde_json::from_value::<StorageClass>(object).unwrap())
    }

    /// Returns the value and the origin of each name.
    fn values(
        recipe: &Recipe,
        config: Option<&Config>,
        object: Option<&ClassObject>,
    ) -> BTreeMap<String, (String, String)> {
        let all = explain(recipe, config, object).into_iter();
        all.map(|explained| (explained.name, (explained.value, explained.origin.to_string()))).collect()
    }

    #[test]
    fn each_value_has_its_origin() {
        let written = config(json!({
            "image": "example/image", "timeout": "60s", "zone": "west", "script": "exit 0", "service-token": "hidden-token",
        }));
        let object = class(json!({ "tier": "fast", "fsType": "xfs", "provisioner-config": "gold" }));
        let recipe = effective_config_with(&written, &object).unwrap().recipe().unwrap();
        let explained = values(&recipe, Some(&written), Some(&object));
        for (name, value, origin) in [
            ("image", "example/image", "ConfigMap admin/gold"),
            ("timeout", "60s", "ConfigMap admin/gold"),
            ("fs-type", "xfs", "parameter of the StorageClass"),
            ("reclaim-policy", "Retain", "reclaimPolicy of the StorageClass"),
            ("zone", "west", "ConfigMap admin/gold"),
            ("tier", "fast", "parameter of the StorageClass"),
            ("service-token", "(not shown)", "ConfigMap admin/gold"),
            ("retries", "`15`", "default"),
        ] {
            assert_eq!(explained[name], (value.to_owned(), origin.to_owned()), "{name}");
        }
        assert!(explained["script"].0.starts_with("(the text with hash"), "{:?}", explained["script"]);
        assert!(!format!("{explained:?}").contains("hidden-token"), "{explained:?}");
        assert!(!explained.contains_key("plugin-name") && !explained.contains_key("provisioner-config"));
    }

    #[test]
    fn a_value_of_an_older_version_is_not_ascribed_to_the_config() {
        let older = config(json!({ "image": "example/image", "timeout": "60s" }));
        let now = config(json!({ "image": "example/image", "timeout": "soon" }));
        let recipe = effective_config_of(&older, "gold").recipe().unwrap();
        for config in [Some(&now), None] {
            let (value, origin) = &values(&recipe, config, None)["timeout"];
            assert_eq!((value.as_str(), origin.as_str()), ("60s", "the last valid version of ConfigMap admin/gold"));
        }
    }
}

//! The names of an orchestrator, as its Deployment gives them to the program.

use std::collections::BTreeMap;
use std::path::Path;

use flex_contract::names;
use flex_core::object::ObjectName;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar};

/// The program of the orchestrator.
const PROGRAM: &str = "flex-orchestrator";

/// The names of an installed orchestrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orchestrator {
    pub namespace: String,
    pub instance: String,
    pub provisioner: String,
    pub plugin: String,
    /// The namespaces of configs; none for the orchestrator's own.
    pub config_namespaces: Vec<String>,
    pub shell_image: Option<String>,
}

/// The usual names.
impl Default for Orchestrator {
    fn default() -> Self {
        Orchestrator {
            namespace: "flex-provisioner".into(),
            instance: names::DEFAULT_INSTANCE.into(),
            provisioner: names::DEFAULT_PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            config_namespaces: Vec::new(),
            shell_image: None,
        }
    }
}

/// Reads the names from the arguments and the environment of the container that runs the orchestrator. Returns `None` if
/// no container does. A value that the cluster takes from elsewhere, such as a ConfigMap, is not known here.
pub(super) fn orchestrator(deployment: &Deployment) -> Option<Orchestrator> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod.containers.iter().find(|container| runs(container))?;
    let own = deployment.metadata.namespace.clone().unwrap_or_default();
    let environment = environment(container.env.as_deref().unwrap_or_default(), &own);
    let arguments: Vec<String> = words(container).map(|word| expanded(word, &environment)).collect();
    let value = |flag: &str, variable: &str| {
        let variable = || environment.get(variable).filter(|value| !value.is_empty()).cloned();
        argument(&arguments, flag).or_else(variable)
    };
    let usual = Orchestrator::default();
    let configs = value("--config-namespace", "FLEX_CONFIG_NAMESPACES").unwrap_or_default();
    let configs = configs.split(',').filter(|namespace| !namespace.is_empty());
    Some(Orchestrator {
        namespace: value("--namespace", "POD_NAMESPACE").unwrap_or(usual.namespace),
        instance: value("--instance", "FLEX_INSTANCE").unwrap_or(usual.instance),
        provisioner: value("--provisioner-name", "FLEX_PROVISIONER_NAME").unwrap_or(usual.provisioner),
        plugin: value("--plugin-name", "FLEX_PLUGIN_NAME").unwrap_or(usual.plugin),
        config_namespaces: configs.map(str::to_owned).collect(),
        shell_image: value("--shell-image", "FLEX_SHELL_IMAGE"),
    })
}

/// Returns the ServiceAccount of a Deployment's pods.
pub(super) fn account(deployment: &Deployment) -> ObjectName {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let name = pod.and_then(|pod| pod.service_account_name.clone()).filter(|name| !name.is_empty());
    ObjectName {
        namespace: deployment.metadata.namespace.clone().unwrap_or_default(),
        name: name.unwrap_or_else(|| "default".to_owned()),
    }
}

/// Checks whether a container runs the orchestrator.
fn runs(container: &Container) -> bool {
    words(container).any(|word| Path::new(word).file_name().is_some_and(|file| file == PROGRAM))
}

fn words(container: &Container) -> impl Iterator<Item = &String> {
    container.command.iter().flatten().chain(container.args.iter().flatten())
}

/// Returns the variables whose values stand in the Deployment, and the namespace of the pod.
fn environment(variables: &[EnvVar], own: &str) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for variable in variables {
        let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        let value = match (&variable.value, field) {
            (Some(value), _) => expanded(value, &known),
            (None, Some(field)) if field.field_path == "metadata.namespace" => own.to_owned(),
            _ => continue,
        };
        known.insert(variable.name.clone(), value);
    }
    known
}

/// Replaces `$(NAME)` by the variable's value, as the kubelet does.
fn expanded(text: &str, environment: &BTreeMap<String, String>) -> String {
    let replace = |text: String, (name, value): (&String, &String)| text.replace(&format!("$({name})"), value);
    environment.iter().fold(text.to_owned(), replace)
}

/// Returns the value of a flag, written as `--flag value` or `--flag=value`. Values of a flag that stands several times
/// are joined by commas.
fn argument(arguments: &[String], flag: &str) -> Option<String> {
    let mut values = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix(flag) {
            Some("") => values.extend(words.next().map(String::as_str)),
            Some(rest) => values.extend(rest.strip_prefix('=')),
            None => {}
        }
    }
    Some(values.join(",")).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(container: Value) -> Option<Orchestrator> {
        let sidecar = json!({ "name": "proxy", "args": ["serve"] });
        let spec = json!({ "selector": {}, "template": { "spec": { "containers": [sidecar, container] } } });
        let object = json!({ "metadata": { "name": "flex", "namespace": "storage" }, "spec": spec });
        orchestrator(&serde_json::from_value(object).unwrap())
    }

    fn field(name: &str, path: &str) -> Value {
        json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    }

    #[test]
    fn names_are_read_from_arguments_and_environment() {
        let own = field("POD_NAMESPACE", "metadata.namespace");
        let usual = Orchestrator { namespace: "storage".into(), ..Orchestrator::default() };
        let with = |change: fn(&mut Orchestrator)| {
            let mut expected = usual.clone();
            change(&mut expected);
            Some(expected)
        };
        let command = ["/flex-orchestrator"];
        for (what, container, expected) in [
            ("it runs something else", json!({ "args": ["uninstall"], "env": [own] }), None),
            ("as it is shipped", json!({ "command": command, "env": [own] }), Some(usual.clone())),
            (
                "another program starts it",
                json!({ "command": ["/init"], "args": ["flex-orchestrator"], "env": [own] }),
                Some(usual.clone()),
            ),
            ("without a namespace", json!({ "command": command }), Some(Orchestrator::default())),
            (
                "another field",
                json!({ "command": command, "env": [own, field("FLEX_INSTANCE", "metadata.name")] }),
                Some(usual.clone()),
            ),
            (
                "the environment names all",
                json!({ "command": command, "env": [
                    own,
                    { "name": "FLEX_INSTANCE", "value": "b" },
                    { "name": "FLEX_PROVISIONER_NAME", "value": "b.example.com" },
                    { "name": "FLEX_PLUGIN_NAME", "value": "example.com/b" },
                    { "name": "FLEX_CONFIG_NAMESPACES", "value": "one,two" },
                    { "name": "FLEX_SHELL_IMAGE", "value": "registry/shell:1" },
                ] }),
                with(|one| {
                    one.instance = "b".into();
                    one.provisioner = "b.example.com".into();
                    one.plugin = "example.com/b".into();
                    one.config_namespaces = vec!["one".into(), "two".into()];
                    one.shell_image = Some("registry/shell:1".into());
                }),
            ),
            (
                "arguments go before the environment",
                json!({ "command": command, "env": [own, { "name": "FLEX_INSTANCE", "value": "b" }],
                    "args": ["--instance", "c", "--config-namespace=one", "--config-namespace", "two,three"] }),
                with(|one| {
                    one.instance = "c".into();
                    one.config_namespaces = vec!["one".into(), "two".into(), "three".into()];
                }),
            ),
            (
                "an argument refers to a variable",
                json!({ "command": command, "args": ["--instance=$(ID)", "--namespace=$(POD_NAMESPACE)"],
                    "env": [own, { "name": "ID", "value": "d" }] }),
                with(|one| one.instance = "d".into()),
            ),
            (
                "an empty variable",
                json!({ "command": command, "env": [own, { "name": "FLEX_INSTANCE", "value": "" }] }),
                Some(usual.clone()),
            ),
            (
                "a longer flag",
                json!({ "command": command, "args": ["--namespace-of-others", "x", "--instance-x=y"], "env": [own] }),
                Some(usual.clone()),
            ),
        ] {
            let mut container = container;
            container["name"] = json!("main");
            assert_eq!(read(container), expected, "{what}");
        }
    }
}

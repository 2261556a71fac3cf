//! Flags that several subcommands have.

use clap::{Args, ValueEnum};
use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_provisioner::flags::{Names, Namespaces};
use serde_json::Value;

/// The shipped shell image, before it is in a registry.
pub(super) const SHIPPED_SHELL: &str = concat!("localhost/flex-provisioner/shell:", env!("CARGO_PKG_VERSION"));

/// Returns the names by which the orchestrator knows what is its own. A command assumes that it knows a shell image.
pub(super) fn identity(names: &Names, namespaces: &Namespaces) -> Identity {
    let identity = names.identity(namespaces);
    Identity { shell_image: identity.shell_image.or_else(|| Some(SHIPPED_SHELL.into())), ..identity }
}

/// The namespaces of an orchestrator that the command does not ask.
#[derive(Clone, Debug, Args)]
pub(super) struct FlexNamespaces {
    /// The orchestrator's own namespace, with its Lease and the versions of configs.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flex-provisioner")]
    flex_namespace: String,
    /// Namespaces of provisioner ConfigMaps, comma-separated [default: the orchestrator's own].
    #[arg(long = "config-namespace", env = "FLEX_CONFIG_NAMESPACES", value_delimiter = ',')]
    config_namespaces: Vec<String>,
}

impl From<FlexNamespaces> for Namespaces {
    fn from(given: FlexNamespaces) -> Self {
        Namespaces { namespace: given.flex_namespace, config_namespaces: given.config_namespaces }
    }
}

/// Reads the name of a ConfigMap with its namespace.
pub(super) fn config_name(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ObjectName::new(namespace, name))
        }
        _ => Err("write NAMESPACE/NAME".to_owned()),
    }
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Table,
    /// For scripts.
    Json,
    /// For scripts.
    Yaml,
}

impl Output {
    /// Returns a document in this form; `None` for a table.
    ///
    /// # Errors
    /// If YAML cannot hold the document.
    pub(super) fn document(self, content: impl FnOnce() -> Value) -> anyhow::Result<Option<String>> {
        Ok(match self {
            Output::Table => None,
            Output::Json => Some(indented(&content())),
            Output::Yaml => Some(flex_manifest::to_yaml(&content()).map_err(anyhow::Error::msg)?.trim_end().to_owned()),
        })
    }
}

/// Returns a document as JSON, indented as kubectl does it.
pub(super) fn indented(document: &Value) -> String {
    format!("{document:#}")
}

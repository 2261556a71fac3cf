//! Flags that several subcommands have.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::object::is_dns_name;
use serde_json::Value;

/// The names of the orchestrator, which are the same for all subcommands.
#[derive(Clone, Debug, Args)]
pub(super) struct Names {
    /// The `provisioner` of StorageClasses: a DNS name without a slash, not of kubernetes.io.
    #[arg(long, env = "FLEX_PROVISIONER_NAME", default_value = names::DEFAULT_PROVISIONER, value_parser = provisioner_name)]
    pub(super) provisioner_name: String,
    /// The `plugin-name` of provisioner ConfigMaps.
    #[arg(long, env = "FLEX_PLUGIN_NAME", default_value = names::DEFAULT_PLUGIN)]
    pub(super) plugin_name: String,
    /// The id of this orchestrator on all its objects. Several orchestrators in one cluster need different ids.
    #[arg(long, env = "FLEX_INSTANCE", default_value = names::DEFAULT_INSTANCE, value_parser = instance_id)]
    pub(super) instance: String,
    /// The image for configs with a `script` and no `image`. Without it, `run` refuses such configs.
    #[arg(long, env = "FLEX_SHELL_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub(super) shell_image: Option<String>,
}

/// The namespaces of the orchestrator and of its configs.
#[derive(Clone, Debug, Args)]
pub(super) struct Namespaces {
    /// The orchestrator's own namespace, with its Lease and the versions of configs.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flex-provisioner")]
    pub(super) namespace: String,
    /// Namespaces of provisioner ConfigMaps, comma-separated [default: the orchestrator's own].
    #[arg(long = "config-namespace", env = "FLEX_CONFIG_NAMESPACES", value_delimiter = ',')]
    pub(super) config_namespaces: Vec<String>,
}

/// The shipped shell image, before it is in a registry.
pub(super) const SHIPPED_SHELL: &str = concat!("localhost/flex-provisioner/shell:", env!("CARGO_PKG_VERSION"));

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
            Output::Json => Some(content().to_string()),
            Output::Yaml => Some(flex_manifest::to_yaml(&content()).map_err(anyhow::Error::msg)?.trim_end().to_owned()),
        })
    }
}

pub(super) fn provisioner_name(text: &str) -> Result<String, String> {
    match is_dns_name(text) {
        true if text.ends_with("kubernetes.io") || text.ends_with("k8s.io") => Err("names of kubernetes.io belong to Kubernetes itself".into()),
        true => Ok(text.to_owned()),
        false => Err("must be a DNS name in lower case without a slash, such as flex-provisioner.io, because other programs derive object names from it".into()),
    }
}

pub(super) fn instance_id(text: &str) -> Result<String, String> {
    match text.len() <= 63 && !text.contains('.') && is_dns_name(text) {
        true => Ok(text.to_owned()),
        false => Err("must be a label value of lower-case letters, digits and `-`, at most 63".into()),
    }
}

impl Names {
    /// Returns the instance, if it is not the usual one.
    pub(super) fn chosen_instance(&self) -> Option<String> {
        Some(self.instance.clone()).filter(|instance| instance != names::DEFAULT_INSTANCE)
    }

    /// Returns the names of an installed orchestrator. Flags that are not the usual names win.
    pub(super) fn over(&self, found: Identity) -> Identity {
        let chosen = |flag: &str, usual: &str, found: String| if flag == usual { found } else { flag.to_owned() };
        Identity {
            provisioner: chosen(&self.provisioner_name, names::DEFAULT_PROVISIONER, found.provisioner),
            plugin: chosen(&self.plugin_name, names::DEFAULT_PLUGIN, found.plugin),
            shell_image: self.shell_image.clone().or(found.shell_image),
            ..found
        }
    }

    /// Returns the names by which the orchestrator knows what is its own. Commands beside `run` assume that the
    /// orchestrator knows a shell image.
    pub(super) fn identity(&self, namespaces: &Namespaces) -> Identity {
        let Namespaces { namespace, config_namespaces } = namespaces.clone();
        let mut config_namespaces =
            if config_namespaces.is_empty() { vec![namespace.clone()] } else { config_namespaces };
        config_namespaces.sort();
        config_namespaces.dedup();
        let Names { provisioner_name, plugin_name, instance, shell_image } = self.clone();
        Identity {
            provisioner: provisioner_name,
            plugin: plugin_name,
            instance,
            config_namespaces,
            namespace,
            shell_image: shell_image.or_else(|| Some(SHIPPED_SHELL.into())),
            cluster: String::new(),
        }
    }
}

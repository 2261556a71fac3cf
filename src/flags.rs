//! The flags that say who an orchestrator is. The tool for people has them, too.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::object::is_dns_name;

/// The names of an orchestrator.
#[derive(Clone, Debug, Args)]
pub struct Names {
    /// The `provisioner` of StorageClasses: a DNS name without a slash, not of kubernetes.io.
    #[arg(long, env = "FLEX_PROVISIONER_NAME", default_value = names::DEFAULT_PROVISIONER, value_parser = provisioner_name)]
    pub provisioner_name: String,
    /// The `plugin-name` of provisioner ConfigMaps.
    #[arg(long, env = "FLEX_PLUGIN_NAME", default_value = names::DEFAULT_PLUGIN)]
    pub plugin_name: String,
    /// The id of this orchestrator on all its objects. Several orchestrators in one cluster need different ids.
    #[arg(long, env = "FLEX_INSTANCE", default_value = names::DEFAULT_INSTANCE, value_parser = instance_id)]
    pub instance: String,
    /// The image for configs with a `script` and no `image`. Without it, the orchestrator refuses such configs.
    #[arg(long, env = "FLEX_SHELL_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub shell_image: Option<String>,
}

/// The namespaces of the orchestrator and of its configs.
#[derive(Clone, Debug, Args)]
pub struct Namespaces {
    /// The orchestrator's own namespace, with its Lease and the versions of configs.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flex-provisioner")]
    pub namespace: String,
    /// Namespaces of provisioner ConfigMaps, comma-separated [default: the orchestrator's own].
    #[arg(long = "config-namespace", env = "FLEX_CONFIG_NAMESPACES", value_delimiter = ',')]
    pub config_namespaces: Vec<String>,
}

impl Names {
    /// Returns the names by which the orchestrator knows what is its own.
    pub fn identity(&self, namespaces: &Namespaces) -> Identity {
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
            shell_image,
            cluster: String::new(),
        }
    }
}

/// Checks the `provisioner` of StorageClasses.
///
/// # Errors
/// If other programs could derive no object names from it, or if it is a name of Kubernetes itself.
pub fn provisioner_name(text: &str) -> Result<String, String> {
    match is_dns_name(text) {
        true if text.ends_with("kubernetes.io") || text.ends_with("k8s.io") => Err("names of kubernetes.io belong to Kubernetes itself".into()),
        true => Ok(text.to_owned()),
        false => Err("must be a DNS name in lower case without a slash, such as flex-provisioner.io, because other programs derive object names from it".into()),
    }
}

/// Checks the id of an orchestrator.
///
/// # Errors
/// If it is no value of a label.
pub fn instance_id(text: &str) -> Result<String, String> {
    match text.len() <= 63 && !text.contains('.') && is_dns_name(text) {
        true => Ok(text.to_owned()),
        false => Err("must be a label value of lower-case letters, digits and `-`, at most 63".into()),
    }
}

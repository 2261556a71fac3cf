//! The names by which an orchestrator knows what is its own.

use std::collections::BTreeSet;

use crate::object::ObjectName;

/// The names of the orchestrator, and the namespaces of configs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// The provisioner name in StorageClasses.
    pub provisioner: String,
    /// The plugin name in ConfigMaps.
    pub plugin: String,
    /// The instance id on all objects of the orchestrator.
    pub instance: String,
    /// The namespaces of configs.
    pub config_namespaces: Vec<String>,
    /// The namespace of the orchestrator.
    pub namespace: String,
    /// The image for scripts whose config names none; `None` refuses such configs.
    pub shell_image: Option<String>,
    /// The UID of the namespace `kube-system`, which identifies the cluster; empty if it is not known.
    #[serde(default)]
    pub cluster: String,
}

impl Identity {
    /// Checks whether a ConfigMap that names this plugin is meant for the orchestrator. Its name as a provisioner counts, too.
    pub fn is_plugin(&self, name: &str) -> bool {
        name == self.plugin || name == self.provisioner
    }

    /// Checks whether a UID is that of another cluster. Without the own UID nobody knows, so each one counts as another.
    pub fn is_other_cluster(&self, cluster: &str) -> bool {
        !cluster.is_empty() && cluster != self.cluster
    }

    /// Returns the Lease by which the replicas elect a leader.
    pub fn lease(&self) -> ObjectName {
        ObjectName::new(&self.namespace, format!("flex-provisioner-{}", self.instance))
    }

    /// Returns the namespaces of runs: those of configs, and the orchestrator's own.
    pub fn namespaces(&self) -> BTreeSet<&String> {
        self.config_namespaces.iter().chain([&self.namespace]).collect()
    }
}

#[cfg(test)]
impl Identity {
    /// Returns the default names, with configs in the namespace `admin`.
    pub(crate) fn of_tests() -> Self {
        use flex_contract::names;

        Identity {
            provisioner: names::DEFAULT_PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            instance: names::DEFAULT_INSTANCE.into(),
            config_namespaces: vec!["admin".into()],
            namespace: "own".into(),
            shell_image: None,
            cluster: String::new(),
        }
    }
}

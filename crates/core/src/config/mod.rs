//! Provisioner configs: the data that an admin writes, its check, and the classes that each config serves.
//!
//! - [`keys`] and [`capability`] list what an admin may write, with its documentation.
//! - [`check`] turns a ConfigMap's data, overridden by the StorageClass's parameters, into a [`Recipe`]. A run needs
//!   nothing else.
//! - [`classes`] decides which config serves which class, from their [`input`].
//! - [`external_provisioner`] knows the external provisioners of others that would serve the same class.
//! - [`slips`] finds values that are valid, but probably mistakes.
//! - [`record`] is the form in which a recipe is stored, in revisions and on volumes.
//! - [`document`] reads the files that `validate` and `render` get.

pub mod accounts;
pub mod capability;
pub mod check;
pub mod classes;
pub mod document;
pub mod external_provisioner;
pub mod input;
pub mod keys;
pub mod pool;
pub mod record;
pub mod slips;
pub mod topology;
pub mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements, Toleration};

use crate::config::pool::Pool;
use crate::limits;
use crate::object::ObjectName;
use crate::text::printable;

/// The largest length of a key in a ConfigMap.
const LONGEST_KEY: usize = 253;

/// A problem of a config, for the admin who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Problem {
    /// The key with the problem; empty if the problem concerns the whole config.
    pub key: String,
    /// The problem, and what to do.
    pub message: String,
}

impl Problem {
    /// Makes a problem of one key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: printable(&message.into(), limits::PROBLEM) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.message),
            key => write!(f, "{}: {}", printable(key, LONGEST_KEY), self.message),
        }
    }
}

/// Joins all problems in one line, for events and annotations. Counts those for which there is no room.
pub fn joined(problems: &[Problem]) -> String {
    let mut text = String::new();
    for (n, problem) in problems.iter().enumerate() {
        let problem = problem.to_string();
        if text.len() + problem.len() > limits::VERDICT {
            return format!("{text}; and {} more", problems.len() - n);
        }
        text.push_str(if n == 0 { "" } else { "; " });
        text.push_str(&problem);
    }
    text
}

/// The place of a run's pod when the scheduler has selected a node for the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The selected node: the storage is local to the node.
    #[default]
    SelectedNode,
    /// Any node that `node-selector` allows: the network reaches the storage.
    Any,
}

/// The user of the container of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAsUser {
    /// The user with this id; 0 is root.
    Id(i64),
    /// A user that the platform assigns, or that of the image: never root.
    Any,
}

/// The treatment of storage on a node that does not exist any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeGone {
    /// The orchestrator keeps the volume and emits an event. The node may return, or an admin abandons the volume.
    #[default]
    Hold,
    /// The storage is lost with the node, and nothing is deleted there.
    Forget,
    /// A delete run on any node can delete the storage.
    RunElsewhere,
}

/// A kind of volume source that a class allows, with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRule {
    /// The source's name in the API, such as `nfs`.
    pub kind: String,
    /// For `hostPath` and `local`: the directory under which the path must lie.
    pub prefix: Option<String>,
    /// For `csi` and `flexVolume`: the driver; `None` for any.
    pub driver: Option<String>,
}

/// The delays between failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the second attempt.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

/// A quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The largest number of volumes.
    pub volumes: Option<u64>,
    /// The largest sum of the sizes of the volumes, in bytes.
    pub bytes: Option<u64>,
}

/// The times at which a backend is asked for its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The minimum time between an answer and the next run, after a change.
    pub pause: Duration,
    /// The time between an answer and the next run, without a change.
    pub interval: Duration,
}

/// The checked form of a config together with its StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The ConfigMap of the recipe.
    pub config: ObjectName,
    /// The name of the class.
    pub class: String,
    /// The image.
    pub image: String,
    /// The command, which replaces the image's entry point; empty for none.
    pub command: Vec<String>,
    /// The arguments, which replace those of the image; empty for none.
    pub args: Vec<String>,
    /// The pull policy: `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: Option<String>,
    /// The Secrets for pulling the image.
    pub pull_secrets: Vec<String>,
    /// The ServiceAccount of the pod.
    pub service_account: Option<String>,
    /// The ConfigMap has a `service-token`, which the pod gets by reference.
    pub service_token: bool,
    /// The labels of the nodes on which the pod may run.
    pub node_selector: BTreeMap<String, String>,
    /// The taints that the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// The PriorityClass of the pod.
    pub priority_class: Option<String>,
    /// The resources of the container.
    pub resources: Option<ResourceRequirements>,
    /// The user of the container; `None` for the contract's default.
    pub run_as_user: Option<RunAsUser>,
    /// The place of the pod.
    pub placement: Placement,
    /// The labels of nodes from which the orchestrator derives a volume's node affinity, if the image writes none.
    pub volume_affinity: Vec<String>,
    /// The treatment of storage on a node that is gone.
    pub node_gone: NodeGone,
    /// The Secrets whose keys become environment variables.
    pub secret_env: Vec<String>,
    /// The Secrets whose keys become files.
    pub secret_volume: Vec<String>,
    /// The reclaim policy: `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// The access modes that claims may request.
    pub access_modes: Vec<String>,
    /// The volume modes that claims may request.
    pub volume_modes: Vec<String>,
    /// The mount options of the volumes.
    pub mount_options: Vec<String>,
    /// The file system of the volumes, if the class names one; else empty.
    pub fs_type: String,
    /// The longest duration of an attempt.
    pub timeout: Duration,
    /// The number of attempts after which the orchestrator tries only every 30 minutes.
    pub retries: u32,
    /// The delays between failed attempts.
    pub backoff: Backoff,
    /// The number of slots of the class.
    pub max_in_flight: usize,
    /// The number of slots for claims of one namespace.
    pub max_in_flight_per_namespace: Option<usize>,
    /// The number of slots on one node, where each run is pinned to a node.
    pub max_in_flight_per_node: Option<usize>,
    /// The largest number of members of a batch.
    pub batch_size: usize,
    /// The time for which a batch waits for further members.
    pub batch_window: Duration,
    /// The pool of the class.
    pub pool: Option<Pool>,
    /// The quota of the class.
    pub quota: Quota,
    /// The quota of each namespace in the class.
    pub namespace_quota: Quota,
    /// The times at which the backend is asked for its capacity.
    pub capacity_interval: Refresh,
    /// The smallest size of a claim, in bytes.
    pub min_size: Option<u64>,
    /// The largest size of a claim, in bytes.
    pub max_size: Option<u64>,
    /// The volume sources that volumes may have. Empty means all, except for paths on nodes and drivers of others.
    pub volume_sources: Vec<SourceRule>,
    /// The mount options that volumes may have beside those of the class.
    pub volume_mount_options: Vec<String>,
    /// The finalizers that the image may put on its volumes.
    pub volume_finalizers: Vec<String>,
    /// The labels and annotations of Kubernetes that the image may put on its volumes.
    pub volume_metadata: Vec<String>,
    /// The namespaces whose Secrets volumes may name, beside those of the config and of the claim.
    pub secret_namespaces: Vec<String>,
    /// The largest surplus of a volume over the requested size, in bytes.
    pub max_surplus: Option<u64>,
    /// The labels and annotations of claims that the image gets.
    pub claim_metadata: Vec<String>,
    /// The operations that the image can do beside provision and delete.
    pub capabilities: Vec<String>,
    /// The admin's template, which is merged under the generated pod.
    pub pod_template: Option<PodTemplateSpec>,
    /// The paths of storage of which each run sees only its own volume's directory.
    pub storage_mounts: Vec<String>,
    /// The parameters, which the image gets unchanged.
    pub parameters: BTreeMap<String, String>,
    /// The form in which the recipe is stored.
    pub record: record::EffectiveConfig,
    /// The hash of the record. It is computed once, because each reconcile needs it.
    pub hash: String,
}

impl Recipe {
    /// Checks whether the config declares a capability.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|declared| declared == capability)
    }

    /// Returns the directories on nodes that contain a directory for each volume, of which each run sees only its own.
    pub fn storage_on_nodes(&self) -> impl Iterator<Item = &str> {
        let spec = self.pod_template.iter().filter_map(|template| template.spec.as_ref());
        spec.flat_map(|spec| {
            let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
            let mounted = mounts.filter(|mount| self.storage_mounts.contains(&mount.mount_path));
            let volumes = spec.volumes.iter().flatten();
            mounted
                .filter_map(move |mount| volumes.clone().find(|volume| volume.name == mount.name)?.host_path.as_ref())
        })
        .map(|on_node| on_node.path.trim_end_matches('/'))
    }

    /// Checks whether the class has any quota.
    pub fn has_quota(&self) -> bool {
        self.quota != Quota::default() || self.namespace_quota != Quota::default()
    }

    /// Checks whether a volume is on the node of its run.
    pub fn is_local(&self) -> bool {
        self.placement == Placement::SelectedNode || !self.volume_affinity.is_empty()
    }

    /// Returns the node to which a run is pinned. Returns `None` where volumes are not made on nodes, or where no node
    /// is known.
    pub fn required_node<'a>(&self, node: &'a str) -> Option<&'a str> {
        Some(node).filter(|node| self.placement == Placement::SelectedNode && !node.is_empty())
    }

    /// Returns the version of this class, `namespace/name@hash`, as claims and Jobs carry it.
    pub fn version(&self) -> String {
        record::version(&self.config, &self.hash)
    }
}

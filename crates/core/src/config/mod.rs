//! Provisioner configs: what an admin writes, checked whole, and which class each serves.
//!
//! [`keys`] lists what an admin may write. A ConfigMap's data (and the StorageClass's parameters over it) are checked by
//! [`check`] into a [`Recipe`], which is all that a run needs to know. [`classes`] decides which config serves which
//! class, from their [`input`]; [`sidecar`] has what is known of provisioners of others that would
//! serve it, too; [`slips`] finds what was hardly meant; [`record`] is the form in which a recipe is kept, in revisions and on volumes; and
//! [`document`] reads the files that `validate` and `render` are given.

pub mod accounts;
pub mod capability;
pub mod check;
pub mod classes;
pub mod document;
pub mod input;
pub mod keys;
pub mod pool;
pub mod record;
pub mod sidecar;
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

/// No key of a ConfigMap is longer.
const LONGEST_KEY: usize = 253;

/// Something wrong with a config, told to the admin who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Problem {
    /// The key that is wrong; empty if it is the whole.
    pub key: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    /// A problem with one key.
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

/// All problems in one line, for events and annotations; those that have no room are counted.
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

/// Where the pod of a run may be placed when the scheduler has selected a node for the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On that node: the storage is the node's own.
    #[default]
    SelectedNode,
    /// On any node that `node-selector` allows: the storage is reached through the network.
    Any,
}

/// What is done about storage on a node that does not exist any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeGone {
    /// The volume is held, and told: the node may come back, or an admin lets go of it.
    #[default]
    Hold,
    /// The storage went with the node: nothing is left to delete there.
    Forget,
    /// The storage can be deleted from any node.
    RunElsewhere,
}

/// A kind of volume source that a class may produce, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRule {
    /// The source's name in the API, such as `nfs`.
    pub kind: String,
    /// For `hostPath` and `local`: the directory under which the path must lie.
    pub prefix: Option<String>,
    /// For `csi` and `flexVolume`: the driver; none for any.
    pub driver: Option<String>,
}

/// The pace at which failed attempts are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the second attempt.
    pub initial: Duration,
    /// At the most.
    pub max: Duration,
}

/// How much of a class may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// So many volumes.
    pub volumes: Option<u64>,
    /// So many bytes, by the sizes of the volumes.
    pub bytes: Option<u64>,
}

/// When a backend is asked how much room it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// After a change at the earliest so long after the last answer.
    pub pause: Duration,
    /// Without a change again after so long.
    pub interval: Duration,
}

/// A class as it is provisioned: the checked form of a config with its StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The ConfigMap that it comes from.
    pub config: ObjectName,
    /// The class.
    pub class: String,
    /// The image.
    pub image: String,
    /// Replaces the image's entry point, if not empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments, if not empty.
    pub args: Vec<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: Option<String>,
    /// Secrets to pull the image with.
    pub pull_secrets: Vec<String>,
    /// The ServiceAccount of the pod.
    pub service_account: Option<String>,
    /// Whether the ConfigMap has a `service-token`, which the pod gets by reference.
    pub service_token: bool,
    /// Labels of the nodes on which the pod may run.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// PriorityClass of the pod.
    pub priority_class: Option<String>,
    /// Resources of the container.
    pub resources: Option<ResourceRequirements>,
    /// User id of the container, if not the contract's default.
    pub run_as_user: Option<i64>,
    /// Whether the pod must run on the selected node.
    pub placement: Placement,
    /// Labels of nodes by which a volume is bound to where it was made, where its image does not say.
    pub volume_affinity: Vec<String>,
    /// What a delete run does when its node is gone.
    pub node_gone: NodeGone,
    /// Secrets whose keys become environment variables.
    pub secret_env: Vec<String>,
    /// Secrets whose keys become files.
    pub secret_volume: Vec<String>,
    /// `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// Access modes that claims may ask for.
    pub access_modes: Vec<String>,
    /// Volume modes that claims may ask for.
    pub volume_modes: Vec<String>,
    /// Mount options of the volumes.
    pub mount_options: Vec<String>,
    /// File system of the volumes, if the class names one.
    pub fs_type: String,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// Attempts before the pace becomes the slowest.
    pub retries: u32,
    /// The pace of the attempts.
    pub backoff: Backoff,
    /// Runs of this class at one time.
    pub max_in_flight: usize,
    /// Those of them for claims of one namespace.
    pub max_in_flight_per_namespace: Option<usize>,
    /// How many of them on one node, where each is pinned to one.
    pub max_in_flight_per_node: Option<usize>,
    /// Claims that one run may be for, or volumes that it may delete.
    pub batch_size: usize,
    /// How long a run for several waits for them.
    pub batch_window: Duration,
    /// Volumes of it that are kept ready.
    pub pool: Option<Pool>,
    /// How much of it may be taken in all.
    pub share: Share,
    /// How much of it the claims of one namespace may take.
    pub namespace_share: Share,
    /// When its backend is asked for its capacity.
    pub capacity_interval: Refresh,
    /// The smallest claim, in bytes.
    pub min_size: Option<u64>,
    /// The largest claim, in bytes.
    pub max_size: Option<u64>,
    /// The sources that volumes may have; empty means any but paths on nodes.
    pub volume_sources: Vec<SourceRule>,
    /// Mount options that volumes may have beside those of the class.
    pub volume_mount_options: Vec<String>,
    /// Finalizers that the image may put on its volumes.
    pub volume_finalizers: Vec<String>,
    /// Labels and annotations of Kubernetes' own that the image may put on its volumes.
    pub volume_metadata: Vec<String>,
    /// Namespaces whose Secrets volumes may name, beside those of the config and of the claim.
    pub secret_namespaces: Vec<String>,
    /// How many bytes a volume may have beyond what its claim asks for.
    pub max_surplus: Option<u64>,
    /// Labels and annotations of claims that the image gets.
    pub claim_metadata: Vec<String>,
    /// What the image can do beside provision and delete.
    pub capabilities: Vec<String>,
    /// What the admin merges under the generated pod.
    pub pod_template: Option<PodTemplateSpec>,
    /// Where it mounts storage of which each run sees the directory of its own volume alone.
    pub storage_mounts: Vec<String>,
    /// What the image gets untouched.
    pub parameters: BTreeMap<String, String>,
    /// The form in which it is kept.
    pub record: record::Record,
    /// The hash of that, for which every pass asks.
    pub hash: String,
}

impl Recipe {
    /// The config declares that the image can do this.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|declared| declared == capability)
    }

    /// The directories of nodes that have a directory for each volume, of which each run sees its own alone.
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

    /// Not all that claims ask for may be taken.
    pub fn is_shared_out(&self) -> bool {
        self.share != Share::default() || self.namespace_share != Share::default()
    }

    /// Where a run takes place is where its volume is.
    pub fn is_local(&self) -> bool {
        self.placement == Placement::SelectedNode || !self.volume_affinity.is_empty()
    }

    /// The node that a run must be on which is to be on this one: none where its volumes are not made on nodes, or where no
    /// node is known.
    pub fn pin<'a>(&self, node: &'a str) -> Option<&'a str> {
        Some(node).filter(|node| self.placement == Placement::SelectedNode && !node.is_empty())
    }

    /// Identifies this version of this class: `namespace/name@hash`, as it stands on claims and Jobs.
    pub fn version(&self) -> String {
        record::version(&self.config, &self.hash)
    }
}

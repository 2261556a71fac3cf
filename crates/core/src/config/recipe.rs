//! The checked form of a config together with its StorageClass.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::volume_mode::VolumeMode;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements, Toleration};

use super::effective_config::{EffectiveConfig, version};
use super::namespaces::ServedNamespaces;
use super::pool::Pool;
use super::settings::{Backoff, NodeGone, Placement, Quota, Refresh, RunAsUser, SourceRule};
use crate::object::ObjectName;

/// The checked form of a config together with its StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The ConfigMap of the recipe.
    pub config: ObjectName,
    /// The name of the class.
    pub class: String,
    /// The image.
    pub image: String,
    /// The hash of the script, which replaces command and arguments. The image may then be empty, which means the shell
    /// image of the orchestrator.
    pub script: Option<String>,
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
    /// The user id of the container; `None` for the contract's default.
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
    /// The reclaim policy of the class's volumes.
    pub reclaim_policy: ReclaimPolicy,
    /// The access modes that claims may request.
    pub access_modes: Vec<String>,
    /// The volume modes that claims may request.
    pub volume_modes: Vec<VolumeMode>,
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
    /// The namespaces whose claims the class serves.
    pub namespaces: ServedNamespaces,
    /// The volume sources that volumes may have. Empty means `nfs`, and the driver that the class replaces.
    pub volume_sources: Vec<SourceRule>,
    /// The mount options that volumes may have beside those of the class.
    pub volume_mount_options: Vec<String>,
    /// The finalizers that the image may put on its volumes.
    pub volume_finalizers: Vec<String>,
    /// The labels and annotations of Kubernetes that the image may put on its volumes.
    pub volume_metadata: Vec<String>,
    /// The namespaces of which volumes may name any Secret, beside the Secrets that the config names.
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
    pub effective_config: EffectiveConfig,
    /// The hash of the effective config. It is computed once, because each reconcile needs it.
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
    pub fn required_node<'a>(&self, node: Option<&'a str>) -> Option<&'a str> {
        node.filter(|_| self.placement == Placement::SelectedNode)
    }

    /// Returns the operating system that nodes need for the runs, as their label says it: Linux, unless `os` of the
    /// `pod-template` is another. Returns `None` if the config has a requirement of its own for this label: by
    /// `node-selector`, or in `pod-template` by `nodeSelector` or a required node affinity.
    pub fn system(&self) -> Option<&str> {
        let spec = self.pod_template.as_ref().and_then(|template| template.spec.as_ref());
        let selector = spec.and_then(|spec| spec.node_selector.as_ref());
        let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        let required = affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
        let mut labels = terms.flat_map(|term| term.match_expressions.iter().flatten());
        let is_required = self.node_selector.contains_key(names::OS)
            || selector.is_some_and(|labels| labels.contains_key(names::OS))
            || labels.any(|label| label.key == names::OS);
        let of_pod = spec.and_then(|spec| spec.os.as_ref()).map_or(names::OS_LINUX, |os| os.name.as_str());
        (!is_required).then_some(of_pod)
    }

    /// Returns the version of this class, `namespace/name@hash`, as claims and Jobs carry it.
    pub fn version(&self) -> String {
        version(&self.config, &self.hash)
    }
}

//! One run of an image: the orchestrator writes a request as properties, and the image reads it from its environment.

use std::collections::BTreeMap;

use crate::operation;
pub use crate::operation::Operation;
use crate::parameter;
pub use crate::request_error::RequestError;
use crate::variable::{self, Variable};

/// The claim that a run is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRef {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub name: String,
    /// UID of the PersistentVolumeClaim.
    pub uid: String,
}

/// The volume that a provision run must copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneSource {
    /// The volume id, which this volume's own runs got as `CLAIM_UUID`.
    pub id: String,
    /// The name of the volume's PersistentVolume.
    pub pv_name: String,
    /// The volume source in that PersistentVolume, as JSON.
    pub source: String,
    /// The size of the volume, in bytes.
    pub size_bytes: u64,
    /// The node where the volume was made, if that matters.
    pub node: String,
}

/// The snapshot of a run: a snapshot run makes it, a delete-snapshot run deletes it, a provision run restores it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot id. All runs for one snapshot get the same. An image names the stored snapshot by it.
    pub id: String,
    /// The volume id of the snapshot's volume; empty where the orchestrator did not make that volume.
    pub of: String,
    /// The size of that volume when the snapshot was made, in bytes; `None` where it is not known.
    pub size_bytes: Option<u64>,
    /// The node where the snapshot is, if that matters.
    pub node: String,
    /// Namespace of the VolumeSnapshot; empty in provision runs.
    pub namespace: String,
    /// Name of the VolumeSnapshot; empty in provision runs.
    pub name: String,
}

/// The properties of one run. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The operation of the run.
    pub operation: Operation,
    /// The volume id. All runs for one volume get the same. An image names its storage by it.
    pub claim_uuid: String,
    /// The time when this attempt began, RFC 3339.
    pub provision_ts: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The name that the PersistentVolume must have.
    pub pv_name: String,
    /// The claim. Its fields are empty where the claim of the volume is not known any more.
    pub claim: ClaimRef,
    /// Name of the storage class.
    pub storage_class: String,
    /// The requested size, in bytes. The volume must be at least as large.
    pub size_bytes: u64,
    /// In an expand run: the size that the volume has, in bytes.
    pub old_size_bytes: Option<u64>,
    /// In a provision run for a clone: the volume to copy.
    pub clone_of: Option<CloneSource>,
    /// The snapshot that the run makes, deletes or restores.
    pub snapshot: Option<Snapshot>,
    /// The VolumeAttributesClass whose parameters are among those of the run; empty for none.
    pub attributes_class: String,
    /// The parameters of that class. [`RunRequest::parameters`] contains them, too.
    pub attributes: BTreeMap<String, String>,
    /// In a modify run: the VolumeAttributesClass that the volume has; empty for none.
    pub old_attributes_class: String,
    /// The parameters of [`RunRequest::old_attributes_class`].
    pub old_attributes: BTreeMap<String, String>,
    /// The access modes of the claim, such as `ReadWriteOnce`.
    pub access_modes: Vec<String>,
    /// The volume mode: `Filesystem` or `Block`.
    pub volume_mode: String,
    /// Mount options of the class.
    pub mount_options: Vec<String>,
    /// The reclaim policy: `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// The file system that the class names; may be empty.
    pub fs_type: String,
    /// The user who created the claim; empty where the admission policy is not installed.
    pub username: String,
    /// The groups of that user.
    pub user_groups: Vec<String>,
    /// The ServiceAccount of the run's pod.
    pub service_account: String,
    /// Address of the Kubernetes API.
    pub kube_api: String,
    /// The node that the scheduler selected, or on which the volume was made; empty for none.
    pub node_name: String,
    /// The topology labels of that node.
    pub topology: BTreeMap<String, String>,
    /// The topologies that the class allows, as a JSON list; empty where the class allows all. Each item is an object
    /// from a label to its values.
    pub class_topologies: String,
    /// The provisioner name, for the annotation `pv.kubernetes.io/provisioned-by`.
    pub provisioner: String,
    /// The instance id of the orchestrator.
    pub instance: String,
    /// The volume source in the volume's PersistentVolume, as JSON; empty in provision runs.
    pub volume_source: String,
    /// The labels and annotations of the claim that the config lets through, by their full keys.
    pub claim_metadata: BTreeMap<String, String>,
    /// The parameters of config and class, by name.
    pub parameters: BTreeMap<String, String>,
    /// The namespace of the run's pod. The pod has it from the downward API, not as a property.
    pub pod_namespace: String,
}

/// A property: the name of its file, and its value. The name in upper snake case is its environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The name of the property's file in `/etc/flex/`.
    pub name: String,
    /// The value. A user may have written this text: never interpret it.
    pub value: String,
}

impl Property {
    /// Returns the name of the property's environment variable.
    pub fn env(&self) -> String {
        parameter::env_name(&self.name)
    }
}

/// Checks whether the contract uses a variable. No parameter may have its name.
pub fn is_reserved(env: &str) -> bool {
    variable::ALL.iter().any(|variable| variable.name == env)
}

impl RunRequest {
    /// Returns all properties: the contract's own, then the parameters.
    pub fn properties(&self) -> Vec<Property> {
        let Self {
            operation,
            claim_uuid,
            provision_ts,
            attempt,
            pv_name,
            claim,
            storage_class,
            size_bytes,
            old_size_bytes,
            clone_of,
            snapshot,
            attributes_class,
            attributes,
            old_attributes_class,
            old_attributes,
            access_modes,
            volume_mode,
            mount_options,
            reclaim_policy,
            fs_type,
            username,
            user_groups,
            service_account,
            kube_api,
            node_name,
            topology,
            class_topologies,
            provisioner,
            instance,
            volume_source,
            claim_metadata,
            parameters,
            pod_namespace: _,
        } = self;
        let pairs = |map: &BTreeMap<String, String>| {
            if map.is_empty() { String::new() } else { serde_json::json!(map).to_string() }
        };
        let original = clone_of.clone().unwrap_or_default();
        let of_snapshot = snapshot.clone().unwrap_or_default();
        let own = [
            (variable::OPERATION, operation.to_string()),
            (variable::CLAIM_UUID, claim_uuid.clone()),
            (variable::PROVISION_TS, provision_ts.clone()),
            (variable::ATTEMPT, attempt.to_string()),
            (variable::PV_NAME, pv_name.clone()),
            (variable::PVC_NAME, claim.name.clone()),
            (variable::PVC_NAMESPACE, claim.namespace.clone()),
            (variable::PVC_UID, claim.uid.clone()),
            (variable::STORAGE_CLASS, storage_class.clone()),
            (variable::SIZE, crate::quantity::quantity(*size_bytes).0),
            (variable::SIZE_BYTES, size_bytes.to_string()),
            (variable::OLD_SIZE_BYTES, old_size_bytes.map(|size| size.to_string()).unwrap_or_default()),
            (variable::CLONE_OF, original.id),
            (variable::CLONE_OF_PV_NAME, original.pv_name),
            (variable::CLONE_OF_SOURCE, original.source),
            (
                variable::CLONE_OF_SIZE_BYTES,
                clone_of.as_ref().map(|original| original.size_bytes.to_string()).unwrap_or_default(),
            ),
            (variable::CLONE_OF_NODE, original.node),
            (variable::SNAPSHOT_ID, of_snapshot.id),
            (variable::SNAPSHOT_OF, of_snapshot.of),
            (variable::SNAPSHOT_SIZE_BYTES, of_snapshot.size_bytes.map(|size| size.to_string()).unwrap_or_default()),
            (variable::SNAPSHOT_NODE, of_snapshot.node),
            (variable::SNAPSHOT_NAMESPACE, of_snapshot.namespace),
            (variable::SNAPSHOT_NAME, of_snapshot.name),
            (variable::ATTRIBUTES_CLASS, attributes_class.clone()),
            (variable::ATTRIBUTES, pairs(attributes)),
            (variable::OLD_ATTRIBUTES_CLASS, old_attributes_class.clone()),
            (variable::OLD_ATTRIBUTES, pairs(old_attributes)),
            (variable::ACCESS_MODES, access_modes.join(",")),
            (variable::VOLUME_MODE, volume_mode.clone()),
            (variable::MOUNT_OPTIONS, mount_options.join(",")),
            (variable::RECLAIM_POLICY, reclaim_policy.clone()),
            (variable::FS_TYPE, fs_type.clone()),
            (variable::USERNAME, username.clone()),
            (variable::USER_GROUPS, user_groups.join(",")),
            (variable::SERVICE_ACCOUNT, service_account.clone()),
            (variable::KUBE_API, kube_api.clone()),
            (variable::NODE_NAME, node_name.clone()),
            (variable::TOPOLOGY, pairs(topology)),
            (variable::CLASS_TOPOLOGIES, class_topologies.clone()),
            (variable::PROVISIONER, provisioner.clone()),
            (variable::INSTANCE, instance.clone()),
            (variable::VOLUME_SOURCE, volume_source.clone()),
            (variable::CLAIM_METADATA, pairs(claim_metadata)),
            (variable::PARAMETER_NAMES, parameters.keys().cloned().collect::<Vec<_>>().join(",")),
        ];
        let own = own.into_iter().map(|(variable, value)| Property { name: variable.file(), value });
        let parameters =
            parameters.iter().map(|(name, value)| Property { name: parameter::file_name(name), value: value.clone() });
        own.chain(parameters).collect()
    }

    /// Reads a request from the environment of its run.
    ///
    /// # Errors
    /// If the environment is not that of a run for one volume, snapshot or list.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, RequestError> {
        let optional = |variable: &Variable| env(variable.name).unwrap_or_default();
        let list = |variable: &Variable| -> Vec<String> {
            optional(variable).split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        if optional(variable::OPERATION) == operation::BATCH {
            return Err(RequestError::Batch);
        }
        let operation: Operation = optional(variable::OPERATION).parse().unwrap_or(Operation::Provision);
        // When a snapshot is deleted, its volume may be gone.
        let needs_volume = operation.is_of_volume() && operation != Operation::DeleteSnapshot;
        let of_volume =
            [variable::CLAIM_UUID, variable::PV_NAME, variable::SIZE_BYTES].into_iter().filter(|_| needs_volume);
        let of_snapshot = [variable::SNAPSHOT_ID].into_iter().filter(|_| operation.is_of_snapshot());
        let missing: Vec<&str> = [variable::OPERATION, variable::STORAGE_CLASS]
            .into_iter()
            .chain(of_volume)
            .chain(of_snapshot)
            .filter(|variable| optional(variable).is_empty())
            .map(|variable| variable.name)
            .collect();
        if !missing.is_empty() {
            return Err(RequestError::Missing(missing.join(", ")));
        }
        let number = |variable: &Variable, value: String| -> Result<u64, RequestError> {
            let invalid = |value| RequestError::Invalid { variable: variable.name, value, expected: "a whole number" };
            value.parse().map_err(|_| invalid(value))
        };
        let pairs = |variable: &Variable| -> Result<BTreeMap<String, String>, RequestError> {
            let value = optional(variable);
            if value.is_empty() {
                return Ok(BTreeMap::new());
            }
            serde_json::from_str(&value).map_err(|_| RequestError::Invalid {
                variable: variable.name,
                value,
                expected: "a JSON object of strings",
            })
        };
        let or = |value: String, default: &str| if value.is_empty() { default.to_owned() } else { value };
        Ok(RunRequest {
            operation: optional(variable::OPERATION).parse()?,
            claim_uuid: optional(variable::CLAIM_UUID),
            provision_ts: optional(variable::PROVISION_TS),
            attempt: u32::try_from(number(variable::ATTEMPT, or(optional(variable::ATTEMPT), "1"))?)
                .unwrap_or(u32::MAX),
            pv_name: optional(variable::PV_NAME),
            claim: ClaimRef {
                namespace: optional(variable::PVC_NAMESPACE),
                name: optional(variable::PVC_NAME),
                uid: optional(variable::PVC_UID),
            },
            storage_class: optional(variable::STORAGE_CLASS),
            size_bytes: number(variable::SIZE_BYTES, or(optional(variable::SIZE_BYTES), "0"))?,
            old_size_bytes: match optional(variable::OLD_SIZE_BYTES) {
                size if size.is_empty() => None,
                size => Some(number(variable::OLD_SIZE_BYTES, size)?),
            },
            clone_of: match optional(variable::CLONE_OF) {
                id if id.is_empty() => None,
                id => Some(CloneSource {
                    id,
                    pv_name: optional(variable::CLONE_OF_PV_NAME),
                    source: optional(variable::CLONE_OF_SOURCE),
                    size_bytes: number(
                        variable::CLONE_OF_SIZE_BYTES,
                        or(optional(variable::CLONE_OF_SIZE_BYTES), "0"),
                    )?,
                    node: optional(variable::CLONE_OF_NODE),
                }),
            },
            snapshot: match optional(variable::SNAPSHOT_ID) {
                id if id.is_empty() => None,
                id => Some(Snapshot {
                    id,
                    of: optional(variable::SNAPSHOT_OF),
                    size_bytes: match optional(variable::SNAPSHOT_SIZE_BYTES) {
                        size if size.is_empty() => None,
                        size => Some(number(variable::SNAPSHOT_SIZE_BYTES, size)?),
                    },
                    node: optional(variable::SNAPSHOT_NODE),
                    namespace: optional(variable::SNAPSHOT_NAMESPACE),
                    name: optional(variable::SNAPSHOT_NAME),
                }),
            },
            attributes_class: optional(variable::ATTRIBUTES_CLASS),
            attributes: pairs(variable::ATTRIBUTES)?,
            old_attributes_class: optional(variable::OLD_ATTRIBUTES_CLASS),
            old_attributes: pairs(variable::OLD_ATTRIBUTES)?,
            access_modes: list(variable::ACCESS_MODES),
            volume_mode: or(optional(variable::VOLUME_MODE), "Filesystem"),
            mount_options: list(variable::MOUNT_OPTIONS),
            reclaim_policy: or(optional(variable::RECLAIM_POLICY), "Delete"),
            fs_type: optional(variable::FS_TYPE),
            username: optional(variable::USERNAME),
            user_groups: list(variable::USER_GROUPS),
            service_account: optional(variable::SERVICE_ACCOUNT),
            kube_api: optional(variable::KUBE_API),
            node_name: optional(variable::NODE_NAME),
            topology: pairs(variable::TOPOLOGY)?,
            class_topologies: optional(variable::CLASS_TOPOLOGIES),
            provisioner: or(optional(variable::PROVISIONER), crate::names::DEFAULT_PROVISIONER),
            instance: or(optional(variable::INSTANCE), crate::names::DEFAULT_INSTANCE),
            volume_source: optional(variable::VOLUME_SOURCE),
            claim_metadata: pairs(variable::CLAIM_METADATA)?,
            pod_namespace: or(optional(variable::POD_NAMESPACE), crate::names::FIELD_MANAGER),
            parameters: list(variable::PARAMETER_NAMES)
                .into_iter()
                .map(|name| (name.clone(), env(&parameter::env_name(&name)).unwrap_or_default()))
                .collect(),
        })
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(crate) mod tests;

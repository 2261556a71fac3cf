//! One run of an image: the orchestrator writes a request as properties, and the image reads it from its environment.

use std::collections::BTreeMap;

use crate::operation;
use crate::operation::Operation;
use crate::parameter;
use crate::policy::ReclaimPolicy;
use crate::request_env::RunEnv;
pub use crate::request_error::RequestError;
use crate::variable;
use crate::volume_mode::VolumeMode;

/// The value of a property that is true; else it is empty.
const TRUE: &str = "true";

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
    /// The path of the storage, if the volume has moved in; else empty.
    pub moved_in_path: String,
}

/// The snapshot of a run: a snapshot run makes it, a delete-snapshot run deletes it, a provision run restores it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot id. All runs for one snapshot get the same. An image names the stored snapshot by it.
    pub id: String,
    /// The handle that the snapshot run handed back; empty for none.
    pub handle: String,
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
    /// The volume id, `CLAIM_UUID`. All runs for one volume get the same. An image names its storage by it.
    pub volume_id: String,
    /// The time when this attempt began, RFC 3339.
    pub provision_ts: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// In a delete run without a PersistentVolume: all attempts that may have left storage asked for the same as this run.
    pub attempts_alike: bool,
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
    /// The volume mode.
    pub volume_mode: VolumeMode,
    /// Mount options of the class.
    pub mount_options: Vec<String>,
    /// The reclaim policy.
    pub reclaim_policy: ReclaimPolicy,
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
    /// The path of the storage in that source, if the volume has moved in; else empty.
    pub moved_in_path: String,
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
    /// Returns the node, if the request names one.
    pub fn node(&self) -> Option<&str> {
        Some(self.node_name.as_str()).filter(|node| !node.is_empty())
    }

    /// Returns all properties: the contract's own, then the parameters.
    pub fn properties(&self) -> Vec<Property> {
        let pairs = |map: &BTreeMap<String, String>| {
            if map.is_empty() { String::new() } else { serde_json::json!(map).to_string() }
        };
        let size = |size: Option<u64>| size.map(|bytes| bytes.to_string()).unwrap_or_default();
        let source = self.clone_of.clone().unwrap_or_default();
        let snapshot = self.snapshot.clone().unwrap_or_default();
        let own = [
            (variable::OPERATION, self.operation.to_string()),
            (variable::CONTRACT, crate::VERSION.to_string()),
            (variable::CLAIM_UUID, self.volume_id.clone()),
            (variable::PROVISION_TS, self.provision_ts.clone()),
            (variable::ATTEMPT, self.attempt.to_string()),
            (variable::ATTEMPTS_ALIKE, if self.attempts_alike { TRUE.to_owned() } else { String::new() }),
            (variable::PV_NAME, self.pv_name.clone()),
            (variable::PVC_NAME, self.claim.name.clone()),
            (variable::PVC_NAMESPACE, self.claim.namespace.clone()),
            (variable::PVC_UID, self.claim.uid.clone()),
            (variable::STORAGE_CLASS, self.storage_class.clone()),
            (variable::SIZE, crate::quantity::quantity(self.size_bytes).0),
            (variable::SIZE_BYTES, self.size_bytes.to_string()),
            (variable::OLD_SIZE_BYTES, size(self.old_size_bytes)),
            (variable::CLONE_OF, source.id),
            (variable::CLONE_OF_PV_NAME, source.pv_name),
            (variable::CLONE_OF_SOURCE, source.source),
            (variable::CLONE_OF_SIZE_BYTES, size(self.clone_of.as_ref().map(|source| source.size_bytes))),
            (variable::CLONE_OF_NODE, source.node),
            (variable::CLONE_OF_MOVED_IN_PATH, source.moved_in_path),
            (variable::SNAPSHOT_ID, snapshot.id),
            (variable::SNAPSHOT_HANDLE, snapshot.handle),
            (variable::SNAPSHOT_OF, snapshot.of),
            (variable::SNAPSHOT_SIZE_BYTES, size(snapshot.size_bytes)),
            (variable::SNAPSHOT_NODE, snapshot.node),
            (variable::SNAPSHOT_NAMESPACE, snapshot.namespace),
            (variable::SNAPSHOT_NAME, snapshot.name),
            (variable::ATTRIBUTES_CLASS, self.attributes_class.clone()),
            (variable::ATTRIBUTES, pairs(&self.attributes)),
            (variable::OLD_ATTRIBUTES_CLASS, self.old_attributes_class.clone()),
            (variable::OLD_ATTRIBUTES, pairs(&self.old_attributes)),
            (variable::ACCESS_MODES, self.access_modes.join(",")),
            (variable::VOLUME_MODE, self.volume_mode.to_string()),
            (variable::MOUNT_OPTIONS, self.mount_options.join(",")),
            (variable::RECLAIM_POLICY, self.reclaim_policy.to_string()),
            (variable::FS_TYPE, self.fs_type.clone()),
            (variable::USERNAME, self.username.clone()),
            (variable::USER_GROUPS, self.user_groups.join(",")),
            (variable::SERVICE_ACCOUNT, self.service_account.clone()),
            (variable::KUBE_API, self.kube_api.clone()),
            (variable::NODE_NAME, self.node_name.clone()),
            (variable::TOPOLOGY, pairs(&self.topology)),
            (variable::CLASS_TOPOLOGIES, self.class_topologies.clone()),
            (variable::PROVISIONER, self.provisioner.clone()),
            (variable::INSTANCE, self.instance.clone()),
            (variable::VOLUME_SOURCE, self.volume_source.clone()),
            (variable::MOVED_IN_PATH, self.moved_in_path.clone()),
            (variable::CLAIM_METADATA, pairs(&self.claim_metadata)),
            (variable::PARAMETER_NAMES, self.parameters.keys().cloned().collect::<Vec<_>>().join(",")),
        ];
        let own = own.into_iter().map(|(variable, value)| Property { name: variable.file(), value });
        let parameters = self
            .parameters
            .iter()
            .map(|(name, value)| Property { name: parameter::file_name(name), value: value.clone() });
        own.chain(parameters).collect()
    }

    /// Reads a request from the environment of its run.
    ///
    /// # Errors
    /// If the environment is not that of a run for one volume, snapshot or list.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, RequestError> {
        let env = RunEnv(env);
        check_complete(&env)?;
        Ok(RunRequest {
            operation: env.text(variable::OPERATION).parse()?,
            volume_id: env.text(variable::CLAIM_UUID),
            provision_ts: env.text(variable::PROVISION_TS),
            attempt: u32::try_from(env.number(variable::ATTEMPT)?.unwrap_or(1)).unwrap_or(u32::MAX),
            attempts_alike: env.text(variable::ATTEMPTS_ALIKE) == TRUE,
            pv_name: env.text(variable::PV_NAME),
            claim: ClaimRef {
                namespace: env.text(variable::PVC_NAMESPACE),
                name: env.text(variable::PVC_NAME),
                uid: env.text(variable::PVC_UID),
            },
            storage_class: env.text(variable::STORAGE_CLASS),
            size_bytes: env.number(variable::SIZE_BYTES)?.unwrap_or(0),
            old_size_bytes: env.number(variable::OLD_SIZE_BYTES)?,
            clone_of: CloneSource::from_env(&env)?,
            snapshot: Snapshot::from_env(&env)?,
            attributes_class: env.text(variable::ATTRIBUTES_CLASS),
            attributes: env.pairs(variable::ATTRIBUTES)?,
            old_attributes_class: env.text(variable::OLD_ATTRIBUTES_CLASS),
            old_attributes: env.pairs(variable::OLD_ATTRIBUTES)?,
            access_modes: env.list(variable::ACCESS_MODES),
            volume_mode: env.text_or(variable::VOLUME_MODE, "Filesystem").as_str().into(),
            mount_options: env.list(variable::MOUNT_OPTIONS),
            reclaim_policy: env.text_or(variable::RECLAIM_POLICY, "Delete").as_str().into(),
            fs_type: env.text(variable::FS_TYPE),
            username: env.text(variable::USERNAME),
            user_groups: env.list(variable::USER_GROUPS),
            service_account: env.text(variable::SERVICE_ACCOUNT),
            kube_api: env.text(variable::KUBE_API),
            node_name: env.text(variable::NODE_NAME),
            topology: env.pairs(variable::TOPOLOGY)?,
            class_topologies: env.text(variable::CLASS_TOPOLOGIES),
            provisioner: env.text_or(variable::PROVISIONER, crate::names::DEFAULT_PROVISIONER),
            instance: env.text_or(variable::INSTANCE, crate::names::DEFAULT_INSTANCE),
            volume_source: env.text(variable::VOLUME_SOURCE),
            moved_in_path: env.text(variable::MOVED_IN_PATH),
            claim_metadata: env.pairs(variable::CLAIM_METADATA)?,
            pod_namespace: env.text_or(variable::POD_NAMESPACE, crate::names::FIELD_MANAGER),
            parameters: env
                .list(variable::PARAMETER_NAMES)
                .into_iter()
                .map(|name| (name.clone(), (env.0)(&parameter::env_name(&name)).unwrap_or_default()))
                .collect(),
        })
    }
}

/// Checks that the run is not a batch, and that the environment has all variables that its operation needs.
fn check_complete<F: Fn(&str) -> Option<String>>(env: &RunEnv<F>) -> Result<(), RequestError> {
    if env.text(variable::OPERATION) == operation::BATCH {
        return Err(RequestError::Batch);
    }
    let operation: Operation = env.text(variable::OPERATION).parse().unwrap_or(Operation::Provision);
    // When a snapshot is deleted, its volume may be gone.
    let needs_volume = operation.is_of_volume() && operation != Operation::DeleteSnapshot;
    let of_volume =
        [variable::CLAIM_UUID, variable::PV_NAME, variable::SIZE_BYTES].into_iter().filter(|_| needs_volume);
    let of_snapshot = [variable::SNAPSHOT_ID].into_iter().filter(|_| operation.is_of_snapshot());
    let needed = [variable::OPERATION, variable::STORAGE_CLASS].into_iter().chain(of_volume).chain(of_snapshot);
    let missing: Vec<&str> =
        needed.filter(|variable| env.text(variable).is_empty()).map(|variable| variable.name).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(RequestError::Missing(missing.join(", "))),
    }
}

impl CloneSource {
    /// Reads the volume to copy; `None` where the run copies none.
    fn from_env<F: Fn(&str) -> Option<String>>(env: &RunEnv<F>) -> Result<Option<Self>, RequestError> {
        let id = env.text(variable::CLONE_OF);
        if id.is_empty() {
            return Ok(None);
        }
        Ok(Some(CloneSource {
            id,
            pv_name: env.text(variable::CLONE_OF_PV_NAME),
            source: env.text(variable::CLONE_OF_SOURCE),
            size_bytes: env.number(variable::CLONE_OF_SIZE_BYTES)?.unwrap_or(0),
            node: env.text(variable::CLONE_OF_NODE),
            moved_in_path: env.text(variable::CLONE_OF_MOVED_IN_PATH),
        }))
    }
}

impl Snapshot {
    /// Reads the snapshot; `None` where the run has none.
    fn from_env<F: Fn(&str) -> Option<String>>(env: &RunEnv<F>) -> Result<Option<Self>, RequestError> {
        let id = env.text(variable::SNAPSHOT_ID);
        if id.is_empty() {
            return Ok(None);
        }
        Ok(Some(Snapshot {
            id,
            handle: env.text(variable::SNAPSHOT_HANDLE),
            of: env.text(variable::SNAPSHOT_OF),
            size_bytes: env.number(variable::SNAPSHOT_SIZE_BYTES)?,
            node: env.text(variable::SNAPSHOT_NODE),
            namespace: env.text(variable::SNAPSHOT_NAMESPACE),
            name: env.text(variable::SNAPSHOT_NAME),
        }))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(crate) mod tests;

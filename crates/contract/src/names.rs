//! Every name that stands in the API or in a pod: labels, annotations, finalizers, reasons, paths.

pub use crate::reason;

/// The provisioner name of StorageClasses unless the orchestrator runs under another.
pub const DEFAULT_PROVISIONER: &str = "flex-provisioner.io";
/// The plugin name of provisioner ConfigMaps unless the orchestrator runs under another.
pub const DEFAULT_PLUGIN: &str = "kubernetes.io/flex-provisioner";
/// The instance id unless the orchestrator runs under another.
pub const DEFAULT_INSTANCE: &str = "default";
/// The field manager of every write.
pub const FIELD_MANAGER: &str = "flex-provisioner";

/// The name of the container that runs the image.
pub const CONTAINER: &str = "provisioner";

/// On a ConfigMap: marks it as a provisioner config (with the value [`LABEL_TYPE_CONFIG`]).
pub const LABEL_TYPE: &str = "type";
/// The value of [`LABEL_TYPE`] that the orchestrator looks for.
pub const LABEL_TYPE_CONFIG: &str = "provisioner-config";
/// On a ConfigMap: the class that it serves.
pub const LABEL_STORAGE_CLASS: &str = "storage-class";

/// On Jobs, pods and volumes, and as an annotation on claims: the orchestrator instance that owns them.
pub const LABEL_INSTANCE: &str = "flex-provisioner.io/instance";
/// On Jobs and pods: the storage class.
pub const LABEL_CLASS: &str = "flex-provisioner.io/class";
/// On Jobs and pods: the operation (`provision`, `delete`, `expand`).
pub const LABEL_OPERATION: &str = "flex-provisioner.io/operation";
/// On Jobs and pods: the volume id, which is what the image gets as `CLAIM_UUID`.
pub const LABEL_CLAIM_UUID: &str = "flex-provisioner.io/claim-uuid";
/// On Jobs and pods: the number of the attempt, from 1.
pub const LABEL_ATTEMPT: &str = "flex-provisioner.io/attempt";

/// On volumes that are kept ready for claims: what they are, so that it shows whether their class still makes such. On claims
/// in the orchestrator's namespace, with the value [`POOL_REQUEST`]: they ask for such a volume.
pub const LABEL_POOL: &str = "flex-provisioner.io/pool";
/// On volumes that are kept ready, or were: the size that was asked for, in bytes. Backends may make them larger.
pub const POOL_SIZE: &str = "flex-provisioner.io/pool-size";
/// The value of [`LABEL_POOL`] on claims that ask for a volume to be kept ready.
pub const POOL_REQUEST: &str = "request";

/// On the shipped admission policies and their bindings: which one it is.
pub const LABEL_POLICY: &str = "flex-provisioner.io/policy";

/// On claims and volumes: the UUID of the claim. On a claim it is the claim's own UID; any other
/// value came along with a copy.
pub const CLAIM_UUID: &str = "flex-provisioner.io/claim-uuid";
/// On claims: when the current attempt began, RFC 3339 with microseconds.
pub const PROVISION_TS: &str = "flex-provisioner.io/provision-ts";
/// On claims and volumes: the number of the current attempt, from 1.
pub const ATTEMPT: &str = "flex-provisioner.io/attempt";
/// On claims: the recipe of the current attempt, as `namespace/name@hash`.
pub const CONFIG: &str = "flex-provisioner.io/config";
/// On claims: how many volumes that were made for it others have taken; absent for none. After each, its
/// runs begin anew under another id.
pub const TAKEN: &str = "flex-provisioner.io/volumes-taken";
/// On claims, and on volumes that are to be deleted: the name of the Job that is to be this attempt's and those of others;
/// absent for a run of its own. On pods of such a Job: whom it is for, as JSON.
pub const BATCH: &str = "flex-provisioner.io/batch";
/// On claims and volumes: the nodes where an attempt may have left something, as a comma-separated list.
pub const NODES: &str = "flex-provisioner.io/nodes";
/// On claims and volumes: what the last failed attempt said, as JSON.
pub const FAILURE: &str = "flex-provisioner.io/last-failure";
/// On volumes: what the last failed expand run was to do, and said, as JSON.
pub const EXPANSION: &str = "flex-provisioner.io/expansion";
/// On volumes: the VolumeAttributesClass whose attributes it has, with its parameters, as JSON. On Jobs of modify runs and
/// of provision runs: the one that the run is to give its volume.
pub const ATTRIBUTES: &str = "flex-provisioner.io/attributes";
/// On volumes: what the last failed modify run was to do, and said, as JSON.
pub const MODIFICATION: &str = "flex-provisioner.io/modification";
/// On volumes: what every later run gets as `CLAIM_UUID`.
pub const VOLUME_ID: &str = "flex-provisioner.io/volume-id";
/// On volumes: how it was made, which is what a delete run needs, as JSON.
pub const PROVENANCE: &str = "flex-provisioner.io/provenance";
/// On volumes: why it is not bound, for a volume that does not fit its claim.
pub const QUARANTINE: &str = "flex-provisioner.io/quarantine";
/// On volumes and claims: set to [`ABANDON_YES`] by an admin to let go of what cannot be deleted.
pub const ABANDON: &str = "flex-provisioner.io/abandon";
/// The value of [`ABANDON`] that lets go.
pub const ABANDON_YES: &str = "i-have-cleaned-up-by-hand";
/// On claims: who created it; written by the admission policy alone.
pub const CREATED_BY: &str = "flex-provisioner.io/created-by";
/// On claims: the groups of its creator, comma-separated; written by the admission policy alone.
pub const CREATED_BY_GROUPS: &str = "flex-provisioner.io/created-by-groups";
/// On ConfigMaps: the verdict of the last check, `ok` or the list of errors.
pub const VERDICT: &str = "flex-provisioner.io/verdict";
/// On Jobs: the recipe of the run, as `namespace/name@hash`.
pub const JOB_CONFIG: &str = "flex-provisioner.io/config";
/// On Jobs, and on volumes that were adopted: the namespace and name of the claim, as `namespace/name`.
pub const JOB_CLAIM: &str = "flex-provisioner.io/claim";
/// On Jobs: the name of the volume that a delete or expand run is for.
pub const JOB_VOLUME: &str = "flex-provisioner.io/volume";
/// On Jobs: the name of the VolumeSnapshotContent that a run is for.
pub const JOB_CONTENT: &str = "flex-provisioner.io/snapshot-content";
/// On Jobs: the size that an expand run is to give its volume, in bytes.
pub const JOB_SIZE: &str = "flex-provisioner.io/size";
/// On Jobs of capacity runs: what was there when they were asked for, so that a change shows.
pub const JOB_SAW: &str = "flex-provisioner.io/saw";
/// On CSIStorageCapacity objects: what they are the answer to, as JSON.
pub const CAPACITY: &str = "flex-provisioner.io/capacity";
/// On revisions: the ConfigMap, as `namespace.name` (hashed where too long).
pub const LABEL_REVISION: &str = "flex-provisioner.io/revision-of";
/// Prefix of the numbered pod annotations that carry the properties into files.
pub const PROPERTY_PREFIX: &str = "flex-provisioner.io/p";
/// Keeps a claim until nothing of it can be left behind.
pub const CLAIM_FINALIZER: &str = "flex-provisioner.io/claim";
/// Keeps a claim while another is made as a copy of its volume; the UID of the other follows.
pub const CLONE_FINALIZER: &str = "flex-provisioner.io/clone-";
/// Keeps a claim while a snapshot of its volume is made; the UID of the VolumeSnapshot follows.
pub const SOURCE_FINALIZER: &str = "flex-provisioner.io/snapshot-";
/// Keeps a VolumeSnapshot until its content is gone, and a VolumeSnapshotContent until what is stored for it is.
pub const SNAPSHOT_FINALIZER: &str = "flex-provisioner.io/snapshot";
/// Keeps a volume until its storage is gone.
pub const VOLUME_FINALIZER: &str = "flex-provisioner.io/volume";

/// On claims: the node that the scheduler chose.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On claims: the provisioner that the PV controller asks to serve it.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older spelling of [`STORAGE_PROVISIONER`].
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On claims: binding is complete.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On claims and volumes: the binding was made by a controller, not by the user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On volumes: who provisioned them. Without it the PV controller hands a released volume to an
/// in-tree deleter.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On StorageClasses: makes it the default.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On VolumeSnapshotClasses: makes it the default for its driver.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// The finalizer that the snapshot-controller puts on VolumeSnapshotContents, and that whoever made the snapshot takes
/// off.
pub const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Prefix of the names of VolumeSnapshotContents that are made for a VolumeSnapshot; its UID follows.
pub const CONTENT_PREFIX: &str = "snapcontent-";
/// On nodes: the name that `local` volumes select by.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Where the properties stand as files.
pub const PROPERTY_DIR: &str = "/etc/flex";
/// Where the Secrets of `secret-volume` stand as files, a directory each.
pub const SECRET_DIR: &str = "/etc/flex-secrets";
/// Where an image leaves its last words.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// The kubelet keeps that many bytes of what stands there.
pub const TERMINATION_MESSAGE: usize = 4096;
/// The user that an image runs as unless the config says otherwise.
pub const DEFAULT_USER: i64 = 65532;

/// Prefix of the names of volumes; the claim UUID follows.
pub const PV_PREFIX: &str = "pvc-";
/// Prefix of the names of volumes that nobody can claim, by which the orchestrator learns which volumes the PV controller
/// knows.
pub const MARKER_PREFIX: &str = "flex-marker-";

/// The finalizer on a claim of whose volume the claim with a UID is made as a copy.
pub fn clone_finalizer(uid: &str) -> String {
    format!("{CLONE_FINALIZER}{uid}")
}

/// The finalizer on a claim of whose volume the VolumeSnapshot with a UID is made.
pub fn source_finalizer(uid: &str) -> String {
    format!("{SOURCE_FINALIZER}{uid}")
}

/// The name of the content of a VolumeSnapshot.
pub fn content_name(uid: &str) -> String {
    format!("{CONTENT_PREFIX}{uid}")
}

/// The UID of the claim in the claimRef of a volume that was kept ready and is not any more: no claim has it.
pub const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// Prefix of the names of claims that ask for a volume to be kept ready.
pub const REQUEST_PREFIX: &str = "pool-";
/// The finalizer that Kubernetes puts on every claim, and takes off when no pod uses it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The name of the volume of a claim.
pub fn pv_name(claim_uuid: &str) -> String {
    format!("{PV_PREFIX}{claim_uuid}")
}

/// A comma-separated list, as it stands in an annotation.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

//! The names that appear in the Kubernetes API or in a pod: labels, annotations, finalizers and paths. The reasons of
//! events are in [`reason`](crate::reason).

/// The provisioner name of StorageClasses, unless the orchestrator is started with another.
pub const DEFAULT_PROVISIONER: &str = "flex-provisioner.io";
/// The plugin name of provisioner ConfigMaps, unless the orchestrator is started with another.
pub const DEFAULT_PLUGIN: &str = "kubernetes.io/flex-provisioner";
/// The instance id, unless the orchestrator is started with another.
pub const DEFAULT_INSTANCE: &str = "default";
/// The field manager of all writes.
pub const FIELD_MANAGER: &str = "flex-provisioner";

/// The name of the container that runs the image.
pub const CONTAINER: &str = "provisioner";

/// On a ConfigMap: marks it as a provisioner config, with the value [`LABEL_TYPE_CONFIG`].
pub const LABEL_TYPE: &str = "type";
/// The value of [`LABEL_TYPE`] that the orchestrator looks for.
pub const LABEL_TYPE_CONFIG: &str = "provisioner-config";
/// On a ConfigMap: the class that the config serves. [`LABEL_CLASS`] does the same.
pub const LABEL_STORAGE_CLASS: &str = "storage-class";

/// On Jobs, pods and volumes, and as an annotation on claims: the orchestrator instance that owns them.
pub const LABEL_INSTANCE: &str = "flex-provisioner.io/instance";
/// On Jobs and pods: the storage class. On a StorageClass: new claims get the name of its provisioner at once. On a
/// ConfigMap: as [`LABEL_STORAGE_CLASS`], which wins.
pub const LABEL_CLASS: &str = "flex-provisioner.io/class";
/// On Jobs and pods: the operation, such as `provision` ([`crate::operation::Operation`]).
pub const LABEL_OPERATION: &str = "flex-provisioner.io/operation";
/// On Jobs and pods: the volume id, which the image gets as `CLAIM_UUID`. A run that is not for one volume has another
/// id here: that of its snapshot, its segment or its batch.
pub const LABEL_VOLUME_ID: &str = "flex-provisioner.io/claim-uuid";
/// On Jobs and pods: the number of the attempt, from 1.
pub const LABEL_ATTEMPT: &str = ATTEMPT;

/// On pooled volumes: a hash of how the class makes its pooled volumes. It shows whether the class still makes such
/// volumes. On claims in the orchestrator's namespace: [`POOL_REQUEST`] marks a pool request.
pub const LABEL_POOL: &str = "flex-provisioner.io/pool";
/// On volumes that are or were pooled: the requested size in bytes. A backend may make a larger volume.
pub const POOL_SIZE: &str = "flex-provisioner.io/pool-size";
/// The value of [`LABEL_POOL`] on pool requests.
pub const POOL_REQUEST: &str = "request";

/// On the shipped admission policies and their bindings: the name of the policy.
pub const LABEL_POLICY: &str = "flex-provisioner.io/policy";

/// On claims and volumes: the UID of the claim. On a claim, any value but its own UID came from a copied manifest.
pub const CLAIM_UID: &str = "flex-provisioner.io/claim-uuid";
/// On claims: when the current attempt began, RFC 3339 with microseconds.
pub const PROVISION_TS: &str = "flex-provisioner.io/provision-ts";
/// On claims and volumes: the number of the current attempt, from 1.
pub const ATTEMPT: &str = "flex-provisioner.io/attempt";
/// On claims: the recipe version of the current attempt, `namespace/name@hash`. On Jobs: that of the run.
pub const RECIPE_VERSION: &str = "flex-provisioner.io/config";
/// On the pod of a batch: its members, as JSON.
pub const BATCH: &str = "flex-provisioner.io/batch";
/// On claims and volumes: the nodes where an attempt may have left storage, comma-separated.
pub const NODES: &str = "flex-provisioner.io/nodes";
/// On claims and volumes: the failure of the last failed attempt, as JSON.
pub const FAILURE: &str = "flex-provisioner.io/last-failure";
/// On claims, volumes and VolumeSnapshotContents whose last run failed: begin the next attempt now, or ten seconds
/// after the failure. Everybody who may change the object may write it, with any value. The record of the next failure
/// removes it.
pub const RETRY: &str = "flex-provisioner.io/retry";
/// On claims: when each stage of the last attempt was reached, as JSON.
pub const TIMELINE: &str = "flex-provisioner.io/timeline";
/// On claims: the attempts that failed, with their stages and causes, as JSON. It remains when the claim is bound.
pub const FAILED_ATTEMPTS: &str = "flex-provisioner.io/failed-attempts";
/// On volumes: the target and the failure of the last expand run that failed, as JSON.
pub const EXPANSION: &str = "flex-provisioner.io/expansion";
/// On volumes: the VolumeAttributesClass that the volume has, with its parameters, as JSON. On Jobs of modify and
/// provision runs: the VolumeAttributesClass that the run must give the volume.
pub const ATTRIBUTES: &str = "flex-provisioner.io/attributes";
/// On volumes: the target and the failure of the last modify run that failed, as JSON.
pub const MODIFICATION: &str = "flex-provisioner.io/modification";
/// On volumes: the volume id, which all later runs get as `CLAIM_UUID`.
pub const VOLUME_ID: &str = "flex-provisioner.io/volume-id";
/// On volumes: the provenance, as JSON. A delete run needs nothing else.
pub const PROVENANCE: &str = "flex-provisioner.io/provenance";
/// On volumes that do not fit their claims: the reasons. The orchestrator does not bind such a volume.
pub const QUARANTINE: &str = "flex-provisioner.io/quarantine";
/// On volumes and claims: an admin sets it to [`ABANDON_YES`] to give up storage that cannot be deleted.
pub const ABANDON: &str = "flex-provisioner.io/abandon";
/// The only value of [`ABANDON`] that has an effect.
pub const ABANDON_YES: &str = "i-have-cleaned-up-by-hand";
/// On claims: the user who created the claim. Only the admission policy may write it.
pub const CREATED_BY: &str = "flex-provisioner.io/created-by";
/// On claims: the groups of that user, comma-separated. Only the admission policy may write it.
pub const CREATED_BY_GROUPS: &str = "flex-provisioner.io/created-by-groups";
/// On claims: the namespace of the data source with which the user created the claim. The admission policy writes it before
/// the API server drops a source that it does not allow.
pub const SOURCE_NAMESPACE: &str = "flex-provisioner.io/source-namespace";
/// On ConfigMaps: the verdict of the last check, `ok` or the list of errors.
pub const VERDICT: &str = "flex-provisioner.io/verdict";
/// On Jobs, and on volumes that were adopted: the namespace and name of the claim, as `namespace/name`.
pub const JOB_CLAIM: &str = "flex-provisioner.io/claim";
/// On Jobs: the UID of the cluster whose orchestrator created the Job. A Job of another cluster is a copy.
pub const CLUSTER: &str = "flex-provisioner.io/cluster";
/// The scheduling gate with which the pod of each run is born. The orchestrator removes it from pods of Jobs that it has created
/// itself; a copy stays closed.
pub const START_GATE: &str = "flex-provisioner.io/start";
/// On Jobs: the time at which the orchestrator asked the API server for the Job, RFC 3339. A Job that is much younger was
/// created by somebody else, such as a backup tool.
pub const JOB_REQUESTED: &str = "flex-provisioner.io/requested-at";
/// On Jobs of provision runs and their pods: the Job is certainly the first of its attempt. Its only value is [`FIRST_JOB_YES`].
pub const FIRST_JOB: &str = "flex-provisioner.io/first-job";
/// The only value of [`FIRST_JOB`].
pub const FIRST_JOB_YES: &str = "true";
/// On Jobs: the name of the volume that a delete, expand or modify run is for.
pub const JOB_VOLUME: &str = "flex-provisioner.io/volume";
/// On Jobs: the name of the VolumeSnapshotContent that the run is for.
pub const JOB_CONTENT: &str = "flex-provisioner.io/snapshot-content";
/// On Jobs of snapshot runs: the deletion policy of the VolumeSnapshotContent. A late run has no other record of the policy.
pub const JOB_DELETION_POLICY: &str = "flex-provisioner.io/deletion-policy";
/// On Jobs: the size in bytes that an expand run must give its volume.
pub const JOB_SIZE: &str = "flex-provisioner.io/size";
/// On Jobs of capacity runs: the fingerprint of the segment when the run was created. A different fingerprint shows a
/// change.
pub const CAPACITY_FINGERPRINT: &str = "flex-provisioner.io/capacity-fingerprint";
/// On CSIStorageCapacity objects: the question that the object answers, as JSON.
pub const CAPACITY: &str = "flex-provisioner.io/capacity";
/// On revisions: the ConfigMap, as `namespace.name`, or a hash where that is too long for a label.
pub const LABEL_REVISION: &str = "flex-provisioner.io/revision-of";
/// Prefix of the numbered pod annotations that carry the properties. The kubelet writes them into files.
pub const PROPERTY_PREFIX: &str = "flex-provisioner.io/p";
/// On pods: the text of the script that the run executes. The kubelet writes it into a file.
pub const SCRIPT: &str = "flex-provisioner.io/script";
/// On claims, with the UID of the claim: an attempt has begun, and its volume is neither bound nor undone. In a copy it is
/// another's.
pub const HELD: &str = "flex-provisioner.io/held";
/// On records of runs: the UID of the record itself, once the run may begin. In a copy it is another's.
pub const ARMED: &str = "flex-provisioner.io/armed";
/// On records of runs: the UIDs of the claims that need the record no more, comma-separated.
pub const SETTLED: &str = "flex-provisioner.io/settled";
/// On records of runs: the UIDs of the claims that are gone and whose class keeps what their attempts may have made, comma-separated.
pub const KEPT: &str = "flex-provisioner.io/kept";
/// On records of runs: what is noted of a claim that is gone, as JSON: annotations with their values. The UID of the claim
/// follows.
pub const GONE_CLAIM: &str = "flex-provisioner.io/gone-";
/// On claims: keeps the claim while a clone of its volume is made. The clone's UID follows.
pub const CLONE_FINALIZER: &str = "flex-provisioner.io/clone-";
/// On claims: keeps the claim while a snapshot of its volume is made. The UID of the VolumeSnapshot follows.
pub const SOURCE_FINALIZER: &str = "flex-provisioner.io/snapshot-";
/// On VolumeSnapshots: keeps the object until its content is gone. On VolumeSnapshotContents: keeps the object until
/// the stored snapshot is deleted.
pub const SNAPSHOT_FINALIZER: &str = "flex-provisioner.io/snapshot";
/// On volumes: keeps the volume until its storage is deleted.
pub const VOLUME_FINALIZER: &str = "flex-provisioner.io/volume";

/// On claims: the node that the scheduler chose.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On claims: the provisioner that must serve the claim. The PV controller writes it.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older spelling of [`STORAGE_PROVISIONER`].
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On claims: the PV controller has completed the binding.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On claims and volumes: a controller chose the binding, not the user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On volumes: the provisioner that made the volume. Without it the PV controller passes a released volume to an
/// in-tree deleter.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On StorageClasses: makes the class the default.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On VolumeSnapshotClasses: makes the class the default of its driver.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// On VolumeSnapshotContents: the snapshot-controller adds this finalizer. The driver that made the snapshot removes
/// it.
pub const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Prefix of the names of contents that the orchestrator makes for a VolumeSnapshot. The VolumeSnapshot's UID follows.
pub const CONTENT_PREFIX: &str = "snapcontent-";
/// On the Lease: the version of the leader's program, and the leader's name. A program that does not write the annotation
/// leaves the one of its predecessor, whose name differs.
pub const LEADER_VERSION: &str = "flex-provisioner.io/version";
/// On the Lease: another log filter, and the time until which it holds, as `FILTER until TIME`.
pub const LOG_FILTER: &str = "flex-provisioner.io/log";
/// On nodes: the label by which `local` volumes select their node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// On nodes: the operating system. Each kubelet writes it.
pub const OS: &str = "kubernetes.io/os";
/// The value of [`OS`] on the nodes of runs, unless the config names another.
pub const OS_LINUX: &str = "linux";
/// On pods of runs: the annotations by which autoscalers leave the node alone while the run is there. The first is for
/// the cluster autoscaler, the second for Karpenter.
pub const LEFT_ALONE: [(&str, &str); 2] =
    [("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), ("karpenter.sh/do-not-disrupt", "true")];

/// The directory of the properties as files.
pub const PROPERTY_DIR: &str = "/etc/flex";
/// The directory of the Secrets of `secret-volume`, with a subdirectory for each.
pub const SECRET_DIR: &str = "/etc/flex-secrets";
/// The directory of the file with a run's script.
pub const SCRIPT_DIR: &str = "/etc/flex-script";
/// The file of an image's last words.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// The largest termination message that the kubelet keeps, in bytes.
pub const TERMINATION_MESSAGE: usize = 4096;
/// The user id that an image runs as, unless the config says otherwise.
pub const DEFAULT_USER: i64 = 65532;

/// Prefix of the names of volumes. The volume id follows.
pub const PV_PREFIX: &str = "pvc-";
/// Prefix of the names of sync probes. No claim can take such a volume. Its phase shows which volumes the PV controller
/// has seen.
pub const PROBE_PREFIX: &str = "flex-sync-probe-";

/// Returns the finalizer that keeps a claim while the clone with this UID is made.
pub fn clone_finalizer(uid: &str) -> String {
    format!("{CLONE_FINALIZER}{uid}")
}

/// Returns the finalizer that keeps a claim while the VolumeSnapshot with this UID is made.
pub fn source_finalizer(uid: &str) -> String {
    format!("{SOURCE_FINALIZER}{uid}")
}

/// Returns the name of the content of the VolumeSnapshot with this UID.
pub fn content_name(uid: &str) -> String {
    format!("{CONTENT_PREFIX}{uid}")
}

/// The UID of the claim in the claimRef of a drained volume. No claim has this UID.
pub const NO_CLAIM_UID: &str = "00000000-0000-0000-0000-000000000000";
/// On PersistentVolumes: the name of the Secret for deleting the volume. The external provisioner uses it, too.
pub const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// On PersistentVolumes: the namespace of that Secret.
pub const DELETION_SECRET_NAMESPACE: &str = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// On Jobs, pods and published capacities: the program that manages the object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On Jobs and their pods: Velero leaves out objects with this label and the value `true`. A restored Job would run again.
pub const LABEL_NO_BACKUP: &str = "velero.io/exclude-from-backup";
/// Prefix of the names of pool requests.
pub const POOL_REQUEST_PREFIX: &str = "pool-";
/// The finalizer that Kubernetes adds to every claim, and removes when no pod uses the claim.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Returns the name of the volume with this volume id.
pub fn pv_name(volume_id: &str) -> String {
    format!("{PV_PREFIX}{volume_id}")
}

/// Reads a comma-separated list, as annotations hold it.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

//! A PersistentVolume as decisions see it ([`Volume`]), and how it was made ([`Provenance`]).

use super::phase::VolumePhase;
use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::volume_mode::VolumeMode;
use flex_contract::{names, quantity, volume as contract_volume};
use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume, PersistentVolumeSpec, PersistentVolumeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::failed_run::FailedRun;
use super::foreign_metadata::ForeignMetadata;
use super::moved_in::MovedIn;
use super::node_list::nodes;
use super::volume_notes::{AppliedAttributes, FailedExpansion, PendingModification};
use crate::config::classes::Identity;
use crate::config::effective_config::EffectiveConfig;
use crate::config::modify::Attributes;
use crate::limits;
use crate::object::{ObjectName, is_dns_name};
use crate::run::failure::LastFailure;
use crate::text::{cut, name};

/// The provenance of a volume: all that its delete run needs when claim, class and config are gone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Provenance {
    /// The effective config, from which the recipe follows.
    #[serde(flatten)]
    pub effective_config: EffectiveConfig,
    /// The node where the volume was made, if its deletion must be there. Annotations leave out `None`.
    #[serde(default, rename = "node", skip_serializing_if = "Option::is_none", with = "crate::optional_text")]
    pub origin_node: Option<String>,
    /// The place of the storage, if the volume has moved in.
    #[serde(default, rename = "moved-in", skip_serializing_if = "Option::is_none")]
    pub moved_in: Option<MovedIn>,
    /// The UID of the cluster that has adopted the volume; `None` in records of earlier versions, and if it is not known.
    /// The writes set it, so that no decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The attempts with other configs. What they may have left is deleted with the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherAttempt>,
}

/// The attempts for a volume with another config than that of the volume. They may have left storage of the same id.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OtherAttempt {
    /// The effective config, from which the recipe follows.
    #[serde(flatten)]
    pub effective_config: EffectiveConfig,
    /// The nodes where they may have left storage, if it is on nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

impl Provenance {
    /// Adds attempts with other configs, as far as the volume has room for them.
    #[must_use]
    pub fn with_others(mut self, others: impl Iterator<Item = OtherAttempt>) -> Self {
        for other in others {
            self.others.push(other);
            if serde_json::to_string(&self).is_ok_and(|text| text.len() > limits::RECIPE) {
                self.others.pop();
            }
        }
        self
    }

    /// Returns the provenance of a volume that the cluster of an orchestrator adopts.
    #[must_use]
    pub fn of_cluster(&self, identity: &Identity) -> Self {
        let cluster = Some(identity.cluster.clone()).filter(|cluster| !cluster.is_empty());
        Provenance { cluster, ..self.clone() }
    }
}

/// The claim to which a volume refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The name of the claim.
    pub name: ObjectName,
    /// The UID of the claim; `None` while the volume is reserved by name alone.
    pub uid: Option<String>,
}

/// A PersistentVolume, with the fields that the orchestrator needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// The name of the volume.
    pub name: String,
    /// The UID of the volume.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The time of the volume's creation, in seconds since 1970.
    pub created: i64,
    /// The volume is terminating.
    pub terminating: bool,
    /// The time since when the volume is terminating or released, in seconds since 1970.
    pub unneeded_since: Option<i64>,
    /// All finalizers of the volume.
    pub finalizers: Vec<String>,
    /// The orchestrator instance on its label.
    pub instance: Option<String>,
    /// The provisioner, by the annotation of Kubernetes.
    pub provisioned_by: Option<String>,
    /// The UID of the volume's claim, by the orchestrator's annotation.
    pub claim_uid: Option<String>,
    /// The volume id, which all later runs get as `CLAIM_UUID`.
    pub volume_id_annotation: Option<String>,
    /// The nodes where the volume was made, and where earlier attempts may have left storage. Only the orchestrator
    /// writes them, and they count only with the adoption mark.
    pub nodes_with_storage: Vec<String>,
    /// The provenance, as the annotation holds it. Only the orchestrator writes it.
    pub provenance: Option<String>,
    /// The adoption mark, in the status, where only the orchestrator can write.
    pub adoption_mark: Option<String>,
    /// The hash of a pooled volume, which counts only with the adoption mark
    /// ([`names::LABEL_POOL`](flex_contract::names::LABEL_POOL)).
    pub pool: Option<String>,
    /// The size for which the volume is or was pooled, in bytes.
    pub pool_size: Option<u64>,
    /// The reasons why the volume is not bound.
    pub quarantine: Option<String>,
    /// The last failed delete run.
    pub last_failure: Option<LastFailure>,
    /// The last failed expand run.
    pub last_failed_expansion: Option<Box<FailedExpansion>>,
    /// The attributes of the volume, as the annotation holds them; `None` for a volume without.
    pub applied: Option<Box<AppliedAttributes>>,
    /// The modify runs since the last that succeeded: the last that began, and the last that failed.
    pub pending_modification: Option<Box<PendingModification>>,
    /// The VolumeAttributesClass in the spec, which only CSI volumes can have.
    pub attributes_class: Option<String>,
    /// A run failed, and somebody asks for the next attempt at once.
    pub retry: bool,
    /// An admin has set the abandon annotation.
    pub abandoned: bool,
    /// The phase of the volume.
    pub phase: VolumePhase,
    /// The reclaim policy.
    pub reclaim_policy: ReclaimPolicy,
    /// The class of the volume.
    pub class: String,
    /// The size in bytes, or the reason why it cannot be read.
    pub size: Result<u64, String>,
    /// The access modes of the volume.
    pub access_modes: Vec<String>,
    /// The volume mode.
    pub volume_mode: VolumeMode,
    /// The claim to which the volume refers.
    pub claim_ref: Option<Reference>,
    /// The former claim of a volume that refers to no claim any more.
    pub former_claim: Option<ObjectName>,
    /// The kind of the volume source.
    pub source_kind: Option<&'static str>,
    /// The kubelet must resize the file system after an expansion: CSI volumes, and file systems on local block
    /// devices.
    pub kubelet_finishes_resize: bool,
    /// The path on a node, for `hostPath` and `local`.
    pub path: Option<String>,
    /// The selector of the nodes that reach the volume.
    pub affinity: Option<Box<NodeSelector>>,
    /// The bytes of the fields that the image wrote and the orchestrator does not overwrite.
    pub foreign_metadata_bytes: usize,
    /// The fields on which other programs would act, until the volume is adopted.
    pub foreign_metadata: Option<Box<ForeignMetadata>>,
}

impl Volume {
    /// Checks whether the volume has the orchestrator's finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::VOLUME_FINALIZER)
    }

    /// Returns the namespace of the claim to which the volume is or was bound; empty without a claim.
    pub fn user_namespace(&self) -> &str {
        self.claim_ref.as_ref().map(|reference| reference.name.namespace.as_str()).unwrap_or_default()
    }

    /// Checks whether the volume is of a provisioner of this name, alone or with the kind of the volume's source.
    pub fn is_provisioned_by(&self, name: &str) -> bool {
        let rest = self.provisioned_by.as_deref().and_then(|by| by.strip_prefix(name));
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('/') == Some(self.source_kind.unwrap_or("unknown"))
        })
    }

    /// Checks whether the volume was made for this orchestrator. A volume of a class whose own provisioner a config
    /// replaces has the name of that provisioner; in a pool, or drained from one, it has no claim either.
    pub fn belongs_to(&self, identity: &Identity) -> bool {
        let instance = self.instance.as_deref().is_none_or(|instance| instance == identity.instance);
        let ours = self.is_provisioned_by(&identity.provisioner);
        let has_record = self.claim_uid.is_some() || self.provenance.is_some();
        instance && (ours || (self.instance.is_some() && has_record))
    }

    /// Checks whether the orchestrator wrote the provenance on this volume. The annotation alone proves nothing, because
    /// everybody who may create volumes can write one. Only the orchestrator can write the status. The mark of another
    /// volume, which a backup tool restores, proves nothing either.
    pub fn is_adopted(&self) -> bool {
        has_own_mark(self.provenance.as_deref(), self.adoption_mark.as_deref(), &self.uid)
    }

    /// Returns the place of the storage, if the volume has moved in. Provenance on a volume that was never adopted does
    /// not count.
    pub fn moved_in(&self) -> Option<MovedIn> {
        let record = self.provenance.as_deref().filter(|_| self.is_adopted())?;
        serde_json::from_str::<Provenance>(record).ok()?.moved_in
    }

    /// Returns the node in the provenance of an adopted volume. Reads nothing else of it.
    pub fn origin_node(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Record {
            #[serde(default, with = "crate::optional_text")]
            node: Option<String>,
        }
        let record = self.provenance.as_deref().filter(|_| self.is_adopted())?;
        serde_json::from_str::<Record>(record).ok()?.node
    }

    /// Returns the attempts with other configs, by the provenance of an adopted volume. Few volumes have any.
    pub fn others(&self) -> Vec<OtherAttempt> {
        let record = self.provenance.as_deref().filter(|text| text.contains("\"others\"") && self.is_adopted());
        let provenance = record.and_then(|text| serde_json::from_str::<Provenance>(text).ok());
        provenance.map(|provenance| provenance.others).unwrap_or_default()
    }

    /// Returns the path of storage that has moved in; empty for storage that the image made.
    pub fn moved_in_path(&self) -> String {
        self.moved_in().map(|moved_in| moved_in.path).unwrap_or_default()
    }

    /// Checks that a volume that has moved in leads to the place that its provenance names. No run works on another
    /// place.
    ///
    /// # Errors
    /// If the volume leads elsewhere. The text is for the admin.
    pub fn verify_place(&self) -> Result<(), String> {
        match (&self.path, self.moved_in()) {
            (Some(path), Some(moved_in)) if *path != moved_in.path => {
                let named = &moved_in.path;
                Err(format!("the volume's record names the storage at {named}, but the volume leads to {path}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the attributes of the volume. An annotation on a volume that was never adopted does not count.
    pub fn attributes(&self) -> &Attributes {
        static NONE: Attributes = Attributes { class: None, parameters: std::collections::BTreeMap::new() };
        self.applied.as_ref().filter(|_| self.is_adopted()).map_or(&NONE, |applied| &applied.attributes)
    }

    /// Returns the UID in the claimRef. A volume that is reserved by name alone has none.
    pub fn claim_ref_uid(&self) -> Option<&str> {
        self.claim_ref.as_ref()?.uid.as_deref()
    }

    /// Returns the hash of a pooled volume, if the volume is one. Only the orchestrator writes it, when it adopts a
    /// volume.
    pub fn pool_hash(&self) -> Option<&str> {
        self.pool.as_deref().filter(|_| self.claim_ref_uid().is_none() && self.is_adopted())
    }

    /// Checks whether a restored volume was pooled when it was saved. Its label may be gone already.
    pub fn was_pooled(&self) -> bool {
        self.pool_size.is_some() && self.claim_uid.is_none() && !self.is_adopted()
    }

    /// Checks whether the volume was pooled and is drained.
    pub fn is_drained(&self) -> bool {
        self.claim_ref_uid() == Some(names::NO_CLAIM_UID)
    }

    /// Checks whether somebody has removed the claimRef: an adopted volume had one, with a UID.
    pub fn claim_ref_was_removed(&self) -> bool {
        self.is_adopted() && self.claim_ref_uid().is_none()
    }

    /// Checks whether nothing has changed since an earlier state of the volume, but what Kubernetes writes when it releases it.
    pub fn is_unchanged_since(&self, earlier: &Volume) -> bool {
        let as_then = Volume {
            resource_version: earlier.resource_version.clone(),
            phase: earlier.phase.clone(),
            unneeded_since: earlier.unneeded_since,
            ..self.clone()
        };
        as_then == *earlier
    }

    /// Checks whether a delete run that was decided on an earlier state of the volume may begin: the volume is unchanged, and has
    /// the same version, or a phase by which its claim is gone. If somebody has restored etcd, the claim is back with its UID.
    pub fn may_be_deleted_as(&self, decided_on: &Volume) -> bool {
        let is_same = self.resource_version == decided_on.resource_version;
        (is_same || self.phase.is_claim_gone()) && self.is_unchanged_since(decided_on)
    }

    /// Returns the number of the delete run that is due or in progress.
    pub fn delete_attempt(&self) -> u32 {
        let failure = self.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
        failure.map_or(1, |failure| failure.attempt.saturating_add(1))
    }

    /// Returns the last failed run of each operation: of deletion, expansion and modification.
    pub fn failed_runs(&self) -> impl Iterator<Item = FailedRun<'_>> {
        let deletion = self.last_failure.as_ref().map(FailedRun::from);
        let expansion = self.last_failed_expansion.as_deref().map(FailedRun::from);
        let modification = self.pending_modification.as_deref().filter(|note| note.failed_attempt > 0);
        deletion.into_iter().chain(expansion).chain(modification.map(FailedRun::from))
    }

    /// Returns the id that the volume's runs get. A volume that was never adopted may have only its claim's UID.
    pub fn volume_id(&self) -> Option<&str> {
        self.volume_id_annotation.as_deref().or(self.claim_uid.as_deref())
    }
}

/// The prefix of an adoption mark.
const MARK: &str = "Adopted-";

/// Checks whether an id can be part of a Job's name, as each UID can. A volume that somebody else made may have any
/// other id.
pub fn is_run_id(id: &str) -> bool {
    const UID: usize = 36;
    id.len() <= UID && !id.contains('.') && is_dns_name(id)
}

/// Returns the adoption mark of a provenance on the volume with a UID. A volume that is created again has another UID, so
/// that no mark can be restored.
pub fn adoption_mark(provenance: &str, uid: &str) -> String {
    format!("{MARK}{}", crate::object::hash(format!("{uid}\n{provenance}").as_bytes()))
}

/// Checks whether a mark is that of a provenance on the volume with a UID.
fn has_own_mark(provenance: Option<&str>, mark: Option<&str>, uid: &str) -> bool {
    provenance.zip(mark).is_some_and(|(provenance, mark)| mark == adoption_mark(provenance, uid))
}

/// The annotations that the orchestrator writes over any earlier value.
const OWN: &[&str] = &[
    names::CLAIM_UID,
    names::VOLUME_ID,
    names::NODES,
    names::PROVENANCE,
    names::PROVISIONED_BY,
    names::BOUND_BY_CONTROLLER,
    names::QUARANTINE,
    names::LABEL_POOL,
    names::POOL_SIZE,
    names::JOB_CLAIM,
    names::ATTRIBUTES,
    names::MODIFICATION,
    names::FAILURE,
    names::RETRY,
    names::ABANDON,
];

fn foreign_metadata_bytes(metadata: &ObjectMeta, spec: &PersistentVolumeSpec) -> usize {
    let pairs = metadata.annotations.iter().chain(&metadata.labels).flatten();
    let pairs = pairs.filter(|(key, _)| !OWN.contains(&key.as_str())).map(|(key, value)| key.len() + value.len());
    let finalizers = metadata.finalizers.iter().flatten().map(String::len);
    let kind = contract_volume::volume_source_kind(spec);
    let source = kind.map_or(0, |kind| serde_json::json!(spec)[kind].to_string().len());
    pairs.chain(finalizers).sum::<usize>() + source
}

/// Returns the fields on which other programs would act; `None` for an adopted volume, and if there are none.
fn foreign_metadata(volume: &PersistentVolume) -> Option<Box<ForeignMetadata>> {
    let provenance = volume.metadata.annotations.as_ref().and_then(|all| all.get(names::PROVENANCE));
    let mark = volume.status.as_ref().and_then(|status| status.reason.as_deref());
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    if has_own_mark(provenance.map(String::as_str), mark, uid) {
        return None;
    }
    Some(ForeignMetadata::on(volume)).filter(|written| *written != ForeignMetadata::default()).map(Box::new)
}

/// Returns the time since when no claim needs a volume. If a volume has no time of its release, it was released before
/// Kubernetes recorded such times.
fn unneeded_since(volume: &PersistentVolume) -> Option<i64> {
    let deleted = volume.metadata.deletion_timestamp.as_ref();
    let status = volume.status.as_ref().filter(|status| phase(status).is_claim_gone());
    let released =
        status.map(|status| status.last_phase_transition_time.as_ref().or(volume.metadata.creation_timestamp.as_ref()));
    [deleted, released.flatten()].into_iter().flatten().map(|time| crate::run::view::seconds(Some(time))).min()
}

fn phase(status: &PersistentVolumeStatus) -> VolumePhase {
    status.phase.as_deref().unwrap_or_default().into()
}

impl From<&PersistentVolume> for Volume {
    fn from(volume: &PersistentVolume) -> Self {
        let metadata = &volume.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key).cloned());
        let short = |key: &str| annotation(key).as_deref().map(name);
        let label = |key: &str| Some(name(metadata.labels.as_ref()?.get(key)?));
        let spec = volume.spec.clone().unwrap_or_default();
        let size = match spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")) {
            Some(size) => quantity::bytes(&size.0).map_err(|error| error.to_string()),
            None => Err("the volume has no size".into()),
        };
        let foreign_metadata_bytes = foreign_metadata_bytes(metadata, &spec);
        let adoption_mark = volume.status.as_ref().and_then(|status| status.reason.as_deref()).map(name);
        // A longer path counts as too much metadata, so that no such volume is adopted.
        let path = spec.host_path.as_ref().map(|s| &s.path).or_else(|| spec.local.as_ref().map(|s| &s.path));
        let path = path.map(|path| cut(path, limits::VOLUME).into_owned());
        let last_failure = annotation(names::FAILURE).and_then(|text| LastFailure::read(&text));
        let last_failed_expansion =
            annotation(names::EXPANSION).and_then(|text| FailedExpansion::read(&text)).map(Box::new);
        let pending_modification =
            annotation(names::MODIFICATION).and_then(|text| PendingModification::read(&text)).map(Box::new);
        let has_failed = last_failure.is_some() || last_failed_expansion.is_some() || pending_modification.is_some();
        Volume {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: crate::run::view::seconds(metadata.creation_timestamp.as_ref()),
            terminating: metadata.deletion_timestamp.is_some(),
            unneeded_since: unneeded_since(volume),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            instance: label(names::LABEL_INSTANCE),
            provisioned_by: short(names::PROVISIONED_BY),
            claim_uid: short(names::CLAIM_UID),
            volume_id_annotation: short(names::VOLUME_ID),
            nodes_with_storage: nodes(annotation(names::NODES).as_deref()),
            provenance: annotation(names::PROVENANCE),
            adoption_mark,
            pool: label(names::LABEL_POOL),
            pool_size: annotation(names::POOL_SIZE).and_then(|size| size.parse().ok()),
            quarantine: annotation(names::QUARANTINE).map(|text| cut(&text, limits::VERDICT).into_owned()),
            retry: annotation(names::RETRY).is_some() && has_failed,
            last_failure,
            last_failed_expansion,
            applied: annotation(names::ATTRIBUTES).and_then(|text| AppliedAttributes::read(&text)).map(Box::new),
            pending_modification,
            attributes_class: spec.volume_attributes_class_name.as_deref().filter(|class| !class.is_empty()).map(name),
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            phase: volume.status.as_ref().map(phase).unwrap_or_default(),
            reclaim_policy: spec.persistent_volume_reclaim_policy.as_deref().unwrap_or("Retain").into(),
            class: name(spec.storage_class_name.as_deref().unwrap_or_default()),
            size,
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            volume_mode: VolumeMode::of(spec.volume_mode.as_deref()),
            claim_ref: spec.claim_ref.as_ref().map(|reference| Reference {
                name: ObjectName::new(
                    name(reference.namespace.as_deref().unwrap_or_default()),
                    name(reference.name.as_deref().unwrap_or_default()),
                ),
                uid: reference.uid.as_deref().filter(|uid| !uid.is_empty()).map(name),
            }),
            former_claim: annotation(names::JOB_CLAIM)
                .filter(|_| spec.claim_ref.is_none())
                .and_then(|claim| claim.parse().ok()),
            source_kind: contract_volume::volume_source_kind(&spec),
            kubelet_finishes_resize: spec.csi.is_some()
                || spec.local.as_ref().is_some_and(|local| local.fs_type.is_some()),
            path,
            affinity: spec.node_affinity.and_then(|affinity| affinity.required).map(Box::new),
            foreign_metadata_bytes,
            foreign_metadata: foreign_metadata(volume),
        }
    }
}

//! A PersistentVolume as decisions see it ([`Volume`]), and how it was made ([`Provenance`]).

use contract::request::Operation;
use contract::{names, quantity, volume as contract_volume};
use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume, PersistentVolumeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::volume_notes::{AppliedAttributes, FailedExpansion, PendingModification};
use crate::attributes::Attributes;
use crate::config::record::Record;
use crate::model::claim::MOST_TAKEN;
use crate::model::claim::volume_ids;
use crate::object::{ObjectName, is_dns_name};
use crate::run::batch;
use crate::run::failure::LastFailure;

/// How a volume was made: all that its delete run needs, when claim, class and config are gone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Provenance {
    /// The recipe.
    #[serde(flatten)]
    pub record: Record,
    /// The node where it was made, if that matters for its deletion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// The claim that a volume refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The claim's name.
    pub name: ObjectName,
    /// Its UID; empty while the volume is only reserved.
    pub uid: String,
}

/// A PersistentVolume, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// It is being deleted.
    pub deleting: bool,
    /// Since when it is terminating, or released, in seconds since 1970.
    pub leaving: Option<i64>,
    /// All finalizers on it.
    pub finalizers: Vec<String>,
    /// The orchestrator instance on its label.
    pub instance: Option<String>,
    /// Who provisioned it, by the field's annotation.
    pub provisioned_by: Option<String>,
    /// Who claims it, by our annotation.
    pub claim_uuid: Option<String>,
    /// What every later run gets as `CLAIM_UUID`.
    pub volume_id: Option<String>,
    /// Where it was made, and where attempts before may have left something; written by the
    /// orchestrator alone, and worth nothing without its mark.
    pub nodes: Vec<String>,
    /// How it was made, as it stands on it; written by the orchestrator alone.
    pub provenance: Option<String>,
    /// The mark of its adoption, in the status, where only the orchestrator can write.
    pub mark: Option<String>,
    /// What it is, if it is kept ready for claims: worth nothing without the mark.
    pub pool: Option<String>,
    /// The size for which it is, or was, kept ready, in bytes.
    pub pool_size: Option<u64>,
    /// Why it is not bound.
    pub quarantine: Option<String>,
    /// The batch that its delete run was noted for.
    pub batch: Option<String>,
    /// What the last failed delete run said.
    pub last_failure: Option<LastFailure>,
    /// What the last failed expand run said.
    pub expansion: Option<Box<FailedExpansion>>,
    /// The attributes that it has, as they stand on it; none for a volume without.
    pub applied: Option<Box<AppliedAttributes>>,
    /// What is noted of modify runs until one has succeeded.
    pub modification: Option<Box<PendingModification>>,
    /// The VolumeAttributesClass in its spec, which only CSI volumes can have.
    pub attributes_class: Option<String>,
    /// An admin lets go of it.
    pub abandoned: bool,
    /// Its phase.
    pub phase: String,
    /// `Delete`, `Retain` or `Recycle`.
    pub reclaim_policy: String,
    /// Its class.
    pub class: String,
    /// Its size in bytes, or why it cannot be read.
    pub size: Result<u64, String>,
    /// Its access modes.
    pub access_modes: Vec<String>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// The claim that it refers to.
    pub claim_ref: Option<Reference>,
    /// The claim that it had, of a volume that refers to none any more.
    pub had_claim: Option<ObjectName>,
    /// The kind of its source.
    pub source: Option<&'static str>,
    /// When it has grown, the kubelet has to do its part: CSI, and file systems on local block devices.
    pub ends_on_node: bool,
    /// The path on a node, for `hostPath` and `local`.
    pub path: Option<String>,
    /// The nodes that reach it.
    pub affinity: Option<Box<NodeSelector>>,
    /// The bytes of what its image wrote on it beside what the orchestrator writes over.
    pub burden: usize,
    /// What others would act on, until it is adopted.
    pub written: Option<Box<super::written::Written>>,
}

impl Volume {
    /// Our finalizer is on it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::VOLUME_FINALIZER)
    }

    /// The namespace of the claim that it is, or was, bound to; empty where there is none.
    pub fn user_namespace(&self) -> &str {
        self.claim_ref.as_ref().map(|reference| reference.name.namespace.as_str()).unwrap_or_default()
    }

    /// It was made for this orchestrator.
    pub fn is_of(&self, identity: &crate::config::classes::Identity) -> bool {
        let instance = self.instance.as_deref().is_none_or(|instance| instance == identity.instance);
        let ours = self.provisioned_by.as_deref() == Some(identity.provisioner.as_str());
        instance && (ours || (self.instance.is_some() && self.claim_uuid.is_some()))
    }

    /// Its provenance was written by the orchestrator. The annotation alone says nothing: whoever may
    /// create volumes can write one. The status is beyond them.
    pub fn is_adopted(&self) -> bool {
        self.provenance.as_deref().is_some_and(|provenance| self.mark.as_deref() == Some(&mark(provenance)))
    }

    /// The attributes that it has. What somebody else has noted on a volume that was never adopted says nothing.
    pub fn attributes(&self) -> &Attributes {
        static NONE: Attributes = Attributes { class: String::new(), parameters: std::collections::BTreeMap::new() };
        self.applied.as_ref().filter(|_| self.is_adopted()).map_or(&NONE, |applied| &applied.attributes)
    }

    /// What it is as one that is kept ready for claims, if it is: the orchestrator alone writes that on what it adopts.
    pub fn ready(&self) -> Option<&str> {
        let reserved = self.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_empty());
        self.pool.as_deref().filter(|_| reserved && self.is_adopted())
    }

    /// It was kept ready, and is given to nobody any more.
    pub fn is_drained(&self) -> bool {
        self.claim_ref.as_ref().is_some_and(|reference| reference.uid == names::NOBODY)
    }

    /// Somebody has taken its claim off it: an adopted volume had one, with a UID.
    pub fn is_taken_off(&self) -> bool {
        self.is_adopted() && self.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_empty())
    }

    /// The number of the delete run that is due or under way.
    pub fn delete_attempt(&self) -> u32 {
        let failure = self.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
        failure.map_or(1, |failure| failure.attempt.saturating_add(1))
    }

    /// The batch that its delete run is to be in: of all attempts the first may.
    pub fn batch(&self) -> Option<&String> {
        self.batch.as_ref().filter(|_| self.delete_attempt() == 1)
    }

    /// The id that its runs get. A volume that was never adopted may bear no more than its claim's UID:
    /// then its name tells which of the claim's ids is its own.
    pub fn id(&self) -> Option<&str> {
        self.volume_id.as_deref().or_else(|| {
            let uid = self.claim_uuid.as_deref()?;
            let named = self.name.strip_prefix(names::PV_PREFIX).filter(|named| *named != uid);
            named.filter(|named| volume_ids(uid, MOST_TAKEN).any(|id| id == *named)).or(Some(uid))
        })
    }
}

/// What a mark begins with.
const MARK: &str = "Adopted-";

/// Whether an id can stand in the name of a Job, as every UID can. A volume that somebody else made may bear any other.
pub fn is_run_id(id: &str) -> bool {
    const UID: usize = 36;
    id.len() <= UID && !id.contains('.') && is_dns_name(id)
}

/// The mark that goes with a provenance.
pub fn mark(provenance: &str) -> String {
    format!("{MARK}{}", crate::object::hash(provenance.as_bytes()))
}

/// Annotations that the orchestrator writes, over whatever stood there.
const OWN: &[&str] = &[
    names::CLAIM_UUID,
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
    names::BATCH,
    names::FAILURE,
    names::ABANDON,
];

fn burden(metadata: &ObjectMeta, spec: &PersistentVolumeSpec) -> usize {
    let pairs = metadata.annotations.iter().chain(&metadata.labels).flatten();
    let pairs = pairs.filter(|(key, _)| !OWN.contains(&key.as_str())).map(|(key, value)| key.len() + value.len());
    let finalizers = metadata.finalizers.iter().flatten().map(String::len);
    let kind = contract_volume::source_kind(spec);
    let source = kind.map_or(0, |kind| serde_json::json!(spec)[kind].to_string().len());
    pairs.chain(finalizers).sum::<usize>() + source
}

/// Since when nobody needs a volume any more. A volume that does not say when it was released was so before Kubernetes
/// noted it.
fn leaving(volume: &PersistentVolume) -> Option<i64> {
    let deleted = volume.metadata.deletion_timestamp.as_ref();
    let status = volume.status.as_ref().filter(|status| is_released(status.phase.as_deref().unwrap_or_default()));
    let released =
        status.map(|status| status.last_phase_transition_time.as_ref().or(volume.metadata.creation_timestamp.as_ref()));
    [deleted, released.flatten()].into_iter().flatten().map(|time| crate::run::view::seconds(Some(time))).min()
}

/// The claim that a volume was bound to is gone, by its phase.
fn is_released(phase: &str) -> bool {
    matches!(phase, "Released" | "Failed")
}

impl From<&PersistentVolume> for Volume {
    fn from(volume: &PersistentVolume) -> Self {
        let metadata = &volume.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key).cloned());
        let spec = volume.spec.clone().unwrap_or_default();
        let size = match spec.capacity.as_ref().and_then(|capacity| capacity.get("storage")) {
            Some(size) => quantity::bytes(&size.0).map_err(|error| error.to_string()),
            None => Err("the volume has no size".into()),
        };
        let burden = burden(metadata, &spec);
        let mark = volume.status.as_ref().and_then(|status| status.reason.clone());
        let adopted = mark.as_deref().is_some_and(|mark| mark.starts_with(MARK));
        let path =
            spec.host_path.as_ref().map(|s| s.path.clone()).or_else(|| spec.local.as_ref().map(|s| s.path.clone()));
        Volume {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: crate::run::view::seconds(metadata.creation_timestamp.as_ref()),
            deleting: metadata.deletion_timestamp.is_some(),
            leaving: leaving(volume),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            instance: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE).cloned()),
            provisioned_by: annotation(names::PROVISIONED_BY),
            claim_uuid: annotation(names::CLAIM_UUID),
            volume_id: annotation(names::VOLUME_ID),
            nodes: crate::model::claim::nodes(annotation(names::NODES).as_deref()),
            provenance: annotation(names::PROVENANCE),
            mark,
            pool: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_POOL).cloned()),
            pool_size: annotation(names::POOL_SIZE).and_then(|size| size.parse().ok()),
            quarantine: annotation(names::QUARANTINE),
            batch: annotation(names::BATCH).filter(|name| batch::operation(name) == Some(Operation::Delete)),
            last_failure: annotation(names::FAILURE).and_then(|text| LastFailure::read(&text)),
            expansion: annotation(names::EXPANSION).and_then(|text| FailedExpansion::read(&text)).map(Box::new),
            applied: annotation(names::ATTRIBUTES).and_then(|text| AppliedAttributes::read(&text)).map(Box::new),
            modification: annotation(names::MODIFICATION)
                .and_then(|text| PendingModification::read(&text))
                .map(Box::new),
            attributes_class: spec.volume_attributes_class_name.clone().filter(|name| !name.is_empty()),
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            phase: volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
            reclaim_policy: spec.persistent_volume_reclaim_policy.clone().unwrap_or_else(|| "Retain".into()),
            class: spec.storage_class_name.clone().unwrap_or_default(),
            size,
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            volume_mode: spec.volume_mode.clone().unwrap_or_else(|| "Filesystem".into()),
            claim_ref: spec.claim_ref.as_ref().map(|reference| Reference {
                name: ObjectName::new(
                    reference.namespace.clone().unwrap_or_default(),
                    reference.name.clone().unwrap_or_default(),
                ),
                uid: reference.uid.clone().unwrap_or_default(),
            }),
            had_claim: annotation(names::JOB_CLAIM)
                .filter(|_| spec.claim_ref.is_none())
                .and_then(|claim| claim.parse().ok()),
            source: contract_volume::source_kind(&spec),
            ends_on_node: spec.csi.is_some() || spec.local.as_ref().is_some_and(|local| local.fs_type.is_some()),
            path,
            affinity: spec.node_affinity.and_then(|affinity| affinity.required).map(Box::new),
            burden,
            written: Some(super::written::Written::on(volume))
                .filter(|written| !adopted && *written != super::written::Written::default())
                .map(Box::new),
        }
    }
}

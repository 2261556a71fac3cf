//! A PersistentVolumeClaim as decisions see it ([`Claim`]), with its stamp and the ids of its volumes.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::request::Operation;
use contract::{names, quantity};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::data_source::DataSource;
use super::keep::{self, Kept};
use super::modification::Modification;
use super::resize::Resize;
use super::volume::Volume;
use crate::limits;
use crate::object::{ObjectName, is_dns_name};
use crate::run::batch;
use crate::run::failure::{LastFailure, MOST_ATTEMPTS};
use crate::text::cut;

/// After so much time a write has been carried out, or never is.
pub const UNSURE: Duration = Duration::from_secs(120);

/// No claim loses so many volumes to others: beyond, somebody has to look.
pub const MOST_TAKEN: u32 = 16;

/// The volume id of a claim's runs after so many of its volumes were taken: the claim's own UID, then
/// UUIDs that follow from it, so that nobody can make a claim's runs mean the volume of another.
pub fn volume_id(uid: &str, taken: u32) -> String {
    use sha2::Digest;
    if taken == 0 {
        return uid.to_owned();
    }
    let digest = sha2::Sha256::digest(format!("{uid}/{taken}"));
    let bytes = digest.as_slice().first_chunk::<16>().expect("SHA-256 has 32 bytes");
    uuid::Uuid::new_v8(*bytes).to_string()
}

/// All volume ids of a claim, the current one last.
pub fn volume_ids(uid: &str, taken: u32) -> impl DoubleEndedIterator<Item = String> {
    (0..=taken.min(MOST_TAKEN)).map(move |taken| volume_id(uid, taken))
}

/// How many volumes of a claim were taken, by its annotations.
pub fn taken(annotations: Option<&BTreeMap<String, String>>) -> u32 {
    let number = annotations.and_then(|all| all.get(names::TAKEN)?.parse().ok());
    number.unwrap_or(0).min(MOST_TAKEN)
}

/// Who writes the claim's half of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Binding {
    /// The orchestrator, as soon as the PV controller knows the volume, or the PV controller itself: who is faster.
    #[default]
    Direct,
    /// The PV controller alone.
    Controller,
}

/// What the orchestrator writes on a claim before anything else is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The UID of the claim that it was written for.
    pub uuid: String,
    /// When the attempt began.
    pub ts: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The recipe of the attempt, as `namespace/name@hash`.
    pub config: String,
    /// How many volumes of the claim were taken before.
    pub taken: u32,
    /// The batch that the attempt is to be in; none for a run of its own.
    pub batch: Option<String>,
}

/// A claim, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// The class that it asks for; none for claims without one.
    pub class: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// The finalizers on it.
    pub finalizers: Vec<String>,
    /// These are all of them.
    pub finalizers_whole: bool,
    /// The stamp on it, ours or not.
    pub stamp: Option<Stamp>,
    /// The orchestrator instance that wrote the stamp.
    pub instance: Option<String>,
    /// Nodes where an attempt may have left something.
    pub nodes: Vec<String>,
    /// What the last failed run said.
    pub last_failure: Option<LastFailure>,
    /// An admin lets go of what cannot be deleted.
    pub abandoned: bool,
    /// The node that the scheduler selected.
    pub selected_node: Option<String>,
    /// The provisioner that the PV controller asks to serve it.
    pub storage_provisioner: Option<String>,
    /// Its phase.
    pub phase: String,
    /// The volume that it is bound to, or asks for.
    pub volume_name: Option<String>,
    /// Binding is complete.
    pub bind_completed: bool,
    /// The size asked for, in bytes, or why it cannot be read.
    pub size: Result<u64, String>,
    /// The size that its status says it has, in bytes.
    pub capacity: Option<u64>,
    /// What its status says of a resize under way.
    pub resize: Option<Box<Resize>>,
    /// What its status says of the attributes that its volume has, or is to have.
    pub modification: Option<Box<Modification>>,
    /// The access modes asked for.
    pub access_modes: Vec<String>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// It selects volumes by labels.
    pub has_selector: bool,
    /// It bears the label of those that ask for a volume to be kept ready.
    pub for_pool: bool,
    /// What it wants to be filled from.
    pub data_source: Option<DataSource>,
    /// The class of volume attributes that it asks for.
    pub attributes_class: Option<String>,
    /// Who created it, where the admission policy is installed.
    pub created_by: String,
    /// The groups of its creator.
    pub created_by_groups: Vec<String>,
    /// Labels and annotations, only while it is not bound.
    pub metadata: BTreeMap<String, String>,
    /// How much of these is kept, and of who created it.
    pub words: Kept,
    /// What its labels, annotations and finalizers take, as it came.
    pub burden: usize,
}

impl Claim {
    /// The stamp, if it was written for this very claim.
    pub fn own_stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref().filter(|stamp| stamp.uuid == self.uid && (1..MOST_ATTEMPTS).contains(&stamp.attempt))
    }

    /// Another orchestrator stamped it, so that it is the other's alone: the finalizer is the same, the Jobs and
    /// recipes that go with it are not known here.
    pub fn is_of_another(&self, instance: &str) -> bool {
        self.own_stamp().is_some() && self.instance.as_deref().is_some_and(|other| other != instance)
    }

    /// It asks for a volume to be kept ready: only where the orchestrator is, whose namespace this is, the label says so.
    pub fn is_request(&self, namespace: &str) -> bool {
        self.for_pool && self.name.namespace == namespace
    }

    /// The batch that its attempt is to be in.
    pub fn batch(&self) -> Option<&String> {
        self.own_stamp().and_then(|stamp| stamp.batch.as_ref())
    }

    /// What its runs get as `CLAIM_UUID`.
    pub fn id(&self) -> String {
        volume_id(&self.uid, self.taken())
    }

    /// That, and what runs before got.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = String> {
        volume_ids(&self.uid, self.taken())
    }

    fn taken(&self) -> u32 {
        self.own_stamp().map_or(0, |stamp| stamp.taken)
    }

    /// A volume says that it is the claim's, or nothing.
    pub fn is_named_by(&self, volume: &Volume) -> bool {
        volume.claim_uuid.as_ref().is_none_or(|uuid| *uuid == self.uid || *uuid == self.id())
    }

    /// Our finalizer is on it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::CLAIM_FINALIZER)
    }

    /// The claim that it is to be a copy of.
    pub fn original(&self) -> Option<&ObjectName> {
        self.data_source.as_ref().and_then(DataSource::claim)
    }

    /// It is bound, or about to be: nothing is owed to it any more.
    pub fn is_bound(&self) -> bool {
        self.volume_name.is_some() && (self.bind_completed || self.phase == "Bound")
    }
}

/// The nodes of an annotation, as the orchestrator writes them: what else stands there is not its own.
pub fn nodes(annotation: Option<&str>) -> Vec<String> {
    let nodes = annotation.map(names::list).unwrap_or_default();
    distinct(nodes.into_iter().filter(|node| is_dns_name(node)).take(limits::NODES).collect())
}

/// Each once, in their order.
fn distinct(items: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

impl From<&PersistentVolumeClaim> for Claim {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let metadata = &claim.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key).cloned());
        let spec = claim.spec.clone().unwrap_or_default();
        let list = |text: Option<String>| text.as_deref().map(names::list).unwrap_or_default();
        let requested = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage"));
        let size = match requested {
            Some(requested) => quantity::bytes(&requested.0).map_err(|error| error.to_string()),
            None => Err("the claim asks for no size (spec.resources.requests.storage)".into()),
        };
        let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let named = spec.volume_name.as_ref().is_some_and(|name| !name.is_empty());
        // What was begun goes on from its source, whatever its user writes on the claim afterwards.
        let begun = annotation(names::CLAIM_UUID).is_some_and(|uuid| Some(uuid) == metadata.uid);
        let data_source = match !named && !begun && super::manifest::is_source_dropped(claim) {
            true => Some(DataSource::Dropped),
            false => DataSource::of(&spec, metadata.namespace.as_deref().unwrap_or_default()),
        };
        // What is so heavy is not served, so that nobody is told its words.
        let burden = keep::burden(metadata);
        let heavy = burden > limits::METADATA;
        let words = if phase == "Bound" || heavy { BTreeMap::new() } else { keep::words(metadata) };
        let (finalizers, finalizers_whole) = keep::finalizers(metadata);
        let name = |text: String| cut(&text, limits::NAME).into_owned();
        let claim = Claim {
            name: ObjectName::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: crate::run::view::seconds(metadata.creation_timestamp.as_ref()),
            class: annotation("volume.beta.kubernetes.io/storage-class")
                .or(spec.storage_class_name)
                .filter(|c| !c.is_empty())
                .map(name),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers,
            finalizers_whole,
            stamp: annotation(names::CLAIM_UUID).map(|uuid| Stamp {
                uuid: name(uuid),
                ts: annotation(names::PROVISION_TS).filter(|ts| ts.len() <= limits::TIME).unwrap_or_default(),
                attempt: annotation(names::ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0),
                config: annotation(names::CONFIG)
                    .map(|config| cut(&config, 2 * limits::NAME).into_owned())
                    .unwrap_or_default(),
                taken: taken(metadata.annotations.as_ref()),
                batch: annotation(names::BATCH)
                    .filter(|name| batch::operation(name) == Some(Operation::Provision))
                    .map(name),
            }),
            instance: annotation(names::LABEL_INSTANCE).filter(|instance| is_dns_name(instance)),
            nodes: nodes(annotation(names::NODES).as_deref()),
            last_failure: annotation(names::FAILURE).and_then(|text| LastFailure::read(&text)),
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            selected_node: annotation(names::SELECTED_NODE).filter(|node| is_dns_name(node)),
            storage_provisioner: annotation(names::STORAGE_PROVISIONER)
                .or_else(|| annotation(names::STORAGE_PROVISIONER_BETA))
                .map(name),
            phase,
            volume_name: spec.volume_name.filter(|name| !name.is_empty()).map(name),
            bind_completed: annotation(names::BIND_COMPLETED).is_some(),
            size,
            capacity: claim
                .status
                .as_ref()
                .and_then(|status| quantity::bytes(&status.capacity.as_ref()?.get("storage")?.0).ok()),
            resize: claim.status.as_ref().and_then(Resize::of),
            modification: claim.status.as_ref().and_then(Modification::of),
            access_modes: distinct(spec.access_modes.unwrap_or_default()),
            volume_mode: spec.volume_mode.unwrap_or_else(|| "Filesystem".into()),
            has_selector: spec.selector.is_some(),
            for_pool: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_POOL)).map(String::as_str)
                == Some(names::POOL_REQUEST),
            data_source,
            attributes_class: spec.volume_attributes_class_name.filter(|name| !name.is_empty()),
            created_by: annotation(names::CREATED_BY).unwrap_or_default(),
            created_by_groups: list(annotation(names::CREATED_BY_GROUPS)),
            metadata: words,
            words: Kept::Whole,
            burden,
        };
        if heavy { claim.without_words() } else { claim }
    }
}

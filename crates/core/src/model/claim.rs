//! A PersistentVolumeClaim as decisions see it ([`Claim`]), with its stamp.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::volume_mode::VolumeMode;
use flex_contract::{names, quantity};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::data_source::DataSource;
use super::expand_status::ExpandStatus;
use super::metadata::{self, ClaimMetadata, Finalizers};
use super::modify_status::ModifyStatus;
use super::node_list::{distinct, nodes};
use super::phase::ClaimPhase;
use super::volume::Volume;
use crate::limits;
use crate::object::{ObjectName, is_dns_name};
use crate::run::failure::{LastFailure, MAX_ATTEMPTS};
use crate::text::{cut, name};

/// The time after which a write has certainly succeeded or failed.
pub const WRITE_OUTCOME_AFTER: Duration = Duration::from_secs(120);

/// The party that writes the claim's half of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Binding {
    /// The orchestrator, as soon as the PV controller has seen the volume, or the PV controller if it is faster.
    #[default]
    Direct,
    /// The PV controller alone.
    Controller,
}

/// The text that the orchestrator writes on a claim before it creates anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The UID of the claim for which the stamp was written.
    pub claim_uid: String,
    /// The time when the attempt began.
    pub ts: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The recipe version of the attempt, `namespace/name@hash`.
    pub recipe_version: String,
}

impl Stamp {
    /// Returns the time when the attempt began; `None` if the stamp does not have one.
    pub fn began(&self) -> Option<jiff::Timestamp> {
        self.ts.parse().ok()
    }
}

/// Between the name of a claim that is gone and its UID, in the name of its stand-in. No name in the API has it.
const STAND_IN: char = '#';

/// Checks whether a name is that of a stand-in for a claim that is gone.
pub fn is_stand_in_name(name: &ObjectName) -> bool {
    name.name.contains(STAND_IN)
}

/// The record of a run: a ControllerRevision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// The name of the record.
    pub name: ObjectName,
    /// The UID of the record.
    pub uid: String,
    /// Whether somebody may have had a volume of the claim, and keeps its storage without an object.
    pub had: Had,
}

/// Whether somebody has had a volume of a claim that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Had {
    /// Nobody: the claim was never bound, as a watch has shown to its end.
    Nobody,
    /// No watch has shown enough.
    #[default]
    Unknown,
    /// Somebody: a watch has shown the end of a volume that was bound and had the policy Retain.
    Kept,
}

/// A claim, with the fields that the orchestrator needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The name of the claim.
    pub name: ObjectName,
    /// The UID of the claim.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The time of the claim's creation, in seconds since 1970.
    pub created: i64,
    /// The class that the claim requests; `None` for a claim without a class.
    pub class: Option<String>,
    /// The claim is terminating.
    pub terminating: bool,
    /// The finalizers of the claim.
    pub finalizers: Vec<String>,
    /// `finalizers` is complete.
    pub finalizers_whole: bool,
    /// An attempt has begun, and its volume is neither bound nor undone.
    pub held: bool,
    /// The claim is gone, and stands here for what the run of this record may have made.
    pub record: Option<Box<RecordRef>>,
    /// The stamp of the claim, whoever wrote it.
    pub stamp: Option<Stamp>,
    /// The orchestrator instance that wrote the stamp.
    pub instance: Option<String>,
    /// The nodes where an attempt may have left storage. A copied claim does not take over the nodes of its original.
    pub nodes_with_storage: Vec<String>,
    /// The failure of the last failed run.
    pub last_failure: Option<LastFailure>,
    /// The record of the failed attempts, only while the claim is not bound.
    pub failed_attempts: Option<Box<str>>,
    /// A run failed, and somebody asks for the next attempt at once.
    pub retry: bool,
    /// An admin has set the abandon annotation.
    pub abandoned: bool,
    /// The node that the scheduler selected.
    pub selected_node: Option<String>,
    /// The provisioner that the PV controller has written on the claim.
    pub storage_provisioner: Option<String>,
    /// The phase of the claim.
    pub phase: ClaimPhase,
    /// The volume that the claim is bound to, or requests.
    pub volume_name: Option<String>,
    /// The binding is complete.
    pub bind_completed: bool,
    /// The requested size in bytes, or the reason why it cannot be read.
    pub size: Result<u64, String>,
    /// The size in the claim's status, in bytes.
    pub capacity: Option<u64>,
    /// The resize in progress, by the claim's status.
    pub expand_status: Option<Box<ExpandStatus>>,
    /// The attributes that the volume has or must get, by the claim's status.
    pub modify_status: Option<Box<ModifyStatus>>,
    /// The requested access modes.
    pub access_modes: Vec<String>,
    /// The volume mode.
    pub volume_mode: VolumeMode,
    /// The claim selects volumes by labels.
    pub has_selector: bool,
    /// The claim has the label of pool requests.
    pub for_pool: bool,
    /// The data source of the claim.
    pub data_source: Option<DataSource>,
    /// The VolumeAttributesClass that the claim requests.
    pub attributes_class: Option<String>,
    /// The user who created the claim; empty where the admission policy is not installed.
    pub created_by: String,
    /// The groups of that user.
    pub created_by_groups: Vec<String>,
    /// The labels and annotations, only while the claim is not bound.
    pub metadata: BTreeMap<String, String>,
    /// The part of the labels, annotations and creator that the cache keeps.
    pub kept_metadata: ClaimMetadata,
    /// The memory for the labels, annotations and finalizers of the whole claim, in bytes.
    pub foreign_metadata_bytes: usize,
}

impl Claim {
    /// Returns the stamp, if it was written for this very claim.
    pub fn own_stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref().filter(|stamp| stamp.claim_uid == self.uid && (1..MAX_ATTEMPTS).contains(&stamp.attempt))
    }

    /// Returns the kind of the claim's data source for metrics; empty without one.
    pub fn source_kind(&self) -> &'static str {
        self.data_source.as_ref().map_or("", DataSource::kind)
    }

    /// Checks whether another orchestrator stamped the claim, and so owns it. Both hold claims alike, but the
    /// other's Jobs and recipes are not known here.
    pub fn belongs_to_other_instance(&self, instance: &str) -> bool {
        self.own_stamp().is_some() && self.instance.as_deref().is_some_and(|other| other != instance)
    }

    /// Checks whether the claim is a pool request. The label counts only in the orchestrator's own namespace.
    pub fn is_pool_request(&self, namespace: &str) -> bool {
        self.for_pool && self.name.namespace == namespace
    }

    /// Checks whether the stamped attempt may share a run with those of other claims: the first attempt, and each after a
    /// failure that the image has told. Another failure may be that of all claims in a run which one of them has crashed.
    pub fn may_join_batch(&self) -> bool {
        let Some(stamp) = self.own_stamp().filter(|_| self.data_source.is_none()) else { return false };
        let is_of_last = |failure: &&LastFailure| {
            failure.operation == Operation::Provision && failure.attempt.saturating_add(1) == stamp.attempt
        };
        let last = self.last_failure.as_ref().filter(is_of_last);
        stamp.attempt == 1 || last.is_some_and(LastFailure::was_told_by_image)
    }

    /// Returns the volume id, which the claim's runs get as `CLAIM_UUID`: the claim's UID.
    pub fn volume_id(&self) -> String {
        self.uid.clone()
    }

    /// Checks whether a volume names this claim, or no claim.
    pub fn may_own(&self, volume: &Volume) -> bool {
        volume.claim_uid.as_ref().is_none_or(|uid| *uid == self.uid)
    }

    /// Checks whether an attempt has begun whose volume is neither bound nor undone.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Checks whether the claim is gone, and stands here for what a run may have made.
    pub fn is_stand_in(&self) -> bool {
        self.record.is_some()
    }

    /// Returns the name that the claim has in the API, or had there.
    pub fn api_name(&self) -> ObjectName {
        let name = self.name.name.split_once(STAND_IN).map_or(self.name.name.as_str(), |(name, _)| name);
        ObjectName::new(&self.name.namespace, name)
    }

    /// Returns the stand-in of this claim, which is gone, for what the run of a record may have made. It has the version
    /// of the record.
    pub fn stand_in(self, record: RecordRef, resource_version: &str) -> Self {
        Claim {
            name: ObjectName::new(&self.name.namespace, format!("{}{STAND_IN}{}", self.name.name, self.uid)),
            resource_version: resource_version.to_owned(),
            terminating: true,
            finalizers: Vec::new(),
            held: true,
            record: Some(Box::new(record)),
            phase: ClaimPhase::Pending,
            volume_name: None,
            bind_completed: false,
            finalizers_whole: true,
            ..self
        }
    }

    /// Returns a message about the claim as its readers need it. That about a claim which is gone is on a record, perhaps of many.
    pub fn worded(&self, message: String) -> String {
        match self.is_stand_in() {
            true => format!("claim {}, which is gone: {message}", self.api_name()),
            false => message,
        }
    }

    /// Says how an admin abandons what attempts for the claim may have left.
    pub fn how_to_abandon(&self) -> String {
        let command = match &self.record {
            None => self.name.abandon_command("pvc", names::ABANDON_YES),
            // Others may share the record.
            Some(record) => record.name.abandon_command("controllerrevision", &self.uid),
        };
        format!("run `{command}`")
    }

    /// Returns the claim that this one clones.
    pub fn source_claim(&self) -> Option<&ObjectName> {
        self.data_source.as_ref().and_then(DataSource::claim)
    }

    /// Returns the claim as the cache keeps it. It has the labels and annotations of these keys, and no long texts of
    /// its user.
    pub fn kept(mut self, keys: Vec<String>) -> Self {
        if self.kept_metadata == ClaimMetadata::Nothing {
            return self;
        }
        self.metadata.retain(|key, _| keys.contains(key));
        let pairs = self.metadata.iter().map(|(key, value)| key.len() + value.len());
        let groups = self.created_by_groups.iter().map(String::len);
        let bytes: usize = pairs.chain(groups).map(|bytes| bytes + limits::ENTRY).sum();
        self.kept_metadata = ClaimMetadata::Keys(keys);
        match bytes + self.created_by.len() > limits::CLAIM_METADATA {
            true => self.without_metadata(),
            false => self,
        }
    }

    /// Removes the words from the claim.
    fn without_metadata(self) -> Self {
        Claim {
            metadata: BTreeMap::new(),
            created_by: String::new(),
            created_by_groups: Vec::new(),
            kept_metadata: ClaimMetadata::Nothing,
            ..self
        }
    }

    /// Checks whether the claim has kept all that an image gets of these keys, and its creator.
    pub fn has_metadata_of(&self, keys: &[String]) -> bool {
        match &self.kept_metadata {
            ClaimMetadata::Whole => true,
            ClaimMetadata::Keys(kept) => keys.iter().all(|key| kept.contains(key)),
            ClaimMetadata::Nothing => false,
        }
    }

    /// Checks whether the claim is bound or about to be. It then needs no volume any more.
    pub fn is_bound(&self) -> bool {
        self.volume_name.is_some() && (self.bind_completed || self.phase == ClaimPhase::Bound)
    }

    /// Checks whether the claim is bound to another volume, and not held, so that this one is not its own.
    pub fn has_other_volume(&self, volume: &str) -> bool {
        self.is_bound() && self.volume_name.as_deref() != Some(volume) && !self.is_held()
    }
}

impl From<&PersistentVolumeClaim> for Claim {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let metadata = &claim.metadata;
        let annotation = |key: &str| annotation(metadata, key);
        let spec = claim.spec.clone().unwrap_or_default();
        let list = |text: Option<String>| text.as_deref().map(names::list).unwrap_or_default();
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default().into();
        let stamp = Stamp::of(metadata);
        // A copy of a claim has the stamp of the claim that it was copied from.
        let has_begun = stamp.as_ref().is_some_and(|stamp| Some(&stamp.claim_uid) == metadata.uid.as_ref());
        let (size, data_source) = (requested_size(&spec), data_source(claim, &spec, has_begun));
        // A claim with so much text is not served, so that no image gets its words.
        let foreign_metadata_bytes = metadata::foreign_metadata_bytes(metadata);
        let heavy = foreign_metadata_bytes > limits::METADATA;
        let texts = if phase == ClaimPhase::Bound || heavy { BTreeMap::new() } else { metadata::metadata(metadata) };
        let Finalizers { kept: finalizers, complete: finalizers_whole } = metadata::finalizers(metadata);
        let last_failure = annotation(names::FAILURE).filter(|_| has_begun).and_then(|text| LastFailure::read(&text));
        let claim = Claim {
            name: ObjectName::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: crate::run::view::seconds(metadata.creation_timestamp.as_ref()),
            class: annotation("volume.beta.kubernetes.io/storage-class")
                .or(spec.storage_class_name)
                .filter(|c| !c.is_empty())
                .as_deref()
                .map(name),
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers,
            finalizers_whole,
            held: annotation(names::HELD).is_some_and(|of| Some(of) == metadata.uid),
            record: None,
            stamp,
            instance: annotation(names::LABEL_INSTANCE).filter(|instance| is_dns_name(instance)),
            nodes_with_storage: nodes(annotation(names::NODES).filter(|_| has_begun).as_deref()),
            retry: annotation(names::RETRY).is_some() && last_failure.is_some(),
            last_failure,
            failed_attempts: annotation(names::FAILED_ATTEMPTS)
                .filter(|text| has_begun && phase != ClaimPhase::Bound && text.len() <= limits::FAILED_ATTEMPTS)
                .map(String::into_boxed_str),
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            selected_node: annotation(names::SELECTED_NODE).filter(|node| is_dns_name(node)),
            storage_provisioner: annotation(names::STORAGE_PROVISIONER)
                .or_else(|| annotation(names::STORAGE_PROVISIONER_BETA))
                .as_deref()
                .map(name),
            phase,
            volume_name: spec.volume_name.filter(|name| !name.is_empty()).as_deref().map(name),
            bind_completed: annotation(names::BIND_COMPLETED).is_some(),
            size,
            capacity: claim
                .status
                .as_ref()
                .and_then(|status| quantity::bytes(&status.capacity.as_ref()?.get("storage")?.0).ok()),
            expand_status: claim.status.as_ref().and_then(ExpandStatus::of),
            modify_status: claim.status.as_ref().and_then(ModifyStatus::of),
            access_modes: distinct(spec.access_modes.unwrap_or_default()),
            volume_mode: VolumeMode::of(spec.volume_mode.as_deref()),
            has_selector: spec.selector.is_some(),
            for_pool: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_POOL)).map(String::as_str)
                == Some(names::POOL_REQUEST),
            data_source,
            attributes_class: spec.volume_attributes_class_name.filter(|name| !name.is_empty()).as_deref().map(name),
            created_by: annotation(names::CREATED_BY).unwrap_or_default(),
            created_by_groups: list(annotation(names::CREATED_BY_GROUPS)),
            metadata: texts,
            kept_metadata: ClaimMetadata::Whole,
            foreign_metadata_bytes,
        };
        if heavy { claim.without_metadata() } else { claim }
    }
}

fn annotation(metadata: &ObjectMeta, key: &str) -> Option<String> {
    metadata.annotations.as_ref().and_then(|annotations| annotations.get(key).cloned())
}

impl Stamp {
    /// Reads the stamp of a claim, whoever wrote it.
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let annotation = |key: &str| annotation(metadata, key);
        Some(Stamp {
            claim_uid: name(&annotation(names::CLAIM_UID)?),
            ts: annotation(names::PROVISION_TS)
                .filter(|ts| ts.len() <= limits::TIME && !ts.contains(char::is_control))
                .unwrap_or_default(),
            attempt: annotation(names::ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0),
            recipe_version: annotation(names::RECIPE_VERSION)
                .map(|config| cut(&config, 2 * limits::NAME).into_owned())
                .unwrap_or_default(),
        })
    }
}

/// Reads the size that a claim requests, in bytes.
fn requested_size(spec: &PersistentVolumeClaimSpec) -> Result<u64, String> {
    match spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage")) {
        Some(requested) => quantity::bytes(&requested.0).map_err(|error| error.to_string()),
        None => Err("the claim asks for no size (spec.resources.requests.storage)".into()),
    }
}

/// Reads the data source of a claim. An attempt that has begun keeps its data source, whatever the user writes on the
/// claim afterwards.
fn data_source(claim: &PersistentVolumeClaim, spec: &PersistentVolumeClaimSpec, has_begun: bool) -> Option<DataSource> {
    let metadata = &claim.metadata;
    let named = spec.volume_name.as_ref().is_some_and(|name| !name.is_empty());
    match !named && !has_begun && super::manifest::is_source_dropped(claim) {
        true => Some(DataSource::Dropped),
        false => DataSource::of(spec, metadata.namespace.as_deref().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;

    use super::*;
    use crate::run::state::Cause;

    /// A claim whose failure the image has not told has its next attempt alone.
    #[test]
    fn a_claim_shares_its_first_attempt_and_those_after_a_failure_that_the_image_has_told() {
        let text = "{metadata: {name: a, namespace: team, uid: u}, spec: {}}";
        let new = Claim::from(&crate::config::values::yaml::<PersistentVolumeClaim>(text).unwrap());
        let stamp = Stamp { claim_uid: "u".into(), attempt: 2, ..Stamp::default() };
        let failed = |operation, attempt, reason: &str, message: &str| {
            LastFailure::new(operation, attempt, 1, &Cause::new(reason, message), Reaction::Retry)
        };
        let told = |attempt| failed(Operation::Provision, attempt, "ExitCode", "exit code 75: try again later: off");
        for (what, stamp, last_failure, expected) in [
            ("no attempt", None, None, false),
            ("the first attempt", Some(Stamp { attempt: 1, ..stamp.clone() }), None, true),
            ("after a failure that the image has told", Some(stamp.clone()), Some(told(1)), true),
            ("nobody has told why", Some(stamp.clone()), None, false),
            ("after an earlier failure", Some(Stamp { attempt: 3, ..stamp.clone() }), Some(told(1)), false),
            (
                "the image has crashed",
                Some(stamp.clone()),
                Some(failed(Operation::Provision, 1, "ExitCode", "exit code 101")),
                false,
            ),
            (
                "a clean-up has failed",
                Some(stamp.clone()),
                Some(failed(Operation::Delete, 1, "ExitCode", "exit code 75: try again later")),
                false,
            ),
        ] {
            let claim = Claim { stamp, last_failure, ..new.clone() };
            assert_eq!(claim.may_join_batch(), expected, "{what}");
            let data_source = Some(DataSource::Claim(ObjectName::new("team", "source")));
            assert!(!Claim { data_source, ..claim }.may_join_batch(), "a copy");
        }
    }

    #[test]
    fn a_stamp_has_no_time_that_no_variable_of_a_run_can_hold() {
        let annotations = [(names::CLAIM_UID, "u"), (names::PROVISION_TS, "2026\0")];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        assert_eq!(Stamp::of(&metadata).unwrap().ts, "");
    }
}

//! The record of a provision run ([`Record`]), in the orchestrator's own namespace. It says what the run may have made, and
//! for whom, when its claims are gone.
//!
//! A record counts only while it names its own UID ([`names::ARMED`]): the orchestrator writes that before it opens the run.
//! So a record that arrives late, or that a backup tool copies, is nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flex_contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::claim::{Claim, Had, RecordRef};
use super::data_source::DataSource;
use super::node_list::nodes;
use super::snapshot::api;
use crate::object::{ObjectName, hash};
use crate::run::failure::LastFailure;
use crate::run::member;
use crate::text::cut;

/// The beginning of the names of all records. The name of the run's Job follows, and a hash of the claims.
const PREFIX: &str = "flex-record-";
/// The longest message in the note of a claim that is gone, in bytes. It has no characters that JSON escapes: all annotations of an
/// object may have 256 KiB.
const MESSAGE: usize = 200;
/// The longest request to try again, in bytes.
const RETRY: usize = 64;
/// The most claims of a record whose notes say how their attempts asked. With more, each deletion asks by its own request.
const FEW: usize = 8;

/// Returns the name of the record of a run, by the name of its Job and by its content. So a record with this name has this
/// content.
pub fn record_name(job: &str, data: &Value) -> String {
    format!("{PREFIX}{job}-{}", &hash(data.to_string().as_bytes())[..8])
}

/// Checks whether an object with this name is a record.
pub fn is_record(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The claims of a record.
#[derive(Debug, Default, PartialEq)]
struct Members {
    /// The claims by their UIDs, as they were when the run began.
    claims: BTreeMap<String, Claim>,
    /// The number of claims that cannot be read.
    unreadable: usize,
}

/// What is noted of a claim that is gone.
#[derive(Clone, Debug, PartialEq)]
struct Note {
    nodes: Vec<String>,
    last_failure: Option<LastFailure>,
    failed_attempts: Option<Box<str>>,
    /// The request to try again that the last run has answered.
    retried: Option<String>,
}

impl Note {
    fn read(text: &str) -> Option<Self> {
        let note: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        Some(Note {
            nodes: nodes(note.get(names::NODES).map(String::as_str)),
            last_failure: note.get(names::FAILURE).and_then(|text| LastFailure::read(text)),
            failed_attempts: note.get(names::FAILED_ATTEMPTS).cloned().map(String::into_boxed_str),
            retried: note.get(names::RETRY).cloned(),
        })
    }
}

/// The claims of a record that an admin has abandoned, once they are gone.
#[derive(Clone, Debug, PartialEq)]
enum Abandoned {
    All,
    Claims(BTreeSet<String>),
}

/// The record of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The name of the record.
    pub name: ObjectName,
    /// The UID of the record.
    pub uid: String,
    /// The resourceVersion of the record.
    pub resource_version: String,
    /// The run may have begun.
    pub armed: bool,
    /// The time when the record was armed last, RFC 3339.
    armed_at: String,
    notes: BTreeMap<String, Note>,
    settled: BTreeSet<String>,
    kept: BTreeSet<String>,
    abandoned: Abandoned,
    /// The request of somebody to try again what has failed for claims that are gone.
    retry: Option<String>,
    members: Arc<Members>,
}

impl Record {
    /// Reads a record. Returns `None` for an object whose name is not that of a record. Content in another form, as another
    /// version or somebody else writes it, counts as a claim that cannot be read.
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Option<Self> {
        let manifests = data["claims"].as_array();
        let mut members = Members { unreadable: usize::from(manifests.is_none()), ..Members::default() };
        for manifest in manifests.into_iter().flatten() {
            match serde_json::from_value::<PersistentVolumeClaim>(manifest.clone()).map(|claim| Claim::from(&claim)) {
                Ok(claim) if !claim.uid.is_empty() => drop(members.claims.insert(claim.uid.clone(), claim)),
                _ => members.unreadable += 1,
            }
        }
        Self::of(metadata, Arc::new(members))
    }

    /// Returns the record with other metadata of the same object.
    pub fn with_metadata(&self, metadata: &ObjectMeta) -> Option<Self> {
        Self::of(metadata, self.members.clone())
    }

    fn of(metadata: &ObjectMeta, members: Arc<Members>) -> Option<Self> {
        let name = ObjectName::of(metadata);
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let uid = metadata.uid.clone()?;
        let note = |(key, text): (&String, &String)| {
            Some((key.strip_prefix(names::GONE_CLAIM)?.to_owned(), Note::read(text)?))
        };
        let set = |text: &String| names::list(text).into_iter().collect::<BTreeSet<_>>();
        is_record(&name.name).then(|| Record {
            // Somebody's finalizer may hold a record that was settled.
            armed: annotation(names::ARMED) == Some(&uid) && metadata.deletion_timestamp.is_none(),
            armed_at: annotation(names::JOB_REQUESTED).cloned().unwrap_or_default(),
            notes: metadata.annotations.iter().flatten().filter_map(note).collect(),
            settled: annotation(names::SETTLED).map(set).unwrap_or_default(),
            kept: annotation(names::KEPT).map(set).unwrap_or_default(),
            abandoned: match annotation(names::ABANDON) {
                Some(text) if text == names::ABANDON_YES => Abandoned::All,
                text => Abandoned::Claims(text.map(set).unwrap_or_default()),
            },
            retry: annotation(names::RETRY).map(|text| cut(text, RETRY).into_owned()),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            name,
            uid,
            members,
        })
    }

    /// Returns the content of a record for these claims, as they are stamped for the run.
    pub fn data<'a>(claims: impl Iterator<Item = &'a Claim>) -> Value {
        json!({ "claims": claims.map(manifest).collect::<Vec<_>>() })
    }

    /// Estimates the bytes that a claim adds to the content of a record.
    pub fn weight(claim: &Claim) -> usize {
        manifest(claim).to_string().len()
    }

    /// Returns the UIDs of all claims of the run.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        self.members.claims.keys()
    }

    /// Returns the UIDs of the claims that need the record.
    pub fn unsettled(&self) -> impl Iterator<Item = &String> {
        self.uids().filter(|uid| self.needs(uid))
    }

    /// Checks whether a claim needs the record.
    pub fn needs(&self, uid: &str) -> bool {
        self.names(uid) && !self.kept.contains(uid)
    }

    /// Returns the claims that are gone and for which the record says only that somebody may keep what their attempts have made.
    pub fn kept(&self) -> impl Iterator<Item = &Claim> {
        self.members.claims.values().filter(|claim| self.names(&claim.uid) && self.kept.contains(&claim.uid))
    }

    /// Checks whether the record counts for a claim.
    fn names(&self, uid: &str) -> bool {
        self.armed && self.members.claims.contains_key(uid) && !self.settled.contains(uid)
    }

    /// Checks whether an admin has abandoned what attempts for a claim that is gone may have left.
    pub fn is_abandoned(&self, uid: &str) -> bool {
        match &self.abandoned {
            Abandoned::All => true,
            Abandoned::Claims(uids) => uids.contains(uid),
        }
    }

    /// Checks whether a claim is the only one of the run.
    pub fn is_only(&self, uid: &str) -> bool {
        self.members.unreadable == 0 && self.uids().all(|own| own == uid)
    }

    /// Returns the number of claims that cannot be read. They keep the record.
    pub fn unreadable(&self) -> usize {
        self.members.unreadable
    }

    /// Returns a claim of the run, as it was when the run began, with what was noted since.
    pub fn claim(&self, uid: &str) -> Option<Claim> {
        let mut claim = self.recorded(uid)?.clone();
        claim.abandoned = self.is_abandoned(uid);
        if let Some(Note { nodes, last_failure, failed_attempts, .. }) = self.notes.get(uid).cloned() {
            claim.nodes_with_storage = nodes;
            claim.last_failure = last_failure;
            claim.failed_attempts = failed_attempts.or(claim.failed_attempts);
        }
        Some(claim)
    }

    /// Returns a claim of the run, as it was when the run began.
    pub fn recorded(&self, uid: &str) -> Option<&Claim> {
        self.members.claims.get(uid)
    }

    /// Returns all claims of the run, as they were when it began.
    pub fn all_recorded(&self) -> impl Iterator<Item = &Claim> {
        self.members.claims.values()
    }

    /// Checks whether somebody asks to try again what has failed for a claim that is gone. Each request counts once.
    pub fn asks_for_retry(&self, uid: &str) -> bool {
        let retried = self.notes.get(uid).and_then(|note| note.retried.as_ref());
        self.retry.is_some() && self.retry.as_ref() != retried
    }

    /// Checks whether something was noted of a claim that is gone.
    pub fn has_note(&self, uid: &str) -> bool {
        self.notes.contains_key(uid)
    }

    /// Returns the time when the record was armed last, RFC 3339.
    pub fn armed_at(&self) -> &str {
        &self.armed_at
    }

    /// Returns the order of a claim's records: by their attempts, whose numbers are not used again, and then by the time when
    /// their runs may have begun.
    pub fn order(&self, uid: &str) -> (u32, &str, u64) {
        let stamp = self.recorded(uid).and_then(Claim::own_stamp);
        (stamp.map_or(0, |stamp| stamp.attempt), &self.armed_at, self.version())
    }

    /// Returns the resourceVersion as a number; 0 if it is none.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    /// Checks whether a claim needs an older record no more, because this one says all that the older says: the same recipe
    /// and no fewer nodes.
    pub fn replaces(&self, older: &Record, uid: &str) -> bool {
        let (Some(own), Some(other)) = (self.recorded(uid), older.recorded(uid)) else { return false };
        let recipe = |claim: &Claim| claim.own_stamp().map(|stamp| stamp.recipe_version.clone());
        recipe(own) == recipe(other)
            && other.nodes_with_storage.iter().all(|node| own.nodes_with_storage.contains(node))
    }

    /// Returns the Job of the batch in which an attempt for a claim may have run; `None` for a run of its own.
    pub fn batch(&self, uid: &str) -> Option<ObjectName> {
        let (job, _) = self.name.name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        member::operation(job)?;
        let (namespace, _) = self.recorded(uid)?.own_stamp()?.recipe_version.split_once('/')?;
        Some(ObjectName::new(namespace, job))
    }

    /// Returns the reference to the record.
    pub fn reference(&self) -> RecordRef {
        RecordRef { name: self.name.clone(), uid: self.uid.clone(), had: Had::Unknown }
    }

    /// Returns the value of [`names::SETTLED`] when these claims need the record no more; `None` if no claim needs it then.
    pub fn settled_with(&self, uids: &BTreeSet<String>) -> Option<String> {
        let settled: Vec<&str> = self.settled.union(uids).map(String::as_str).collect();
        let rest = self.uids().any(|uid| !self.settled.contains(uid) && !uids.contains(uid));
        (rest || self.members.unreadable > 0).then(|| settled.join(","))
    }

    /// Returns the value of [`names::KEPT`] when somebody may keep what attempts for a claim have made.
    pub fn kept_with(&self, uid: &str) -> String {
        let new = (!self.kept.contains(uid)).then_some(uid);
        self.kept.iter().map(String::as_str).chain(new).collect::<Vec<_>>().join(",")
    }

    /// Returns the name and the value of the annotation that notes a claim that is gone, when these annotations of it have
    /// changed; a change to null removes one.
    pub fn note(&self, claim: &Claim, changes: &Value) -> (String, String) {
        let mut note: BTreeMap<&str, String> = annotations_of(claim)
            .into_iter()
            .filter(|(key, _)| [names::FAILURE, names::FAILED_ATTEMPTS, names::NODES].contains(key))
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let is_answered = changes.get(names::RETRY).is_some();
        let retried = self.notes.get(&claim.uid).and_then(|note| note.retried.as_ref());
        let retried = if is_answered { self.retry.as_ref() } else { retried };
        for (key, value) in changes.as_object().into_iter().flatten() {
            match value.as_str() {
                Some(value) => note.insert(key, value.to_owned()),
                None => note.remove(key.as_str()),
            };
        }
        if let Some(retried) = retried {
            note.insert(names::RETRY, retried.clone());
        }
        if let Some(failure) = note.get_mut(names::FAILURE)
            && let Some(short) = LastFailure::read(failure)
        {
            let message = cut(&short.message, MESSAGE).replace(['"', '\\'], "'").replace(char::is_control, " ");
            *failure = json!(LastFailure { message, ..short }).to_string();
        }
        if self.members.claims.len() > FEW {
            note.remove(names::FAILED_ATTEMPTS);
        }
        (format!("{}{}", names::GONE_CLAIM, claim.uid), json!(note).to_string())
    }
}

/// Returns a claim as Kubernetes has it, with all that its deletion needs.
fn manifest(claim: &Claim) -> Value {
    let name = claim.api_name();
    let words = claim.metadata.iter().filter(|(key, _)| !key.starts_with("flex-provisioner.io/"));
    let mut annotations = json!(words.collect::<BTreeMap<_, _>>());
    for (key, value) in annotations_of(claim) {
        if let Some(value) = value {
            annotations[key] = json!(value);
        }
    }
    let created = jiff::Timestamp::from_second(claim.created).unwrap_or_default();
    let source = match &claim.data_source {
        Some(DataSource::Claim(of)) => Some((None, "PersistentVolumeClaim", of)),
        Some(DataSource::Snapshot(of)) => Some((Some(api::GROUP), "VolumeSnapshot", of)),
        Some(DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped) | None => None,
    };
    let source = source.map(
        |(group, kind, of)| json!({ "apiGroup": group, "kind": kind, "namespace": of.namespace, "name": of.name }),
    );
    let size = claim.size.as_ref().ok().map(|size| json!({ "storage": flex_contract::quantity::quantity(*size) }));
    let labels = claim.for_pool.then(|| json!({ names::LABEL_POOL: names::POOL_REQUEST }));
    json!({
        "metadata": {
            "namespace": name.namespace, "name": name.name, "uid": claim.uid, "creationTimestamp": created.to_string(),
            "annotations": annotations, "labels": labels,
        },
        "spec": {
            "storageClassName": claim.class, "accessModes": claim.access_modes, "volumeMode": claim.volume_mode.as_str(),
            "resources": { "requests": size }, "dataSourceRef": source,
            "volumeAttributesClassName": claim.attributes_class,
        },
    })
}

/// Returns the annotations of the orchestrator on a claim, and those of Kubernetes that it reads.
fn annotations_of(claim: &Claim) -> Vec<(&'static str, Option<String>)> {
    let nodes = (!claim.nodes_with_storage.is_empty()).then(|| claim.nodes_with_storage.join(","));
    let groups = (!claim.created_by_groups.is_empty()).then(|| claim.created_by_groups.join(","));
    let mut annotations = vec![
        (names::LABEL_INSTANCE, claim.instance.clone()),
        (names::NODES, nodes),
        (names::FAILURE, claim.last_failure.as_ref().map(|failure| json!(failure).to_string())),
        (names::FAILED_ATTEMPTS, claim.failed_attempts.as_deref().map(str::to_owned)),
        (names::SELECTED_NODE, claim.selected_node.clone()),
        (names::STORAGE_PROVISIONER, claim.storage_provisioner.clone()),
        (names::CREATED_BY, Some(claim.created_by.clone()).filter(|user| !user.is_empty())),
        (names::CREATED_BY_GROUPS, groups),
    ];
    if let Some(stamp) = &claim.stamp {
        annotations.extend([
            (names::CLAIM_UID, Some(stamp.claim_uid.clone())),
            (names::PROVISION_TS, Some(stamp.ts.clone())),
            (names::ATTEMPT, Some(stamp.attempt.to_string())),
            (names::RECIPE_VERSION, Some(stamp.recipe_version.clone())),
        ]);
    }
    annotations
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

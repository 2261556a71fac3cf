//! A VolumeSnapshot ([`Snapshot`]), VolumeSnapshotContent ([`Content`]) and VolumeSnapshotClass ([`SnapshotClass`]) as
//! decisions see them.

pub mod api;

use flex_contract::policy::ReclaimPolicy;
use flex_contract::volume_mode::VolumeMode;
use flex_contract::{names, quantity};

use self::api::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::config::classes::Identity;
use crate::config::effective_config::EffectiveConfig;
use crate::limits;
use crate::model::metadata::{self, Finalizers};
use crate::model::volume::is_run_id;
use crate::object::ObjectName;
use crate::run::failure::{LastFailure, MAX_ATTEMPTS};
use crate::run::view::seconds;
use crate::status_reason::message_of;
use crate::text::{cut, name};

/// The capability with which a config declares snapshots.
pub const CAPABILITY: &str = crate::config::capability::SNAPSHOT;

/// The parameter of a VolumeSnapshotClass that names a StorageClass. The image of that class deletes snapshots that
/// this orchestrator did not make.
pub const STORAGE_CLASS: &str = "storage-class";

/// The source of a VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// The volume of a claim in the same namespace.
    Claim(String),
    /// A content that somebody made.
    Content(String),
    /// Neither or both. The API server refuses that.
    Nothing,
}

/// A VolumeSnapshot, with the fields that the orchestrator needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The name of the VolumeSnapshot.
    pub name: ObjectName,
    /// The UID of the object.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The VolumeSnapshot is terminating.
    pub terminating: bool,
    /// The finalizers of the VolumeSnapshot.
    pub finalizers: Vec<String>,
    /// `finalizers` is complete.
    pub finalizers_whole: bool,
    /// The class of the content.
    pub class: Option<String>,
    /// The source of the VolumeSnapshot.
    pub of: Of,
    /// The status of the VolumeSnapshot.
    pub status: Status,
}

/// The status of a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The name of its content.
    pub content: Option<String>,
    /// The snapshot is ready to be restored.
    pub ready: Option<bool>,
    /// The time when the snapshot was made, in seconds since 1970.
    pub made_at: Option<i64>,
    /// The smallest size that a claim must request, in bytes.
    pub size: Option<u64>,
    /// The last error.
    pub error: Option<String>,
}

impl Snapshot {
    /// Checks whether the VolumeSnapshot has the orchestrator's finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::SNAPSHOT_FINALIZER)
    }

    /// Returns the name of the content, whether it exists or not.
    pub fn content(&self) -> Option<String> {
        match &self.of {
            Of::Claim(_) => Some(names::content_name(&self.uid)),
            Of::Content(name) => Some(name.clone()),
            Of::Nothing => None,
        }
    }

    /// Returns the claim of which the snapshot is made.
    pub fn claim(&self) -> Option<ObjectName> {
        match &self.of {
            Of::Claim(name) => Some(ObjectName::new(&self.name.namespace, name)),
            Of::Content(_) | Of::Nothing => None,
        }
    }
}

/// The provenance of a snapshot: all that its deletion and a restore need when volume, class and config are gone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SnapshotProvenance {
    /// The effective config, from which the recipe follows.
    #[serde(flatten)]
    pub effective_config: EffectiveConfig,
    /// The node where the snapshot was made, if that matters. Annotations leave out `None`.
    #[serde(default, rename = "node", skip_serializing_if = "Option::is_none", with = "crate::optional_text")]
    pub origin_node: Option<String>,
    /// The volume id of the snapshot's volume.
    pub volume_id: String,
    /// The name of that volume.
    pub pv_name: String,
    /// The size of that volume, in bytes.
    pub size: u64,
    /// The mode of that volume; empty if nobody knows it.
    pub volume_mode: String,
    /// The UID of the content that got this provenance; `None` in records of earlier versions. A content that a backup
    /// tool creates again has another UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_uid: Option<String>,
}

/// A VolumeSnapshotContent, with the fields that the orchestrator needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The time of the content's creation, in seconds since 1970.
    pub created: i64,
    /// The content is terminating.
    pub terminating: bool,
    /// All finalizers of the content.
    pub finalizers: Vec<String>,
    /// The orchestrator instance on its label.
    pub instance: Option<String>,
    /// The driver of the class.
    pub driver: String,
    /// The deletion policy.
    pub policy: ReclaimPolicy,
    /// The handle of an existing snapshot; `None` for a snapshot that is to be made.
    pub handle: Option<String>,
    /// The handle in the status.
    pub status_handle: Option<String>,
    /// The VolumeSnapshot of the content.
    pub snapshot: ObjectName,
    /// The UID of that VolumeSnapshot; `None` until it is bound.
    pub snapshot_uid: Option<String>,
    /// The mode of the snapshot's volume.
    pub volume_mode: Option<VolumeMode>,
    /// The class of the content.
    pub class: Option<String>,
    /// The number of the last attempt, from 1.
    pub attempt: u32,
    /// The provenance, as the annotation holds it.
    pub provenance: Option<String>,
    /// The last failed run.
    pub last_failure: Option<LastFailure>,
    /// A run failed, and somebody asks for the next attempt at once.
    pub retry: bool,
    /// An admin has set the abandon annotation.
    pub abandoned: bool,
    /// The snapshot is ready to be restored.
    pub ready: bool,
    /// The time when the snapshot was made, in seconds since 1970.
    pub made_at: Option<i64>,
    /// The smallest size that a claim must request, in bytes.
    pub size: Option<u64>,
    /// The last error in the status.
    pub error: Option<String>,
}

impl Content {
    /// Checks whether the content belongs to the orchestrator's driver, and to no other instance.
    pub fn is_ours(&self, identity: &Identity) -> bool {
        self.driver == identity.provisioner
            && self.instance.as_ref().is_none_or(|instance| *instance == identity.instance)
    }

    /// Checks whether the content has the orchestrator's finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::SNAPSHOT_FINALIZER)
    }

    /// Checks whether the content has any finalizer that the orchestrator removes.
    pub fn is_kept(&self) -> bool {
        self.has_finalizer() || self.finalizers.iter().any(|finalizer| finalizer == names::CONTENT_FINALIZER)
    }

    /// Returns the snapshot id; empty if nothing names it. For a snapshot that the orchestrator made, this is the UID of
    /// the VolumeSnapshot.
    pub fn id(&self) -> &str {
        self.handle.as_deref().unwrap_or(self.made_for())
    }

    /// Returns the UID of the VolumeSnapshot for which the content was made; empty if nothing names it. Some backup tools
    /// lose the UID in the reference. Then the name of the content has it.
    fn made_for(&self) -> &str {
        self.snapshot_uid.as_deref().or_else(|| self.uid_in_name()).unwrap_or_default()
    }

    /// Returns the UID of the VolumeSnapshot in the name of a content that the orchestrator made.
    fn uid_in_name(&self) -> Option<&str> {
        self.name.strip_prefix(names::CONTENT_PREFIX).filter(|uid| is_run_id(uid))
    }

    /// Returns the id with which a restore finds the snapshot. For a snapshot of another driver this is the handle in
    /// the status.
    pub fn source_id(&self) -> &str {
        let foreign = self.provenance.is_none() && self.handle.is_none();
        self.status_handle.as_deref().filter(|_| foreign).unwrap_or(self.id())
    }

    /// Returns the handle that the snapshot run handed back, if it handed back one.
    pub fn handed_back(&self) -> Option<&str> {
        let own = self.provenance.is_some() && self.handle.is_none();
        self.status_handle.as_deref().filter(|handle| own && *handle != self.id())
    }

    /// Returns the id that the storage gave to a snapshot of this orchestrator, if it gave one. A content that is created
    /// again, with the annotations of the former one, has that id in its spec. Only a snapshot without an id of the storage
    /// has the UID of its VolumeSnapshot there.
    pub fn storage_id(&self) -> Option<&str> {
        let uids = [self.uid_in_name(), Some(self.made_for())];
        let is_of_storage = |handle: &&str| !handle.is_empty() && !uids.contains(&Some(*handle));
        let written = self.handle.as_deref().filter(|_| self.provenance.is_some()).filter(is_of_storage);
        written.or(self.handed_back())
    }

    /// Checks whether an id of the snapshot is too long for a run. Then the content has only its beginning.
    pub fn has_long_id(&self) -> bool {
        [self.id(), self.source_id()].into_iter().chain(self.storage_id()).any(|id| id.len() > limits::HANDLE)
    }

    /// Returns the id by which the Jobs of the content are found. A handle that somebody wrote may be no valid name.
    pub fn run_id(&self) -> &str {
        match self.handle {
            Some(_) => &self.uid,
            None => self.made_for(),
        }
    }

    /// Returns the provenance of the snapshot.
    pub fn made_by(&self) -> Option<SnapshotProvenance> {
        serde_json::from_str(self.provenance.as_deref()?).ok()
    }

    /// Checks whether a backup tool may have created the content, as it was saved. The provenance names the content that
    /// got it, and a content that is created again has another UID, whatever else the tool restores. A record of an
    /// earlier version names no content. Then only a status and a bound VolumeSnapshot prove something. A recorded failure
    /// proves nothing: a later attempt may have succeeded after the backup.
    pub fn may_be_restored(&self) -> bool {
        if self.provenance.is_none() || self.handle.is_some() {
            return false;
        }
        match self.made_by().and_then(|made_by| made_by.content_uid) {
            Some(uid) => uid != self.uid,
            None => !self.ready || self.snapshot_uid.is_none(),
        }
    }

    /// Returns what to do with a content that may be restored.
    pub fn remedy_of_restored(&self) -> String {
        let handle = match self.handed_back().unwrap_or(self.id()) {
            "" => "the id by which the storage knows it",
            id => id,
        };
        format!(
            "to use the stored snapshot, create a VolumeSnapshotContent with `snapshotHandle: {handle}`; if nobody needs it, delete what is stored by hand; then {}, and delete VolumeSnapshotContent {}",
            self.how_to_abandon(),
            self.name
        )
    }

    /// Says how an admin abandons what runs have stored.
    pub fn how_to_abandon(&self) -> String {
        let name = ObjectName::new("", &self.name);
        format!("run `{}`", name.abandon_command("volumesnapshotcontent", names::ABANDON_YES))
    }

    /// Checks whether a run that reads the source may be in progress or follow.
    pub fn reads_source(&self) -> bool {
        !self.ready && self.handle.is_none()
    }
}

/// A VolumeSnapshotClass in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotClass {
    /// The name of the object.
    pub name: String,
    /// The driver of the class.
    pub driver: String,
    /// The deletion policy.
    pub policy: ReclaimPolicy,
    /// The class is the default of its driver.
    pub default: bool,
    /// The StorageClass whose config deletes snapshots that this orchestrator did not make.
    pub storage_class: Option<String>,
}

impl From<&VolumeSnapshot> for Snapshot {
    fn from(snapshot: &VolumeSnapshot) -> Self {
        let metadata = &snapshot.metadata;
        let source = &snapshot.spec.source;
        let status = snapshot.status.clone().unwrap_or_default();
        let Finalizers { kept: finalizers, complete: finalizers_whole } = metadata::finalizers(metadata);
        let name = |text: &String| name(text);
        Snapshot {
            name: ObjectName::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers,
            finalizers_whole,
            class: snapshot.spec.volume_snapshot_class_name.as_ref().filter(|class| !class.is_empty()).map(name),
            of: match (&source.persistent_volume_claim_name, &source.volume_snapshot_content_name) {
                (Some(claim), None) => Of::Claim(name(claim)),
                (None, Some(content)) => Of::Content(name(content)),
                _ => Of::Nothing,
            },
            status: Status {
                content: status.bound_volume_snapshot_content_name.as_ref().map(name),
                ready: status.ready_to_use,
                made_at: status
                    .creation_time
                    .and_then(|at| at.parse::<jiff::Timestamp>().ok())
                    .map(|at| at.as_second()),
                size: status.restore_size.and_then(|size| quantity::bytes(&size).ok()),
                error: status.error.map(|error| message_of(error.message.unwrap_or_default())),
            },
        }
    }
}

/// Bounds the handle of a snapshot. A handle that is cut is still longer than any that a run may get.
fn handle(text: &str) -> String {
    cut(text, 2 * limits::HANDLE).into_owned()
}

impl From<&VolumeSnapshotContent> for Content {
    fn from(content: &VolumeSnapshotContent) -> Self {
        let metadata = &content.metadata;
        let (spec, reference) = (&content.spec, &content.spec.volume_snapshot_ref);
        let status = content.status.clone().unwrap_or_default();
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
        let name = |text: &String| name(text);
        let attempt = annotation(names::ATTEMPT).and_then(|attempt| attempt.parse().ok()).unwrap_or(0);
        let last_failure = annotation(names::FAILURE).and_then(|text| LastFailure::read(&text));
        Content {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: seconds(metadata.creation_timestamp.as_ref()),
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            instance: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE).map(name)),
            driver: name(&spec.driver),
            policy: spec.deletion_policy.as_str().into(),
            handle: spec.source.snapshot_handle.as_ref().map(|text| handle(text)),
            status_handle: status.snapshot_handle.as_ref().map(|text| handle(text)),
            snapshot: ObjectName::new(name(&reference.namespace), name(&reference.name)),
            snapshot_uid: reference.uid.as_ref().filter(|uid| !uid.is_empty()).map(name),
            volume_mode: spec.source_volume_mode.as_deref().map(VolumeMode::from),
            class: spec.volume_snapshot_class_name.as_ref().map(name),
            attempt: if attempt < MAX_ATTEMPTS { attempt } else { 0 },
            provenance: annotation(names::PROVENANCE),
            retry: annotation(names::RETRY).is_some() && last_failure.is_some(),
            last_failure,
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            ready: status.ready_to_use == Some(true),
            made_at: status.creation_time.map(|at| at.div_euclid(1_000_000_000)),
            size: status.restore_size.and_then(|size| u64::try_from(size).ok()),
            error: status.error.map(|error| message_of(error.message.unwrap_or_default())),
        }
    }
}

impl From<&VolumeSnapshotClass> for SnapshotClass {
    fn from(class: &VolumeSnapshotClass) -> Self {
        let annotation = |key: &str| class.metadata.annotations.as_ref().and_then(|all| all.get(key));
        SnapshotClass {
            name: class.metadata.name.clone().unwrap_or_default(),
            driver: class.driver.clone(),
            policy: class.deletion_policy.as_str().into(),
            default: annotation(names::DEFAULT_SNAPSHOT_CLASS).is_some_and(|value| value == "true"),
            storage_class: class.parameters.as_ref().and_then(|all| all.get(STORAGE_CLASS).cloned()),
        }
    }
}

//! Snapshots: what is kept of each VolumeSnapshot ([`Snapshot`]), VolumeSnapshotContent ([`Content`]) and
//! VolumeSnapshotClass ([`Class`]); which content a VolumeSnapshot gets, and what its status says ([`bind`]); and what
//! is stored for a content and taken away again ([`decide`]).
//!
//! The division is that of Kubernetes. What [`bind`] does, the snapshot-controller does for CSI volumes; what [`decide`]
//! does, a sidecar of the driver does there. So for CSI volumes [`bind`] does nothing, and for all others the two agree on
//! every write: the content bears the name under which the snapshot-controller looks for it.

pub mod api;
pub mod bind;
pub mod decide;
pub mod request;
pub mod restore;

use contract::{names, quantity};

use self::api::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::claim::keep;
use crate::config::classes::Identity;
use crate::config::record::Record;
use crate::limits;
use crate::object::ObjectName;
use crate::run::failure::{LastFailure, MOST_ATTEMPTS};
use crate::run::view::seconds;
use crate::text::cut;

/// The capability that a config declares.
pub const CAPABILITY: &str = crate::config::capability::SNAPSHOT;

/// The parameter of a VolumeSnapshotClass that names the StorageClass whose image deletes snapshots that were not made
/// here.
pub const STORAGE_CLASS: &str = "storage-class";

/// What a VolumeSnapshot is to be of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// The volume of a claim in its namespace.
    Claim(String),
    /// A content that somebody made.
    Content(String),
    /// Neither, or both: the API server refuses that.
    Nothing,
}

/// A VolumeSnapshot, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// The finalizers on it.
    pub finalizers: Vec<String>,
    /// These are all of them.
    pub finalizers_whole: bool,
    /// Its class.
    pub class: Option<String>,
    /// Of what.
    pub of: Of,
    /// How it stands.
    pub status: Status,
}

/// What a VolumeSnapshot's status says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Its content.
    pub content: Option<String>,
    /// It can be restored.
    pub ready: Option<bool>,
    /// When it was made, in seconds since 1970.
    pub made_at: Option<i64>,
    /// What a claim must ask for at least, in bytes.
    pub size: Option<u64>,
    /// What went wrong last.
    pub error: Option<String>,
}

impl Snapshot {
    /// Our finalizer is on it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::SNAPSHOT_FINALIZER)
    }

    /// The name of its content, there or not.
    pub fn content(&self) -> Option<String> {
        match &self.of {
            Of::Claim(_) => Some(names::content_name(&self.uid)),
            Of::Content(name) => Some(name.clone()),
            Of::Nothing => None,
        }
    }

    /// The claim that it is to be of.
    pub fn claim(&self) -> Option<ObjectName> {
        match &self.of {
            Of::Claim(name) => Some(ObjectName::new(&self.name.namespace, name)),
            Of::Content(_) | Of::Nothing => None,
        }
    }
}

/// How a snapshot was made: all that its deletion and a restore need, when volume, class and config are gone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Provenance {
    /// The recipe.
    #[serde(flatten)]
    pub record: Record,
    /// The node where it is, if that matters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The id of the volume that it is of.
    pub volume_id: String,
    /// The name of that volume.
    pub pv_name: String,
    /// The size of that volume, in bytes.
    pub size: u64,
    /// Its mode.
    pub volume_mode: String,
}

/// A VolumeSnapshotContent, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
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
    /// All finalizers on it.
    pub finalizers: Vec<String>,
    /// The orchestrator instance on its label.
    pub instance: Option<String>,
    /// Whose it is.
    pub driver: String,
    /// `Delete` or `Retain`.
    pub policy: String,
    /// The handle of a snapshot that exists; none for one that is to be made.
    pub handle: Option<String>,
    /// The handle that the status tells.
    pub told: Option<String>,
    /// The VolumeSnapshot that it is for.
    pub snapshot: ObjectName,
    /// The UID of that; empty until it is bound.
    pub snapshot_uid: String,
    /// The mode of the volume that it is of.
    pub volume_mode: Option<String>,
    /// Its class.
    pub class: Option<String>,
    /// The number of the last attempt that was begun, from 1.
    pub attempt: u32,
    /// How it was made, as it stands on it.
    pub provenance: Option<String>,
    /// What the last failed run said.
    pub last_failure: Option<LastFailure>,
    /// An admin lets go of it.
    pub abandoned: bool,
    /// It can be restored.
    pub ready: bool,
    /// When it was made, in seconds since 1970.
    pub made_at: Option<i64>,
    /// What a claim must ask for at least, in bytes.
    pub size: Option<u64>,
    /// What its status says that went wrong last.
    pub error: Option<String>,
}

impl Content {
    /// It is of our driver, and not another instance's.
    pub fn is_ours(&self, identity: &Identity) -> bool {
        self.driver == identity.provisioner
            && self.instance.as_ref().is_none_or(|instance| *instance == identity.instance)
    }

    /// Our finalizer is on it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == names::SNAPSHOT_FINALIZER)
    }

    /// A finalizer is on it that is ours to take off.
    pub fn is_kept(&self) -> bool {
        self.is_held() || self.finalizers.iter().any(|finalizer| finalizer == names::CONTENT_FINALIZER)
    }

    /// The id that its runs get: of a snapshot that was made here the UID of its VolumeSnapshot.
    pub fn id(&self) -> &str {
        self.handle.as_deref().unwrap_or(&self.snapshot_uid)
    }

    /// The id by which a run that fills a claim finds it. One of another's making is known by what that has told of it.
    pub fn source_id(&self) -> &str {
        let foreign = self.provenance.is_none() && self.handle.is_none();
        self.told.as_deref().filter(|_| foreign).unwrap_or(self.id())
    }

    /// What its Jobs are found by. A handle that somebody wrote may be no name.
    pub fn run_id(&self) -> &str {
        if self.handle.is_some() { &self.uid } else { &self.snapshot_uid }
    }

    /// How it was made.
    pub fn made_by(&self) -> Option<Provenance> {
        serde_json::from_str(self.provenance.as_deref()?).ok()
    }

    /// A run for it may be under way, or follow, which reads its source.
    pub fn reads_source(&self) -> bool {
        !self.ready && self.handle.is_none()
    }
}

/// A VolumeSnapshotClass, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub driver: String,
    /// `Delete` or `Retain`.
    pub policy: String,
    /// It is the default of its driver.
    pub default: bool,
    /// The StorageClass whose config deletes snapshots that were not made here.
    pub storage_class: Option<String>,
}

impl From<&VolumeSnapshot> for Snapshot {
    fn from(snapshot: &VolumeSnapshot) -> Self {
        let metadata = &snapshot.metadata;
        let source = &snapshot.spec.source;
        let status = snapshot.status.clone().unwrap_or_default();
        let (finalizers, finalizers_whole) = keep::finalizers(metadata);
        let name = |text: &String| cut(text, limits::NAME).into_owned();
        Snapshot {
            name: ObjectName::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers,
            finalizers_whole,
            class: snapshot.spec.volume_snapshot_class_name.as_ref().filter(|class| !class.is_empty()).map(name),
            of: match (&source.persistent_volume_claim_name, &source.volume_snapshot_content_name) {
                (Some(claim), None) => Of::Claim(name(claim)),
                (None, Some(content)) => Of::Content(name(content)),
                _ => Of::Nothing,
            },
            status: Status {
                content: status.bound_volume_snapshot_content_name,
                ready: status.ready_to_use,
                made_at: status
                    .creation_time
                    .and_then(|at| at.parse::<jiff::Timestamp>().ok())
                    .map(|at| at.as_second()),
                size: status.restore_size.and_then(|size| quantity::bytes(&size).ok()),
                error: status.error.map(|error| error.message.unwrap_or_default()),
            },
        }
    }
}

impl From<&VolumeSnapshotContent> for Content {
    fn from(content: &VolumeSnapshotContent) -> Self {
        let metadata = &content.metadata;
        let spec = &content.spec;
        let status = content.status.clone().unwrap_or_default();
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
        let attempt = annotation(names::ATTEMPT).and_then(|attempt| attempt.parse().ok()).unwrap_or(0);
        Content {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created: seconds(metadata.creation_timestamp.as_ref()),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            instance: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE).cloned()),
            driver: spec.driver.clone(),
            policy: spec.deletion_policy.clone(),
            handle: spec.source.snapshot_handle.clone(),
            told: status.snapshot_handle.clone(),
            snapshot: ObjectName::new(&spec.volume_snapshot_ref.namespace, &spec.volume_snapshot_ref.name),
            snapshot_uid: spec.volume_snapshot_ref.uid.clone().unwrap_or_default(),
            volume_mode: spec.source_volume_mode.clone(),
            class: spec.volume_snapshot_class_name.clone(),
            attempt: if attempt < MOST_ATTEMPTS { attempt } else { 0 },
            provenance: annotation(names::PROVENANCE),
            last_failure: annotation(names::FAILURE).and_then(|text| LastFailure::read(&text)),
            abandoned: annotation(names::ABANDON).as_deref() == Some(names::ABANDON_YES),
            ready: status.ready_to_use == Some(true),
            made_at: status.creation_time.map(|at| at.div_euclid(1_000_000_000)),
            size: status.restore_size.and_then(|size| u64::try_from(size).ok()),
            error: status.error.map(|error| error.message.unwrap_or_default()),
        }
    }
}

impl From<&VolumeSnapshotClass> for Class {
    fn from(class: &VolumeSnapshotClass) -> Self {
        let annotation = |key: &str| class.metadata.annotations.as_ref().and_then(|all| all.get(key));
        Class {
            name: class.metadata.name.clone().unwrap_or_default(),
            driver: class.driver.clone(),
            policy: class.deletion_policy.clone(),
            default: annotation(names::DEFAULT_SNAPSHOT_CLASS).is_some_and(|value| value == "true"),
            storage_class: class.parameters.as_ref().and_then(|all| all.get(STORAGE_CLASS).cloned()),
        }
    }
}

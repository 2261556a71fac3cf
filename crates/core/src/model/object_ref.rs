//! The object of an event or a finding, by its kind, name and UID.

use std::fmt;

use super::claim::Claim;
use super::snapshot::{Content, Snapshot};
use super::volume::Volume;
use crate::object::ObjectName;

/// The object of an event or a finding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct ObjectRef {
    /// The kind in the API; `Backend` for storage that is no object.
    pub kind: &'static str,
    /// The name of the object; the namespace is empty for volumes. For a backend the namespace is the node, if the node
    /// has storage of its own.
    #[serde(flatten)]
    pub name: ObjectName,
    /// The UID of the object, if it has one.
    pub uid: String,
}

impl ObjectRef {
    /// The kind of the records of runs.
    pub const RECORD: &str = "ControllerRevision";

    /// Names a claim, or the record that is left of it.
    pub fn claim(claim: &Claim) -> Self {
        match &claim.record {
            Some(record) => Self { kind: Self::RECORD, name: record.name.clone(), uid: record.uid.clone() },
            None => Self { kind: "PersistentVolumeClaim", name: claim.name.clone(), uid: claim.uid.clone() },
        }
    }

    /// Names a volume.
    pub fn volume(volume: &Volume) -> Self {
        Self { kind: "PersistentVolume", name: ObjectName::new("", &volume.name), uid: volume.uid.clone() }
    }

    /// Names a VolumeSnapshot.
    pub fn snapshot(snapshot: &Snapshot) -> Self {
        Self { kind: "VolumeSnapshot", name: snapshot.name.clone(), uid: snapshot.uid.clone() }
    }

    /// Names the object on which the user of a content looks. This is the VolumeSnapshot, or the content itself if it is
    /// bound to none.
    pub fn content(content: &Content) -> Self {
        match &content.snapshot_uid {
            Some(uid) => Self { kind: "VolumeSnapshot", name: content.snapshot.clone(), uid: uid.clone() },
            None => Self::content_itself(content),
        }
    }

    /// Names a content itself.
    pub fn content_itself(content: &Content) -> Self {
        Self { kind: "VolumeSnapshotContent", name: ObjectName::new("", &content.name), uid: content.uid.clone() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name.name),
            _ => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

//! The operations that the orchestrator asks of an image.

use std::fmt;
use std::str::FromStr;

use crate::request_error::RequestError;

/// The value of `OPERATION` in the environment of a run for several requests ([`crate::batch`]).
pub const BATCH: &str = "batch";

/// The operation of a run, as the image reads it from `OPERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Make a volume and create its PersistentVolume.
    Provision,
    /// Delete the storage of a volume, or what an unfinished provision run left of it.
    Delete,
    /// Print the volumes that the backend has ([`crate::listing`]). Such a run is for no volume.
    List,
    /// Make the storage of a volume larger.
    Expand,
    /// Give a volume the attributes of another VolumeAttributesClass.
    Modify,
    /// Report how many bytes the backend has free ([`crate::capacity`]). Such a run is for no volume.
    Capacity,
    /// Make a snapshot of a volume.
    Snapshot,
    /// Delete a snapshot, or what an unfinished snapshot run left of it.
    DeleteSnapshot,
}

impl Operation {
    /// Returns the text of the operation in `OPERATION`, in labels and in names of Jobs.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Provision => "provision",
            Operation::Delete => "delete",
            Operation::List => "list",
            Operation::Expand => "expand",
            Operation::Modify => "modify",
            Operation::Capacity => "capacity",
            Operation::Snapshot => "snapshot",
            Operation::DeleteSnapshot => "delete-snapshot",
        }
    }

    /// Checks whether runs of this operation are for one volume.
    pub fn is_of_volume(self) -> bool {
        !matches!(self, Operation::List | Operation::Capacity)
    }

    /// Returns the capability that a config declares to get runs of this operation; `None` for provision and delete
    /// runs, which each image gets.
    pub fn capability(self) -> Option<&'static str> {
        match self {
            Operation::Provision | Operation::Delete => None,
            Operation::Snapshot | Operation::DeleteSnapshot => Some("snapshot"),
            Operation::List | Operation::Expand | Operation::Modify | Operation::Capacity => Some(self.as_str()),
        }
    }

    /// Checks whether runs of this operation make or delete a snapshot.
    pub fn is_of_snapshot(self) -> bool {
        matches!(self, Operation::Snapshot | Operation::DeleteSnapshot)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Operation {
    type Err = RequestError;
    fn from_str(text: &str) -> Result<Self, RequestError> {
        match text {
            "provision" => Ok(Operation::Provision),
            "delete" => Ok(Operation::Delete),
            "list" => Ok(Operation::List),
            "expand" => Ok(Operation::Expand),
            "modify" => Ok(Operation::Modify),
            "capacity" => Ok(Operation::Capacity),
            "snapshot" => Ok(Operation::Snapshot),
            "delete-snapshot" => Ok(Operation::DeleteSnapshot),
            _ => Err(RequestError::Invalid {
                variable: crate::variable::OPERATION.name,
                value: text.into(),
                expected: "provision, delete, expand, modify, snapshot, delete-snapshot, list or capacity",
            }),
        }
    }
}

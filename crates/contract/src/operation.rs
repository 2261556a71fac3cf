//! The operations of an image.

use std::fmt;
use std::str::FromStr;

use crate::request::RequestError;

/// What an image is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Make a volume and create its PersistentVolume.
    Provision,
    /// Take the storage of a volume away, or what an unfinished provision run left of it.
    Delete,
    /// Print what the backend has ([`crate::listing`]). Such a run is for no volume.
    List,
    /// Make the storage of a volume larger.
    Expand,
    /// Give a volume the attributes of another VolumeAttributesClass.
    Modify,
    /// Tell how much room the backend has ([`crate::capacity`]). Such a run is for no volume.
    Capacity,
    /// Make a snapshot of a volume.
    Snapshot,
    /// Take a snapshot away, or what an unfinished snapshot run left of it.
    DeleteSnapshot,
}

impl Operation {
    /// As it stands in `OPERATION`, in labels and in the names of Jobs.
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

    /// Its runs are for a volume.
    pub fn is_of_volume(self) -> bool {
        !matches!(self, Operation::List | Operation::Capacity)
    }

    /// Its runs make or remove a snapshot.
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

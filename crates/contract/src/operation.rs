//! The operations that the orchestrator asks of an image.

use std::sync::LazyLock;

use strum::VariantArray;

use crate::capability;
use crate::request_error::RequestError;

/// The value of `OPERATION` in the environment of a run for several requests ([`crate::batch`]).
pub const BATCH: &str = "batch";

/// The operation of a run, as the image reads it from `OPERATION`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    serde::Serialize,
    serde::Deserialize,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = RequestError, parse_err_fn = unknown)]
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
    /// Check that storage which the image did not make exists, and take it over. It keeps its place.
    MoveIn,
    /// Forget storage that was taken over. It keeps its place and its content.
    MoveOut,
}

impl Operation {
    /// Returns the text of the operation in `OPERATION`, in labels and in names of Jobs.
    pub fn as_str(self) -> &'static str {
        self.into()
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
            Operation::Snapshot | Operation::DeleteSnapshot => Some(capability::SNAPSHOT),
            Operation::MoveIn | Operation::MoveOut => Some(capability::MOVE_IN),
            Operation::List => Some(capability::LIST),
            Operation::Expand => Some(capability::EXPAND),
            Operation::Modify => Some(capability::MODIFY),
            Operation::Capacity => Some(capability::CAPACITY),
        }
    }

    /// Checks whether runs of this operation write the storage of a volume. No two of them may work on a volume at one
    /// time.
    pub fn writes_volume(self) -> bool {
        match self {
            Operation::Provision | Operation::Expand | Operation::Modify => true,
            Operation::Delete
            | Operation::List
            | Operation::Capacity
            | Operation::Snapshot
            | Operation::DeleteSnapshot
            | Operation::MoveIn
            | Operation::MoveOut => false,
        }
    }

    /// Checks whether the orchestrator starts runs of this operation for an adopted volume.
    pub fn is_of_adopted_volume(self) -> bool {
        match self {
            Operation::Delete | Operation::Expand | Operation::Modify => true,
            Operation::Provision
            | Operation::List
            | Operation::Capacity
            | Operation::Snapshot
            | Operation::DeleteSnapshot
            | Operation::MoveIn
            | Operation::MoveOut => false,
        }
    }

    /// Returns all operations.
    pub fn all() -> impl Iterator<Item = Operation> {
        Operation::VARIANTS.iter().copied()
    }

    /// Checks whether runs of this operation make or delete a snapshot.
    pub fn is_of_snapshot(self) -> bool {
        matches!(self, Operation::Snapshot | Operation::DeleteSnapshot)
    }
}

fn unknown(text: &str) -> RequestError {
    static EXPECTED: LazyLock<String> =
        LazyLock::new(|| format!("one of {}", Operation::all().map(Operation::as_str).collect::<Vec<_>>().join(", ")));
    RequestError::Invalid { variable: crate::variable::OPERATION.name, value: text.into(), expected: &EXPECTED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_read_as_it_is_written() {
        for operation in Operation::all() {
            let text = operation.as_str();
            assert_eq!((text.parse(), operation.to_string().as_str()), (Ok(operation), text));
            assert_eq!(serde_json::json!(operation), text, "serde and strum have one text");
        }
        let error = "Provision".parse::<Operation>().unwrap_err().to_string();
        assert!(error.contains("provision, delete, list") && error.contains("delete-snapshot"), "{error}");
    }
}

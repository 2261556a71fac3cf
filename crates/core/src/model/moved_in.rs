//! The part of a volume's provenance that says where its storage is, if the image did not make it.

use flex_contract::storage;
use serde::{Deserialize, Serialize};

/// Storage that has moved in: another provisioner or a person made it. The adoption mark covers it like all provenance,
/// so that only the orchestrator and admins can write a path that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedIn {
    /// The path of the storage, in the volume source.
    pub path: String,
    /// The provisioner that made the volume; `None` for storage that an admin has imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The size of the volume when it moved in, in bytes.
    pub size: u64,
    /// The finalizers that the volume lost when it moved in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

impl MovedIn {
    /// Returns the folder of the storage, and its name there. Returns `None` for a path that no run may get.
    pub fn place(&self) -> Option<(&str, &str)> {
        storage::moved_in(&self.path)
    }
}

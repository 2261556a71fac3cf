//! Notes of the orchestrator on a volume: the last failed expand run, the attributes that the volume has, and the modify run
//! that may change them. Each is JSON in an annotation.

use contract::exit::Failure;

use crate::attributes::Attributes;
use crate::run::failure::MOST_ATTEMPTS;

/// What is remembered of the last failed expand run, on the volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FailedExpansion {
    /// Its number.
    pub attempt: u32,
    /// The size that it was to reach, in bytes.
    pub size: u64,
    /// The recipe, as `namespace/name@hash`.
    pub config: String,
    /// So many failed for this size and this recipe.
    pub tries: u32,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What follows from it.
    pub kind: Failure,
    /// A short reason.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl FailedExpansion {
    /// As it stands on a volume; none if nobody but us could have written it so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|failed: &FailedExpansion| failed.attempt < MOST_ATTEMPTS)
    }
}

/// The attributes that a volume has, as they are noted on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AppliedAttributes {
    /// What they are.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// The number of the modify run that gave it these; 0 for the provision run.
    #[serde(default)]
    pub run: u32,
}

impl AppliedAttributes {
    /// As they stand on a volume; none if nobody but us could have written them so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|applied: &AppliedAttributes| applied.run < MOST_ATTEMPTS)
    }
}

/// What is remembered of modify runs on the volume, until one has succeeded: which has begun, and the last that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingModification {
    /// The number of the last run that may have begun.
    pub begun: u32,
    /// The hash of the attributes that it was to give the volume.
    pub to: String,
    /// The number of the last run that failed; 0 for none, and then what follows is empty.
    pub attempt: u32,
    /// The hash of the attributes that it was to give the volume.
    pub hash: String,
    /// The recipe, as `namespace/name@hash`.
    pub config: String,
    /// So many failed for these attributes and this recipe.
    pub tries: u32,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What follows from it.
    pub kind: Failure,
    /// A run up to that one may have changed a part.
    pub between: bool,
    /// A short reason.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl PendingModification {
    /// As it stands on a volume; none if nobody but us could have written it so.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text)
            .ok()
            .filter(|note: &PendingModification| note.attempt.max(note.begun) < MOST_ATTEMPTS)
    }
}

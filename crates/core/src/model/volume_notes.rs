//! Notes of the orchestrator on a volume: the last failed expand run, the attributes that the volume has, and the
//! modify run that may change them. Each is JSON in an annotation.

use flex_contract::exit::Reaction;

use crate::config::modify::Attributes;
use crate::run::failure::MAX_ATTEMPTS;
use crate::text::note;

/// The last failed expand run, as the volume stores it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FailedExpansion {
    /// The number of the run.
    pub attempt: u32,
    /// The target size of the run, in bytes.
    pub size: u64,
    /// The recipe version, `namespace/name@hash`.
    #[serde(rename = "config")]
    pub recipe_version: String,
    /// The number of failures in a row with this size and this recipe.
    #[serde(rename = "tries")]
    pub consecutive_failures: u32,
    /// The time of the failure, in seconds since 1970.
    pub at: i64,
    /// The reaction to the failure.
    #[serde(rename = "kind")]
    pub reaction: Reaction,
    /// The reason, in one word.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

impl FailedExpansion {
    /// Reads the note from its annotation. Returns `None` if the orchestrator cannot have written it.
    pub fn read(text: &str) -> Option<Self> {
        note(text).filter(|failed: &FailedExpansion| failed.attempt < MAX_ATTEMPTS)
    }
}

/// The attributes of a volume, as the volume stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AppliedAttributes {
    /// The attributes.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// The number of the modify run that applied them; 0 for the provision run.
    #[serde(default)]
    pub run: u32,
}

impl AppliedAttributes {
    /// Reads the attributes from their annotation. Returns `None` if the orchestrator cannot have written them.
    pub fn read(text: &str) -> Option<Self> {
        note(text).filter(|applied: &AppliedAttributes| applied.run < MAX_ATTEMPTS)
    }
}

/// The modify runs since the last that succeeded, as the volume stores them. The note has the last run that began, and
/// the last that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingModification {
    /// The number of the last run that may have begun.
    #[serde(rename = "begun")]
    pub begun_attempt: u32,
    /// The hash of that run's target attributes.
    #[serde(rename = "to")]
    pub begun_target: String,
    /// The number of the last run that failed; 0 for none, and then the following fields are empty.
    #[serde(rename = "attempt")]
    pub failed_attempt: u32,
    /// The hash of that run's target attributes.
    #[serde(rename = "hash")]
    pub failed_target: String,
    /// The recipe version, `namespace/name@hash`.
    #[serde(rename = "config")]
    pub recipe_version: String,
    /// The number of failures in a row with these attributes and this recipe.
    #[serde(rename = "tries")]
    pub consecutive_failures: u32,
    /// The time of the failure, in seconds since 1970.
    pub at: i64,
    /// The reaction to the failure.
    #[serde(rename = "kind")]
    pub reaction: Reaction,
    /// The failed run, or one before it, may have changed some attributes. Nobody knows all of them then.
    pub has_unknown_attributes: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

impl PendingModification {
    /// Reads the note from its annotation. Returns `None` if the orchestrator cannot have written it.
    pub fn read(text: &str) -> Option<Self> {
        note(text).filter(|note: &PendingModification| note.failed_attempt.max(note.begun_attempt) < MAX_ATTEMPTS)
    }
}

//! The words for a deletion that waits for an export, and for the admin whose export never comes back. The functions are
//! pure.

use crate::parameters::Parameters;

/// Returns the words for the export of the volume itself.
pub fn for_volume(own: &Parameters) -> String {
    format!(
        "the volume is on {}, and its deletion waits for this export (if it never comes back, set the policy of the \
         PersistentVolume to Retain, and delete the PersistentVolume)",
        own.location()
    )
}

/// Returns the words for an export that may have a leftover, as a note on the volume's own export says.
pub fn for_leftover(own: &Parameters, other: &Parameters, note: &str) -> String {
    format!(
        "the volume is deleted from {}, but an earlier run may have begun it on {other}, and the deletion waits for that \
         export (if it never comes back, remove the link {note} on {})",
        own.location(),
        own.location(),
        other = other.location()
    )
}

/// Returns the words for an export on which a run may have begun a volume that nothing names.
pub fn for_unfinished(away: &Parameters) -> String {
    format!(
        "a run may have begun the volume on {away}, and the deletion waits for that export (if it never comes back, serve \
         an empty export at the same address until the deletion has succeeded)",
        away = away.location()
    )
}

//! The words for a run that waits for one of several exports, and for the admin whose export never comes back. The
//! functions are pure.

use flex_image_kit::Failure;

use crate::parameters::Parameters;

/// Adds to a failure the words for what a run waits for. With one export, the failure says enough.
pub fn explained(all: &[Parameters], failure: Failure, what: &str) -> Failure {
    match all.len() {
        1 => failure,
        _ => Failure { message: format!("{what}: {failure}"), ..failure },
    }
}

/// Returns the words for the export of the volume itself.
pub fn for_volume(own: &Parameters) -> String {
    format!(
        "the volume is on {}, and its deletion waits for this export (if it never comes back, set the policy of the \
         PersistentVolume to Retain, and delete the PersistentVolume)",
        own.location()
    )
}

/// Returns the words for a run, other than a deletion, for a volume on an export.
pub fn for_run(own: &Parameters) -> String {
    format!("the volume is on {}, and this run waits for that export", own.location())
}

/// Returns the words for a run that looks for its volume.
pub fn for_search(away: &Parameters) -> String {
    format!("the volume may be on {}, and this run waits for that export", away.location())
}

/// Returns the words for a copy whose source no other export has.
pub fn for_data_source(away: &Parameters) -> String {
    format!(
        "the source of the copy may be on {}, and no other export has it, so this run waits for that export (if it never \
         comes back, delete the claim: its source is lost)",
        away.location()
    )
}

/// Returns the words for the deletion of a snapshot, of which nothing names the export.
pub fn for_snapshot(away: &Parameters) -> String {
    format!(
        "the snapshot may be on {}, and its deletion waits for that export (if it never comes back, set the \
         deletionPolicy of the VolumeSnapshotContent to Retain, and delete the VolumeSnapshotContent)",
        away.location()
    )
}

/// Returns the words for a list.
pub fn for_list(away: &Parameters) -> String {
    format!(
        "{} may have volumes, and the list waits for that export, because a list without them would say that they are \
         lost (if it never comes back, take it out of `exports` in the config)",
        away.location()
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

//! The handle of a stored snapshot, in the form of [`flex_contract::snapshot_handle`].

use flex_contract::snapshot_handle::{is_handle, line};

use crate::{Failure, termination_message};

/// Hands back the handle of the run's snapshot, which the later runs for the snapshot get.
///
/// # Errors
/// If the text cannot be handed back.
pub fn hand_back(handle: &str) -> Result<(), Failure> {
    if !is_handle(handle) {
        return Err(Failure::never(format!("the storage calls the snapshot {handle:?}, which cannot be handed back")));
    }
    termination_message::write(&line(handle))
        .map_err(|error| Failure::retry(format!("the handle of the snapshot cannot be handed back: {error}")))
}

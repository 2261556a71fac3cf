//! The table of the volumes that a command looks at.

use flex_core::model::volume::Volume;

use super::work::Work;
use crate::out::say;
use crate::table::Table;

/// Prints a line for each volume, with what becomes of it.
pub(super) fn table(work: &Work, volumes: &[Volume], heading: &str, outcomes: &[String]) {
    if volumes.is_empty() {
        return;
    }
    let mut table = Table::new(["VOLUME", "CLAIM", "PATH", "NODE", heading]);
    for (volume, outcome) in volumes.iter().zip(outcomes) {
        let place = work.places.get(&volume.name);
        let claim = volume.claim_ref.as_ref().map(|reference| reference.name.to_string());
        let path = place.map(ToString::to_string);
        let node = place.and_then(|place| place.node.clone());
        let shown = [Some(volume.name.clone()), claim, path, node, Some(outcome.clone())];
        table.row(shown.map(|cell| cell.unwrap_or_default().into()));
    }
    say!("{}", table.text(false).trim_end());
}

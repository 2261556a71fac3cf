//! The table of the volumes that a command looks at.

use super::work::Work;
use crate::cli::out::say;
use crate::model::volume::Volume;

/// Prints a line for each volume, with what becomes of it.
pub(super) fn table(work: &Work, volumes: &[Volume], heading: &str, outcomes: &[String]) {
    if volumes.is_empty() {
        return;
    }
    let mut rows = vec![["VOLUME", "CLAIM", "PATH", "NODE", heading].map(str::to_owned)];
    for (volume, outcome) in volumes.iter().zip(outcomes) {
        let place = work.places.get(&volume.name);
        let claim = volume.claim_ref.as_ref().map(|reference| reference.name.to_string());
        let path = place.map(ToString::to_string);
        let node = place.and_then(|place| place.node.clone());
        let shown = [Some(volume.name.clone()), claim, path, node].map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        let [volume, claim, path, node] = shown;
        rows.push([volume, claim, path, node, outcome.clone()].map(|cell| crate::text::line(&cell, usize::MAX)));
    }
    let widths: [usize; 4] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    for row in rows {
        let [a, b, c, d] = widths;
        say!("{:a$}  {:b$}  {:c$}  {:d$}  {}", row[0], row[1], row[2], row[3], row[4]);
    }
}

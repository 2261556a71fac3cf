//! Which findings are more than a passing state: those that were seen again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, Kind, Object};

/// One finding over several looks.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The finding, as of the last look.
    pub finding: Finding,
    /// It has been seen for so long without a break that it stands.
    pub settled: bool,
    /// It stands since this look.
    pub new: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    first: Duration,
    settled: bool,
}

/// What was seen in the looks before.
#[derive(Debug, Default)]
pub struct Sightings {
    seen: BTreeMap<(Kind, Object), Seen>,
}

impl Sightings {
    /// A look: what was found at a moment. `most` bounds how long a finding must be seen, for those who look
    /// more often. What is not found any more is forgotten.
    pub fn look(&mut self, findings: Vec<Finding>, moment: Duration, most: Duration) -> Vec<Sighting> {
        let before = std::mem::take(&mut self.seen);
        let mut sightings = Vec::new();
        for finding in findings {
            let key = (finding.kind, finding.object.clone());
            let mut seen = before.get(&key).cloned().unwrap_or(Seen { first: moment, settled: false });
            let settles = Duration::from_secs(finding.kind.settles().unsigned_abs());
            // Those that take long do so for a reason of their own.
            let settles = if settles > Duration::from_secs(60) { settles } else { settles.min(most) };
            let settled = before.contains_key(&key) && moment.saturating_sub(seen.first) >= settles;
            let new = settled && !seen.settled;
            seen.settled |= settled;
            sightings.push(Sighting { finding, settled: seen.settled, new });
            self.seen.insert(key, seen);
        }
        sightings
    }

    /// Nothing was seen before: another leads.
    pub fn forget(&mut self) {
        self.seen.clear();
    }
}

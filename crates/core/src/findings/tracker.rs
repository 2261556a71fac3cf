//! The tracker distinguishes lasting findings from passing states: every search finds a lasting one for some time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, FindingKind};
use crate::model::object_ref::ObjectRef;

/// One finding over several searches.
#[derive(Clone, Debug)]
pub struct TrackedFinding {
    /// The finding, as of the last search.
    pub finding: Finding,
    /// The finding was seen long enough without a break.
    pub confirmed: bool,
    /// This search has confirmed the finding.
    pub new: bool,
}

#[derive(Clone, Debug)]
struct FirstSeen {
    first: Duration,
    confirmed: bool,
}

/// The findings of earlier searches.
#[derive(Debug, Default)]
pub struct FindingTracker {
    first_seen: BTreeMap<(FindingKind, ObjectRef), FirstSeen>,
}

impl FindingTracker {
    /// Adds the findings of a search at a moment. `most` limits the time for which a finding must be seen, for callers
    /// that search more often. Forgets findings that are missing in this search.
    pub fn track(&mut self, findings: Vec<Finding>, moment: Duration, most: Duration) -> Vec<TrackedFinding> {
        let before = std::mem::take(&mut self.first_seen);
        let mut sightings = Vec::new();
        for finding in findings {
            let key = (finding.kind, finding.object.clone());
            let mut observed = before.get(&key).cloned().unwrap_or(FirstSeen { first: moment, confirmed: false });
            let settles = Duration::from_secs(finding.kind.confirm_after().unsigned_abs());
            // A kind with a long time has its own reason for it.
            let settles = if settles > Duration::from_secs(60) { settles } else { settles.min(most) };
            let settled = before.contains_key(&key) && moment.saturating_sub(observed.first) >= settles;
            let new = settled && !observed.confirmed;
            observed.confirmed |= settled;
            sightings.push(TrackedFinding { finding, confirmed: observed.confirmed, new });
            self.first_seen.insert(key, observed);
        }
        sightings
    }

    /// Forgets all earlier searches, because another process leads.
    pub fn forget(&mut self) {
        self.first_seen.clear();
    }
}

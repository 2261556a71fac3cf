//! The memory of reconcilers from one reconcile to the next. It can be lost without harm.

use std::sync::Mutex;
use std::time::Duration;

use crate::findings::FindingTracker;

/// The shortest time between two reconciles. Each reads the whole cache, so that it must not follow each of many
/// changes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The time of the last reconcile.
#[derive(Debug, Default)]
pub(super) struct RateLimit(Mutex<Option<Duration>>);

impl RateLimit {
    /// Returns the time to wait; `None` begins a reconcile.
    pub(super) fn begin(&self, now: Duration) -> Option<Duration> {
        let mut last = self.0.lock().expect("no code panics while it holds the pace");
        let remaining = last
            .and_then(|last| MIN_INTERVAL.checked_sub(now.saturating_sub(last)))
            .filter(|remaining| !remaining.is_zero());
        if remaining.is_none() {
            *last = Some(now);
        }
        remaining
    }
}

/// The time between two sweeps, unless configured otherwise.
const INTERVAL: Duration = Duration::from_secs(600);

/// The state of the sweep.
#[derive(Debug)]
pub struct Sweep {
    interval: Mutex<Option<Duration>>,
    pub(super) findings: Mutex<FindingTracker>,
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { interval: Mutex::new(Some(INTERVAL)), findings: Mutex::default() }
    }
}

impl Sweep {
    /// Sets the time between two sweeps; `None` for never.
    pub fn every(&self, interval: Option<Duration>) {
        *self.interval.lock().expect("no code panics while it holds the interval") = interval;
    }

    /// Forgets all findings, because another replica leads now.
    pub fn forget(&self) {
        self.findings.lock().expect("no code panics while it holds the sightings").forget();
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        *self.interval.lock().expect("no code panics while it holds the interval")
    }
}

//! What reconcilers remember between two reconciles. All of it may be lost.

use std::sync::Mutex;
use std::time::Duration;

use crate::orphans::Sightings;

/// All is looked through, so not for each of many changes.
const PACE: Duration = Duration::from_secs(1);

/// When it was last looked through.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Option<Duration>>);

impl Pace {
    /// How long to wait; if not at all, it is begun.
    pub(super) fn begin(&self, now: Duration) -> Option<Duration> {
        let mut last = self.0.lock().expect("no code panics while it holds the pace");
        let left = last.and_then(|last| PACE.checked_sub(now.saturating_sub(last))).filter(|left| !left.is_zero());
        if left.is_none() {
            *last = Some(now);
        }
        left
    }
}

/// How often all is looked through, unless it is said otherwise.
const INTERVAL: Duration = Duration::from_secs(600);

/// What the sweep remembers.
#[derive(Debug)]
pub struct Sweep {
    interval: Mutex<Option<Duration>>,
    pub(super) sightings: Mutex<Sightings>,
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { interval: Mutex::new(Some(INTERVAL)), sightings: Mutex::default() }
    }
}

impl Sweep {
    /// How often to look; never with none.
    pub fn every(&self, interval: Option<Duration>) {
        *self.interval.lock().expect("no code panics while it holds the interval") = interval;
    }

    /// Another leads from now on: what was seen is worth nothing.
    pub fn forget(&self) {
        self.sightings.lock().expect("no code panics while it holds the sightings").forget();
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        *self.interval.lock().expect("no code panics while it holds the interval")
    }
}

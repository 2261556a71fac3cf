//! The memory of reconcilers from one reconcile to the next. It can be lost without harm.

use std::sync::Mutex;
use std::time::Duration;

use flex_core::findings::{Finding, FindingTracker};

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

const REPORT: &str = "no code panics while it holds the report";

/// The largest number of findings that are kept for people.
const MAX_REPORTED: usize = 500;

/// The confirmed findings of one sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The time of the sweep, in seconds since 1970; `None` before the first.
    pub at: Option<i64>,
    /// The findings, the most severe first, up to a limit.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub total: usize,
}

/// The state of the sweep.
#[derive(Debug)]
pub struct Sweep {
    interval: Mutex<Option<Duration>>,
    pub(super) findings: Mutex<FindingTracker>,
    report: Mutex<SweepReport>,
}

impl Default for Sweep {
    fn default() -> Self {
        Sweep { interval: Mutex::new(Some(INTERVAL)), findings: Mutex::default(), report: Mutex::default() }
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
        *self.report.lock().expect(REPORT) = SweepReport::default();
    }

    /// Returns the confirmed findings of the last sweep.
    pub fn report(&self) -> SweepReport {
        self.report.lock().expect(REPORT).clone()
    }

    pub(super) fn set_report<'a>(&self, at: i64, findings: impl Iterator<Item = &'a Finding>) {
        let mut all: Vec<_> = findings.collect();
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let (at, total) = (Some(at), all.len());
        let findings = all.into_iter().take(MAX_REPORTED).cloned().collect();
        *self.report.lock().expect(REPORT) = SweepReport { at, findings, total };
    }

    /// Returns the time between two sweeps; `None` for never.
    pub fn interval(&self) -> Option<Duration> {
        *self.interval.lock().expect("no code panics while it holds the interval")
    }
}

#[cfg(test)]
mod tests {
    use flex_core::findings::Severity;
    use flex_core::object::ObjectName;

    use super::*;

    #[test]
    fn a_report_has_the_most_severe_findings_first_and_an_end() {
        let sweep = Sweep::default();
        assert_eq!(sweep.report(), SweepReport::default());
        let warning = Finding::without_account(ObjectName::new("n", "c"), "a");
        let error = Finding { severity: Severity::Error, ..warning.clone() };
        let all = vec![warning; MAX_REPORTED];
        sweep.set_report(7, all.iter().chain([&error]));
        let SweepReport { at, findings, total } = sweep.report();
        assert_eq!((at, findings.len(), total), (Some(7), MAX_REPORTED, MAX_REPORTED + 1));
        assert_eq!(findings[0].severity, Severity::Error);
        sweep.forget();
        assert_eq!(sweep.report().total, 0);
    }
}

//! The waits of this process at the records of runs: until the cache has those of former leaders, and until more claims need a
//! record no more.

use std::collections::HashMap;
use std::time::Duration;

use crate::state::missing::Missing;

/// The time from the first claim that needs a record of several no more until this is written. In a burst, many follow, and each
/// write sends the whole record to all watches.
const COLLECT: Duration = Duration::from_millis(250);

/// All waits. Times are those since some moment.
#[derive(Debug, Default)]
pub struct RecordWaits {
    /// The records that the API has and the cache lacks.
    missing: Missing,
    /// The times since when claims need a record no more, by the names of records.
    collecting: HashMap<String, Duration>,
}

impl RecordWaits {
    /// Checks whether the last list showed, a moment ago, that the cache lacks records.
    pub fn has_just_missed(&self, now: Duration) -> bool {
        self.missing.has_just_missed(now)
    }

    /// Notes that a list has shown records that the cache lacks. Returns the message about them when it is time to log it, which
    /// is once.
    pub fn note_missing(&mut self, names: &[String], now: Duration) -> Option<String> {
        self.missing.note(names, now).map(|names| message(&names))
    }

    /// Returns the message about records that the cache lacks, once that lasts.
    pub fn why(&self) -> Option<String> {
        self.missing.lasting().map(message)
    }

    /// Returns how long a record still waits for more claims that need it no more; `None` if it waits no longer.
    pub fn rest(&self, record: &str, now: Duration) -> Option<Duration> {
        let since = self.collecting.get(record).copied().unwrap_or(now);
        (since + COLLECT).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// Begins to wait for more claims that need a record no more, unless the record waits already.
    pub fn begin_collecting(&mut self, record: &str, now: Duration) {
        self.collecting.entry(record.to_owned()).or_insert(now);
    }

    /// Ends the wait of a record for more claims.
    pub fn end_collecting(&mut self, record: &str) {
        self.collecting.remove(record);
    }

    /// Forgets that the cache lacked records, because it has all.
    pub fn end_missing(&mut self) {
        self.missing.end();
    }
}

/// Returns the message about records that the cache lacks.
fn message(names: &str) -> String {
    format!(
        "the provisioner waits until its watch of ControllerRevisions shows the records that Kubernetes has: it lacks {names}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn records_that_the_cache_lacks_are_told_once_they_last() {
        let mut waits = RecordWaits::default();
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
        assert!(!waits.has_just_missed(at(0)) && waits.note_missing(&names, at(0)).is_none());
        assert!(waits.has_just_missed(at(999)) && !waits.has_just_missed(at(1_000)));
        assert!(waits.note_missing(&names, at(9_999)).is_none() && waits.why().is_none());
        let message = waits.note_missing(&names, at(10_000)).unwrap();
        assert!(message.ends_with("it lacks a, b, c and 2 more"), "{message}");
        assert_eq!((waits.note_missing(&names, at(11_000)), waits.why()), (None, Some(message)), "it is logged once");
        waits.end_missing();
        assert!(waits.why().is_none() && waits.note_missing(&names, at(12_000)).is_none(), "the time begins again");
    }

    #[test]
    fn a_record_waits_a_moment_for_more_claims() {
        let mut waits = RecordWaits::default();
        assert_eq!(waits.rest("a", at(7_000)), Some(COLLECT), "the first claim begins the wait");
        waits.begin_collecting("a", at(7_000));
        waits.begin_collecting("a", at(7_100));
        assert_eq!((waits.rest("a", at(7_100)), waits.rest("b", at(7_100))), (Some(at(150)), Some(COLLECT)));
        assert_eq!(waits.rest("a", at(7_250)), None);
        waits.end_collecting("a");
        assert_eq!(waits.rest("a", at(7_250)), Some(COLLECT), "that was written");
    }
}

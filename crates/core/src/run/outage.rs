//! Outages: the runs of one operation of a class fail one after another, and one at a time shows when they succeed again.

use super::backoff::due_after;

/// The number of objects whose last runs must have failed. Fewer may fail by their own faults.
pub const OBJECTS: usize = 5;
/// The shortest and the longest pause before the next run, in seconds.
const PAUSE: (i64, i64) = (5, 60);

/// The failures since the last success that ask for another try. All times are in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The number of objects whose last run failed so.
    pub objects: usize,
    /// The time of the first failure.
    pub first: i64,
    /// The time of the last failure, or when the last run began if that was later.
    pub last: i64,
}

/// The pace at which runs may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// There is no outage: as many runs may begin as there are slots.
    Normal,
    /// One run may begin, to see whether it succeeds.
    Probe,
    /// The next run may begin at this time, in seconds since 1970, or earlier if one that is in progress ends.
    Pause(i64),
}

impl Failures {
    /// Checks whether the runs have an outage.
    pub fn are_outage(&self) -> bool {
        self.objects >= OBJECTS
    }

    /// Decides at which pace runs may begin. Each pause is half as long as the outage has lasted. While a run is in
    /// progress, its end will tell more, so the pause is the longest; but a run may hang, or take hours.
    pub fn pace(&self, is_running: bool, now: i64) -> Pace {
        if !self.are_outage() {
            return Pace::Normal;
        }
        let (shortest, longest) = PAUSE;
        let half = self.last.saturating_sub(self.first) / 2;
        let pause = if is_running { longest } else { half.clamp(shortest, longest) };
        let until = due_after(self.last, pause, now);
        if now < until { Pace::Pause(until) } else { Pace::Probe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    #[test]
    fn one_run_at_a_time_begins_after_several_objects_have_failed() {
        for (what, objects, lasted, ago, is_running, expected) in [
            ("nothing has failed", 0, 0, 0, true, Pace::Normal),
            ("few have failed, if often", OBJECTS - 1, 9000, 0, true, Pace::Normal),
            ("several have failed at once", OBJECTS, 0, 0, false, Pace::Pause(NOW + 5)),
            ("the shortest pause is over", OBJECTS, 0, 5, false, Pace::Probe),
            ("another is in progress", OBJECTS, 0, 9, true, Pace::Pause(NOW + 51)),
            ("another hangs", OBJECTS, 0, 60, true, Pace::Probe),
            ("it has lasted for a while", OBJECTS + 900, 40, 19, false, Pace::Pause(NOW + 1)),
            ("it has lasted for long", OBJECTS, 9000, 59, false, Pace::Pause(NOW + 1)),
            ("the longest pause is over", OBJECTS, 9000, 60, false, Pace::Probe),
            ("no clock has shown that time", OBJECTS, 0, -9000, false, Pace::Probe),
        ] {
            let last = NOW - ago;
            assert_eq!(Failures { objects, first: last - lasted, last }.pace(is_running, NOW), expected, "{what}");
        }
    }

    /// In an hour there are as many runs as minutes, and some more at its beginning.
    #[test]
    fn the_runs_of_an_outage_become_rare() {
        let (mut failures, mut begun) = (Failures { objects: OBJECTS, first: NOW, last: NOW }, Vec::new());
        for now in NOW..NOW + 3600 {
            if failures.pace(false, now) == Pace::Probe {
                failures.last = now;
                begun.push(now - NOW);
            }
        }
        assert_eq!(begun[..6], [5, 10, 15, 22, 33, 49]);
        assert!((60..70).contains(&begun.len()), "{begun:?}");
        assert!(begun.windows(2).all(|two| two[1] - two[0] <= PAUSE.1), "{begun:?}");
    }
}

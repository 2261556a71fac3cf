//! The claims that were bound within the last hour: how many, and how long they took.
//!
//! Prometheus computes the same from the metrics. A person who looks at the status page may have no Prometheus.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The length of a slot. The oldest slot is forgotten as a whole, so that "the hour" is between 55 and 60 minutes.
const SLOT: Duration = Duration::from_secs(300);
/// The number of slots in an hour.
const SLOTS: usize = 12;
/// The number of bins of a histogram.
const BINS: usize = 64;
/// The largest time in the first bin, in seconds.
const SHORTEST: f64 = 0.05;
/// The number of bins in which the time doubles. A time is known to within a fifth of itself.
const BINS_PER_DOUBLING: f64 = 4.0;

/// The claims that were bound within the last hour, by class. A class takes about 1.7 KiB.
#[derive(Debug, Default)]
pub struct LastHour(Mutex<BTreeMap<String, Box<Ring>>>);

/// The claims of one class, by slot.
#[derive(Debug, Default)]
struct Ring([Slot; SLOTS]);

/// The claims that were bound within one slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number of the slot since the clock began.
    number: u64,
    /// The number of claims in each bin of the histogram.
    counts: [u16; BINS],
}

impl Default for Slot {
    fn default() -> Self {
        Slot { number: 0, counts: [0; BINS] }
    }
}

/// The claims of a class that were bound within the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BoundClaims {
    /// Their number.
    pub count: u64,
    /// The time from the beginning of an attempt to the binding that half of them needed at most.
    pub p50: Option<Duration>,
    /// The time that 95 of 100 needed at most.
    pub p95: Option<Duration>,
}

impl LastHour {
    /// Counts a claim that is bound at `now`, after its attempt took some time. `now` is a time of
    /// [`Clock::passed`](crate::clock::Clock::passed).
    pub fn record(&self, class: &str, now: Duration, took: Duration) {
        let mut rings = self.0.lock().expect(HELD);
        if !rings.contains_key(class) {
            // A class that was deleted does not come back as a rule.
            rings.retain(|_, ring| ring.bound(now).count > 0);
            rings.insert(class.to_owned(), Box::default());
        }
        if let Some(ring) = rings.get_mut(class) {
            ring.record(now, took);
        }
    }

    /// Returns the claims of a class that were bound within the hour before `now`.
    pub fn bound(&self, class: &str, now: Duration) -> BoundClaims {
        self.0.lock().expect(HELD).get(class).map(|ring| ring.bound(now)).unwrap_or_default()
    }

    /// Forgets all claims, because another replica leads now and binds them.
    pub fn forget(&self) {
        self.0.lock().expect(HELD).clear();
    }
}

const HELD: &str = "no code panics while it holds the claims of the hour";

impl Ring {
    fn record(&mut self, now: Duration, took: Duration) {
        let number = slot(now);
        let place = usize::try_from(number % SLOTS as u64).unwrap_or_default();
        let slot = &mut self.0[place];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        let count = &mut slot.counts[bin(took)];
        *count = count.saturating_add(1);
    }

    fn bound(&self, now: Duration) -> BoundClaims {
        let newest = slot(now);
        let is_recent = |slot: &&Slot| newest.saturating_sub(slot.number) < SLOTS as u64;
        let mut counts = [0_u64; BINS];
        for slot in self.0.iter().filter(is_recent) {
            counts.iter_mut().zip(slot.counts).for_each(|(sum, count)| *sum += u64::from(count));
        }
        let count = counts.iter().sum();
        BoundClaims { count, p50: percentile(&counts, count, 50), p95: percentile(&counts, count, 95) }
    }
}

fn slot(now: Duration) -> u64 {
    now.as_secs() / SLOT.as_secs()
}

/// Returns the bin of a time.
fn bin(took: Duration) -> usize {
    let doublings = (took.as_secs_f64() / SHORTEST).max(1.0).log2();
    // A conversion of a float saturates.
    ((doublings * BINS_PER_DOUBLING).ceil() as usize).min(BINS - 1)
}

/// Returns the largest time in a bin. The last bin has all longer times, too.
fn longest(bin: usize) -> Duration {
    Duration::from_secs_f64(SHORTEST * (bin as f64 / BINS_PER_DOUBLING).exp2())
}

/// Returns the time that `percent` of all claims needed at most.
fn percentile(counts: &[u64; BINS], all: u64, percent: u64) -> Option<Duration> {
    let rank = all.saturating_mul(percent).div_ceil(100).max(1);
    let mut seen = 0;
    counts.iter().enumerate().find_map(|(bin, count)| {
        seen += count;
        (seen >= rank).then(|| longest(bin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn near(time: Option<Duration>, seconds: f64) -> bool {
        time.is_some_and(|time| (seconds..=seconds * 1.2).contains(&time.as_secs_f64()))
    }

    #[test]
    fn percentiles_are_at_most_a_fifth_too_long() {
        for (what, times, p50, p95) in [
            ("one", vec![2.0], 2.0, 2.0),
            ("none is shorter than the first bin", vec![0.0, 0.001], 0.05, 0.05),
            ("one in twenty is slow", [vec![1.0; 19], vec![60.0]].concat(), 1.0, 1.0),
            ("two in twenty are slow", [vec![1.0; 18], vec![60.0; 2]].concat(), 1.0, 60.0),
            ("half", vec![0.5, 0.5, 8.0, 8.0], 0.5, 8.0),
        ] {
            let hour = LastHour::default();
            times.iter().for_each(|took| hour.record("c", MINUTE, Duration::from_secs_f64(*took)));
            let bound = hour.bound("c", MINUTE);
            assert_eq!(bound.count, times.len() as u64, "{what}");
            assert!(near(bound.p50, p50) && near(bound.p95, p95), "{what}: {bound:?}");
        }
        let hour = LastHour::default();
        hour.record("c", MINUTE, Duration::from_secs(1_000_000));
        assert!(hour.bound("c", MINUTE).p95.is_some_and(|time| time.as_secs() > 2_700), "the last bin has the rest");
    }

    #[test]
    fn a_claim_counts_for_an_hour() {
        let hour = LastHour::default();
        for minute in 0..180 {
            hour.record("c", MINUTE * minute, MINUTE);
        }
        assert_eq!(hour.bound("c", MINUTE * 179).count, 60);
        assert_eq!(hour.bound("c", MINUTE * 200).count, 35, "the oldest slots are over");
        assert_eq!(hour.bound("c", MINUTE * 239).count, 0);
        assert_eq!(hour.bound("c", MINUTE * 239), BoundClaims::default());
        assert_eq!(hour.bound("other", MINUTE), BoundClaims::default());
    }

    #[test]
    fn classes_without_recent_claims_take_no_memory() {
        let hour = LastHour::default();
        for class in 0..100 {
            hour.record(&class.to_string(), MINUTE, MINUTE);
        }
        hour.record("new", MINUTE * 90, MINUTE);
        assert_eq!(hour.0.lock().unwrap().len(), 1);
        assert!(size_of::<Ring>() < 2048);
        hour.forget();
        assert_eq!(hour.bound("new", MINUTE * 90).count, 0);
    }

    #[test]
    fn a_count_stays_at_its_largest_value() {
        let mut ring = Ring::default();
        for _ in 0..70_000 {
            ring.record(MINUTE, MINUTE);
        }
        assert_eq!(ring.bound(MINUTE).count, u64::from(u16::MAX));
    }
}

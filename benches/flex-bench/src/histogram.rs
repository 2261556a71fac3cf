//! A histogram of the orchestrator's metrics.

/// The counts of a histogram without labels, by the upper limit of each bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The upper limits in seconds, and how many values each bucket and those below it have.
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Reads a histogram from metrics in the text format of Prometheus. One that is not there has no values.
    pub fn of(metrics: &str, name: &str) -> Histogram {
        let bucket = |line: &str| {
            let (labels, count) = line.strip_prefix(name)?.strip_prefix("_bucket{")?.split_once("} ")?;
            let limit = labels.split(',').find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'))?;
            Some((limit.parse().ok()?, count.trim().parse().ok()?))
        };
        Histogram { buckets: metrics.lines().filter_map(bucket).collect() }
    }

    /// Returns the values that have come since an earlier reading.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |limit| earlier.buckets.iter().find(|(of, _)| *of == limit).map_or(0.0, |(_, count)| *count);
        let new = |(limit, count): &(f64, f64)| (*limit, count - before(*limit));
        Histogram { buckets: self.buckets.iter().map(new).collect() }
    }

    /// Returns the number of values.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// Returns the value in seconds below which this part of all values is, as Prometheus does: it assumes that the
    /// values of a bucket lie evenly in it. Without values there is none.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * self.count();
        let (mut low, mut below) = (0.0, 0.0);
        for (limit, count) in &self.buckets {
            if *count >= rank && *count > below {
                // The last bucket has no limit.
                let inside = |limit: f64| low + (limit - low) * (rank - below) / (count - below);
                return Some(if limit.is_finite() { inside(*limit) } else { low });
            }
            (low, below) = (*limit, *count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE waits histogram\nwaits_sum 7.5\nwaits_count 10\nwaits_bucket{orchestrator=\"a\",le=\"1.0\"} 4\n\
        waits_bucket{le=\"2.0\"} 8\nwaits_bucket{le=\"+Inf\"} 10\nother_bucket{le=\"1.0\"} 99\n";

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let waits = Histogram::of(TEXT, "waits");
        assert_eq!((waits.count(), waits.quantile(0.5)), (10.0, Some(1.25)));
        assert_eq!(waits.quantile(0.99), Some(2.0), "the last limit that there is");
        assert_eq!(Histogram::of(TEXT, "missing").quantile(0.5), None);
    }

    #[test]
    fn only_new_values_count() {
        let (waits, earlier) = (Histogram::of(TEXT, "waits"), Histogram { buckets: vec![(1.0, 4.0), (2.0, 4.0)] });
        assert_eq!(waits.since(&earlier).buckets, [(1.0, 0.0), (2.0, 4.0), (f64::INFINITY, 10.0)]);
        assert_eq!(waits.since(&waits).quantile(0.5), None);
    }
}

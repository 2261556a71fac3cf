//! Percentiles.

use serde::Serialize;

/// The spread of values. With fewer than 100 values the 99th percentile is the largest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of these values.
    pub fn of(values: &[f64]) -> Self {
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| percentile(values, percent));
        Spread { p50, p90, p99, max }
    }
}

/// Returns a percentile: this many percent of the values are not above it.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let Spread { p50, p90, p99, max } = Spread::of(&values);
        assert_eq!([p50, p90, p99, max], [10.0, 18.0, 20.0, 20.0]);
        assert_eq!(percentile(&[7.0], 50), 7.0);
    }
}

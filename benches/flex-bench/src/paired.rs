//! Measurements in pairs: with something and without it, one directly after the other, so that slow changes of the machine
//! concern both.

/// A mean, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean; not a number if there is only one pair.
    pub error: f64,
}

/// Returns the mean of values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns by how many percent the first value of a pair is larger than the second one.
pub fn percents(with: &[f64], without: &[f64]) -> Estimate {
    let each: Vec<f64> = with.iter().zip(without).map(|(with, without)| 100.0 * (with - without) / without).collect();
    let (count, mean) = (each.len() as f64, mean(&each));
    let variance = each.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Estimate { mean, error: (variance / count).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_differences_and_not_of_the_values() {
        // +10 % and +20 %: the mean is 15 %, the deviation 7.07 %, and the error of the mean 5 %.
        let found = percents(&[11.0, 120.0], &[10.0, 100.0]);
        assert!((found.mean - 15.0).abs() < 1e-9 && (found.error - 5.0).abs() < 1e-9, "{found:?}");
        assert_eq!(percents(&[1.1, 11.0, 110.0], &[1.0, 10.0, 100.0]).error.round(), 0.0);
        assert!(percents(&[2.0], &[1.0]).error.is_nan());
    }
}

//! Ages, as kubectl prints them.

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Returns a time span in the two units that matter, or in one where the second does not matter any more.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let of = |unit: i64, sign: &str| format!("{}{sign}", seconds / unit);
    let with = |unit: i64, sign: &str, part: i64, of_part: &str| match seconds % unit / part {
        0 => of(unit, sign),
        rest => format!("{}{sign}{rest}{of_part}", seconds / unit),
    };
    match seconds {
        ..=119 => of(1, "s"),
        120..=599 => with(MINUTE, "m", 1, "s"),
        600..=10_799 => of(MINUTE, "m"),
        10_800..=28_799 => with(HOUR, "h", MINUTE, "m"),
        28_800..=172_799 => of(HOUR, "h"),
        172_800..=691_199 => with(DAY, "d", HOUR, "h"),
        691_200..=63_071_999 => of(DAY, "d"),
        63_072_000..=252_287_999 => with(YEAR, "y", DAY, "d"),
        _ => of(YEAR, "y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_kubectl_prints_them() {
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (599, "9m59s"),
            (600, "10m"),
            (726, "12m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_520, "3h12m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (432_000, "5d"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(age(seconds), expected, "{seconds}");
        }
    }
}

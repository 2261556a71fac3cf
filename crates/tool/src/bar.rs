//! Bars of how much of a limit is used.

/// The number of characters of a bar.
const WIDTH: u128 = 10;

/// Draws the used part of a limit, such as `███░░░░░░░`. Anything used shows, and only a reached limit is full.
pub(super) fn bar(used: u128, limit: u128) -> String {
    let filled = match (used, limit) {
        (0, _) => 0,
        (used, limit) if used >= limit => WIDTH,
        (used, limit) => (used * WIDTH / limit).clamp(1, WIDTH - 1),
    };
    let filled = usize::try_from(filled).unwrap_or_default();
    "█".repeat(filled) + &"░".repeat(WIDTH as usize - filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_empty_or_full_only_if_the_limit_is_unused_or_reached() {
        for (used, limit, filled) in
            [(0, 10, 0), (1, 1000, 1), (5, 10, 5), (999, 1000, 9), (10, 10, 10), (12, 10, 10), (1, 0, 10), (0, 0, 0)]
        {
            let bar = bar(used, limit);
            assert_eq!((bar.matches('█').count(), bar.chars().count()), (filled, 10), "{used}/{limit}");
        }
    }
}

//! The content of the status page: the JSON, and the only input of the HTML.
//!
//! Pure functions make it from observations. Each text of somebody else is cut, and its control characters are escaped.

pub mod claims;
pub mod configs;
pub mod failures;
pub mod findings;
pub mod overview;
pub mod runs;

use flex_core::text::line;
use serde::Serialize;

/// The largest number of rows in a list.
pub const MAX_ROWS: usize = 500;
/// The largest length of a name of somebody else, in bytes.
const MAX_NAME: usize = 320;
/// The largest length of a message of somebody else, in bytes.
const MAX_MESSAGE: usize = 2000;

/// Returns a name of somebody else for the page.
pub fn name(text: &str) -> String {
    line(text, MAX_NAME)
}

/// Returns a message of somebody else for the page.
pub fn message(text: &str) -> String {
    line(text, MAX_MESSAGE)
}

/// A page with its head.
#[derive(Clone, Debug, Serialize)]
pub struct Document<B> {
    /// What all pages have.
    pub head: Head,
    /// The content of this page.
    #[serde(flatten)]
    pub body: B,
}

/// The content of a page that has none but its head.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Nothing {}

/// The process that serves the page, and the numbers in the navigation.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The version of the process.
    pub version: &'static str,
    /// The name of the provisioner in StorageClasses.
    pub provisioner: String,
    /// The instance of the orchestrator.
    pub instance: String,
    /// The namespace of the orchestrator.
    pub namespace: String,
    /// The name of this replica.
    pub replica: String,
    /// This replica leads.
    pub leads: bool,
    /// The replica that the Lease names, if the Lease was read.
    pub leader: Option<String>,
    /// Each watch has listed once.
    pub is_ready: bool,
    /// The time of the observation, in seconds since 1970.
    pub at: i64,
    /// The time since the process began, in seconds.
    pub uptime: i64,
    /// The numbers in the navigation.
    pub counts: Counts,
}

/// The numbers in the navigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Claims that are not bound.
    pub claims: usize,
    /// Runs in progress that make no volume.
    pub runs: usize,
    /// Claims and volumes whose last run failed.
    pub failures: usize,
    /// Findings of the last sweep.
    pub findings: usize,
    /// All configs.
    pub configs: usize,
    /// Configs that are refused.
    pub refused: usize,
}

/// A list that is cut to [`MAX_ROWS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rows<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The number of rows that are left out.
    pub more: usize,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows { rows: Vec::new(), more: 0 }
    }
}

impl<T> Rows<T> {
    /// Cuts a list.
    pub fn cut(mut rows: Vec<T>) -> Self {
        let more = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        Rows { rows, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_and_says_how_much_is_left_out() {
        for (all, shown, more) in [(0, 0, 0), (MAX_ROWS, MAX_ROWS, 0), (MAX_ROWS + 7, MAX_ROWS, 7)] {
            let rows = Rows::cut(vec![1; all]);
            assert_eq!((rows.rows.len(), rows.more), (shown, more));
        }
    }

    #[test]
    fn texts_of_others_are_short_and_turn_no_direction() {
        assert_eq!(name("a\u{202e}b\nc"), "a\\u{202e}b\\nc");
        assert!(name(&"x".repeat(5000)).len() <= MAX_NAME);
        assert!(message(&"ß".repeat(5000)).len() <= MAX_MESSAGE);
    }
}

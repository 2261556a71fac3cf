//! The page `docs/reference/conformance-of-images.md` has a row for each config whose cases of conformance a test runs. The
//! test checks its rows, or writes them if `UPDATE_PAGES` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// The page with the results.
const PAGE: &str = "../../docs/reference/conformance-of-images.md";
/// Only one test of a process rewrites the page at a time.
static REWRITING: Mutex<()> = Mutex::new(());

/// The outcomes of all cases, as `flex-provisioner conformance -o json` prints them.
#[derive(Debug)]
pub struct Outcomes(Value);

/// A line of a table: the cell with the config, and the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    config: String,
    outcomes: String,
}

impl Outcomes {
    /// Reads the output of the command, in which no case has failed.
    ///
    /// # Errors
    /// With the cases that failed, or if the text is not such an output.
    pub fn read(output: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(output).map_err(|error| error.to_string())?;
        if document["cases"].as_array().is_none_or(Vec::is_empty) {
            return Err("there are no cases".into());
        }
        let outcomes = Outcomes(document);
        let failed: Vec<String> =
            outcomes.of("failed").map(|case| format!("{}: {}", case["id"], case["why"])).collect();
        if failed.is_empty() { Ok(outcomes) } else { Err(failed.join("\n")) }
    }

    fn of(&self, outcome: &str) -> impl Iterator<Item = &Value> {
        self.0["cases"].as_array().into_iter().flatten().filter(move |case| case["outcome"] == outcome)
    }

    /// Returns the number of cases that passed.
    pub fn passed(&self) -> usize {
        self.of("passed").count()
    }

    /// Returns the row of a config in `configmaps/`. `change` says how the config or the call differs from the shipped one;
    /// it may be empty.
    pub fn row(&self, config: &str, change: &str) -> Row {
        let name = Path::new(config).file_name().map_or(config.into(), |name| name.to_string_lossy());
        let (skipped, not_possible) = (self.list("skipped"), self.list("not-possible"));
        Row {
            config: format!("| [{name}](../../configmaps/{config}){change} |"),
            outcomes: format!(" {} |{skipped} |{not_possible} |", self.passed()),
        }
    }

    /// Returns the cell with the cases of an outcome, and their reasons.
    fn list(&self, outcome: &str) -> String {
        // The words about a capability are the same for all its cases, and the page says once why a case is not possible.
        let shown = |case: &Value| {
            let (id, why) = (case["id"].as_str().unwrap_or_default(), case["why"].as_str().unwrap_or_default());
            match outcome == "not-possible" || why.contains("capability") {
                true => format!("`{id}`"),
                false => format!("`{id}` ({why})"),
            }
        };
        let shown: Vec<String> = self.of(outcome).map(shown).collect();
        if shown.is_empty() { String::new() } else { format!(" {}", shown.join(", ")) }
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)
}

/// Returns the line before which new rows of a test go. `source` is the file that prints them.
fn end(source: &str) -> String {
    format!("\n<!-- printed from {source}: end -->\n")
}

/// Checks that the table of the page has the rows, or writes them into it. `source` is the file that prints them, `command`
/// the command of cargo that rewrites them.
///
/// # Panics
/// If the page has other rows, or cannot be read or written.
#[track_caller]
pub fn check(source: &str, rows: &[Row], command: &str) {
    let _one = REWRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(page()).expect("the page can be read");
    let renewed = rows.iter().fold(text.clone(), |text, row| with_row(&text, &end(source), row));
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(page(), &renewed).expect("the page can be written");
    } else {
        assert_eq!(text, renewed, "UPDATE_PAGES=1 {command}");
    }
}

/// Returns the configs in the table of the page, in the order of their rows. `source` is the file that prints them.
///
/// # Panics
/// If the page cannot be read, or has no such table.
pub fn configs(source: &str) -> Vec<String> {
    let text = fs::read_to_string(page()).expect("the page can be read");
    let table = text.split(&end(source)).next().filter(|table| table.len() < text.len());
    let table = table.and_then(|table| table.rsplit("begin -->").next()).expect("the page has the table");
    let config =
        |line: &str| Some(line.strip_prefix("| [")?.split_once("](../../configmaps/")?.1.split_once(')')?.0.to_owned());
    table.lines().filter_map(config).collect()
}

/// Puts a row into a page, in place of the one of the same config, or before a line.
fn with_row(text: &str, end: &str, Row { config, outcomes }: &Row) -> String {
    let line = format!("{config}{outcomes}");
    match text.lines().find(|line| line.starts_with(config.as_str())) {
        Some(old) => text.replacen(old, &line, 1),
        None => text.replacen(end, &format!("{line}\n{end}"), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_the_place_of_the_one_of_its_config_or_is_added() {
        let row = |config: &str| Row { config: format!("| {config} |"), outcomes: " 3 |".into() };
        let end = end("tests/x.rs");
        let text = format!("| a | 1 |\n| a with b | 2 |\n{end}");
        assert_eq!(with_row(&text, &end, &row("a")), format!("| a | 3 |\n| a with b | 2 |\n{end}"));
        assert_eq!(with_row(&text, &end, &row("a with b")), format!("| a | 1 |\n| a with b | 3 |\n{end}"));
        assert_eq!(with_row(&text, &end, &row("c")), format!("| a | 1 |\n| a with b | 2 |\n| c | 3 |\n{end}"));
    }

    #[test]
    fn outcomes_become_a_row_unless_a_case_failed() {
        let case = |id: &str, outcome: &str, why: &str| serde_json::json!({ "id": id, "outcome": outcome, "why": why });
        let output = |cases: &[Value]| serde_json::json!({ "cases": cases }).to_string();
        let good = [
            case("a", "passed", ""),
            case("b", "skipped", "the config does not declare the capability list"),
            case("c", "skipped", "no child"),
            case("d", "not-possible", "no files"),
        ];
        let row = Outcomes::read(&output(&good)).unwrap().row("recipes/x.yaml", " with y");
        assert_eq!(row.config, "| [x.yaml](../../configmaps/recipes/x.yaml) with y |");
        assert_eq!(row.outcomes, " 1 | `b`, `c` (no child) | `d` |");
        let bad = [&good[..], &[case("e", "failed", "it is late")]].concat();
        assert_eq!(Outcomes::read(&output(&bad)).unwrap_err(), "\"e\": \"it is late\"");
        for nothing in [&output(&[]), "", "{}"] {
            assert!(Outcomes::read(nothing).is_err(), "{nothing}");
        }
    }
}

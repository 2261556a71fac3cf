//! The tables of `docs/internals/rules.md`.

use flex_core::claim::decide::PRECONDITIONS;
use flex_core::rules::Rule as _;
use flex_core::tables::{self, Table};

use crate::{Part, code, in_one_line, table};

pub fn parts() -> Vec<Part> {
    let print = |_: &str, _: &str| tables::all().iter().map(section).collect::<String>() + "\n";
    let conditions = "crates/core/src/claim/decide/preconditions.rs";
    vec![
        Part { file: "docs/internals/rules.md", source: "crates/core/src/tables.rs", name: "", print },
        Part { file: "docs/internals/rules.md", source: conditions, name: "", print: |_, _| preconditions() },
    ]
}

/// Prints what must hold before an attempt.
fn preconditions() -> String {
    let rows = PRECONDITIONS.iter().zip(1..).map(|(of, number)| {
        let before: Vec<&str> = of.before.iter().map(|begins| begins.name()).collect();
        let rules: Vec<String> = of.rules.iter().map(|rule| code(rule.name())).collect();
        vec![number.to_string(), of.condition.to_owned(), before.join(", "), rules.join(", ")]
    });
    format!("\n{}\n", table(&["", "condition", "before", "rules"], rows))
}

fn section(of: &Table) -> String {
    let rows = of.rules.iter().map(|rule| {
        let lines: Vec<&str> = rule.documentation.lines().collect();
        vec![code(rule.name), in_one_line(&lines)]
    });
    format!(
        "\n## {}\n\n`object={}`\n\n{}",
        of.title,
        of.object,
        table(&["rule", "when it holds, and what it does"], rows)
    )
}

//! The tables of `docs/internals/rules.md`.

use flex_core::tables::{self, Table};

use crate::{Part, code, in_one_line, table};

pub fn parts() -> Vec<Part> {
    let print = |_: &str, _: &str| tables::all().iter().map(section).collect::<String>() + "\n";
    vec![Part { file: "docs/internals/rules.md", source: "crates/core/src/tables.rs", name: "", print }]
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

//! Parts of pages and manifests are printed from the code, between two markers, and a schema is printed as a whole. This
//! test compares them.
//!
//! `UPDATE_PAGES=1 cargo test --test pages` rewrites them.

mod alerts;
mod command_line;
mod config;
mod conformance;
mod contract_page;
mod metrics;
mod policies;
mod rules;
mod schema;
mod script;
mod troubleshooting;

use std::fs;
use std::path::{Path, PathBuf};

use flex_contract::documented::Documented;

/// The command that rewrites the pages.
const COMMAND: &str = "UPDATE_PAGES=1 cargo test --test pages";

/// A part of a file that follows from the code.
struct Part {
    /// The file, from the root of the repository.
    file: &'static str,
    /// The file of the code, as the markers name it.
    source: &'static str,
    /// The name of this part among several from this source; empty for the only part.
    name: &'static str,
    /// Prints the part, from the present text in the file.
    print: fn(part: &str, now: &str) -> String,
}

fn parts() -> Vec<Part> {
    [
        command_line::parts(),
        config::parts(),
        conformance::parts(),
        contract_page::parts(),
        metrics::parts(),
        policies::parts(),
        rules::parts(),
        script::parts(),
        troubleshooting::parts(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is two folders deep").to_path_buf()
}

/// Returns the lines before and after a part.
fn markers(part: &Part) -> [String; 2] {
    let name = if part.name.is_empty() { String::new() } else { format!(" ({})", part.name) };
    ["begin", "end"].map(|edge| {
        let text = format!("printed from {}{name}: {edge}", part.source);
        if part.file.ends_with(".md") { format!("<!-- {text} -->\n") } else { format!("  # {text}\n") }
    })
}

/// Returns the text of a file with a part as it should be.
fn renewed(part: &Part, text: &str) -> String {
    let [begin, end] = markers(part);
    let split = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let Some((before, (now, after))) = split else {
        panic!("{} lacks the lines `{}` and `{}`", part.file, begin.trim(), end.trim());
    };
    let printed = (part.print)(part.name, now);
    format!("{before}{begin}{printed}{end}{after}")
}

#[test]
fn each_printed_part_is_as_the_code_prints_it() {
    let update = std::env::var_os("UPDATE_PAGES").is_some();
    let mut stale = Vec::new();
    for part in parts() {
        let path = root().join(part.file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", part.file));
        let renewed = renewed(&part, &text);
        if renewed == text {
            continue;
        }
        let first = renewed.lines().zip(text.lines()).position(|(new, old)| new != old).unwrap_or_default();
        stale.push(format!("{}:{}: not as {} says", part.file, first + 1, part.source));
        if update {
            fs::write(&path, renewed).unwrap_or_else(|error| panic!("{}: {error}", part.file));
        }
    }
    assert!(stale.is_empty() || update, "{}\nThis command rewrites the pages: {COMMAND}", stale.join("\n"));
}

#[test]
fn each_marker_belongs_to_a_part() {
    let known: Vec<String> = parts().iter().flat_map(markers).collect();
    for file in parts().iter().map(|part| part.file) {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for line in text.lines().filter(|line| line.contains("printed from ") && line.contains(": ")) {
            assert!(known.contains(&format!("{line}\n")), "{file}: no part belongs to `{line}`");
        }
    }
}

/// Prints a text in code font, also one with backticks.
fn code(text: &str) -> String {
    match text.contains('`') {
        true => format!("`` {text} ``"),
        false => format!("`{text}`"),
    }
}

/// Prints a table in Markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells = cells.iter().map(|cell| match cell.as_str() {
            "" => " |".to_owned(),
            cell => format!(" {} |", cell.replace('|', "\\|")),
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    format!("{}{rule}{rows}", line(&head))
}

/// Prints the table of names with their documentation; `head` is the head of the first column.
fn documented(head: &str, all: &[Documented]) -> String {
    let rows = all.iter().map(|one| vec![code(one.name), in_one_line(one.doc)]);
    format!("\n{}\n", table(&[head, "meaning"], rows))
}

/// Joins the lines of a comment.
fn in_one_line(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Prints a definition in a list of Markdown: a name, and lines about it.
fn definition(name: &str, lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    format!("- **`{name}`**: {}\n", lines.join("\n  "))
}

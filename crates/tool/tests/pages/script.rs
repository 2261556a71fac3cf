//! The config in `docs/script.md`.

use crate::{Part, root};

const SOURCE: &str = "configmaps/script.yaml";

/// The largest number of lines of the example. It must fit on a screen.
const MAX_LINES: usize = 27;

pub fn parts() -> Vec<Part> {
    vec![Part { file: "docs/script.md", source: SOURCE, name: "", print: |_, _| example() }]
}

fn example() -> String {
    let text = std::fs::read_to_string(root().join(SOURCE)).expect("the example exists");
    // The line for editors is no part of the example.
    let (_, text) = text.split_once('\n').expect("the example has lines");
    let lines = text.lines().count();
    assert!(lines <= MAX_LINES, "{SOURCE} has {lines} lines, and at most {MAX_LINES} are promised");
    format!("\n```yaml\n{text}```\n\n")
}

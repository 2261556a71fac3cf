//! The cases in `docs/reference/conformance.md`.

use flex_desk::conformance::{Case, Possible};

use crate::{Part, code, table};

const SOURCE: &str = "crates/desk/src/conformance/case.rs";

pub fn parts() -> Vec<Part> {
    vec![Part { file: "docs/reference/conformance.md", source: SOURCE, name: "", print: |_, _| cases() }]
}

/// Prints a table of all cases, and a section for each.
fn cases() -> String {
    let link = |case: &Case| format!("[{}](#{})", code(case.id()), case.id());
    let word = |possible: Possible| match possible {
        Possible::Yes => "yes".to_owned(),
        Possible::ByList => format!("with {}", code("list")),
        Possible::No(_) => "no".to_owned(),
    };
    let rows = Case::ALL.iter().map(|case| {
        let needs = case.needs().map(code).unwrap_or_default();
        vec![link(case), needs, word(case.on_cluster()), word(case.with_external_storage())]
    });
    let section = |case: &Case| {
        let what: Vec<&str> = case.what().iter().map(|line| line.trim()).chain([case.expected()]).collect();
        let sentences = |text: &str| text.replace(". ", ".\n");
        format!(
            "\n## {}\n\n{}\n\n- **Why**: {}\n- **To mend a program**: {}\n",
            case.id(),
            sentences(&what.join(" ")),
            sentences(case.why()).replace('\n', "\n  "),
            sentences(case.mend()).replace('\n', "\n  ")
        )
    };
    let sections: String = Case::ALL.iter().map(section).collect();
    format!("\n{}{sections}\n", table(&["case", "needs the capability", "on a cluster", "with external storage"], rows))
}

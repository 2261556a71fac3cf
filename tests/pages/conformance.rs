//! The cases in `docs/reference/conformance.md`.

use flex_desk::conformance::{Case, OnCluster};

use crate::{Part, code, table};

const SOURCE: &str = "crates/desk/src/conformance/case.rs";

pub fn parts() -> Vec<Part> {
    vec![Part { file: "docs/reference/conformance.md", source: SOURCE, name: "", print: |_, _| cases() }]
}

/// Prints a table of all cases, and a section for each.
fn cases() -> String {
    let link = |case: &Case| format!("[{}](#{})", code(case.id()), case.id());
    let on_cluster = |case: &Case| match case.on_cluster() {
        OnCluster::Yes => "yes".to_owned(),
        OnCluster::ByList => format!("with {}", code("list")),
        OnCluster::No(_) => "no".to_owned(),
    };
    let rows =
        Case::ALL.iter().map(|case| vec![link(case), case.needs().map(code).unwrap_or_default(), on_cluster(case)]);
    let section = |case: &Case| {
        let what: Vec<&str> = case.what().iter().map(|line| line.trim()).collect();
        let sentences = |text: &str| text.replace(". ", ".\n");
        let not_possible = match case.on_cluster() {
            OnCluster::No(why) => format!("- **On a cluster**: Not possible, because {why}.\n"),
            OnCluster::ByList => "- **On a cluster**: A list run shows what the storage has.\n".to_owned(),
            OnCluster::Yes => String::new(),
        };
        format!(
            "\n## {}\n\n{}\n\n- **Why**: {}\n- **To mend a program**: {}\n{not_possible}",
            case.id(),
            sentences(&what.join(" ")),
            sentences(case.why()).replace('\n', "\n  "),
            sentences(case.mend()).replace('\n', "\n  ")
        )
    };
    let sections: String = Case::ALL.iter().map(section).collect();
    format!("\n{}{sections}\n", table(&["case", "needs the capability", "on a cluster"], rows))
}

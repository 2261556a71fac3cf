//! The cases in `docs/reference/conformance.md`.

use flex_desk::conformance::{Case, Possible};

use crate::{Part, code};

const SOURCE: &str = "crates/desk/src/conformance/case.rs";

pub fn parts() -> Vec<Part> {
    vec![Part { file: "docs/reference/conformance.md", source: SOURCE, name: "", print: |_, _| cases() }]
}

/// Prints where some cases are not possible, and a section for each case.
fn cases() -> String {
    let sections: String = Case::ALL.iter().map(|case| section(*case)).collect();
    format!(
        "\n{}{}{sections}\n",
        limits("On a cluster", Case::on_cluster),
        limits("With external storage", Case::with_external_storage)
    )
}

/// Prints the cases that are not possible in a place, or need a list run there.
fn limits(place: &str, part: fn(Case) -> Possible) -> String {
    let those = |wanted: fn(Possible) -> bool| {
        let ids = Case::ALL.iter().filter(|case| wanted(part(**case))).map(|case| code(case.id()));
        ids.collect::<Vec<_>>().join(", ")
    };
    format!(
        "- {place} not: {}; only with the capability `list`: {}.\n",
        those(|part| matches!(part, Possible::No(_))),
        those(|part| part == Possible::ByList)
    )
}

fn section(case: Case) -> String {
    let what: Vec<&str> = case.what().iter().map(|line| line.trim()).chain([case.expected()]).collect();
    let sentences = |text: &str| text.replace(". ", ".\n");
    let needs = case.needs().map(|needs| format!("Needs the capability {}.\n", code(needs))).unwrap_or_default();
    format!(
        "\n## {}\n\n{needs}{}\n\n- **Why**: {}\n- **Mend**: {}\n",
        case.id(),
        sentences(&what.join(" ")),
        sentences(case.why()).replace('\n', "\n  "),
        sentences(case.mend()).replace('\n', "\n  ")
    )
}

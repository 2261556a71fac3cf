//! The tables of `docs/troubleshooting.md`.

use flex_contract::cause;
use flex_contract::reason::{self, Level, Object, Reason};
use flex_provisioner::findings::{FindingKind, Severity};

use crate::{Part, code, documented, in_one_line, table};

pub fn parts() -> Vec<Part> {
    let part =
        |name, print| Part { file: "docs/troubleshooting.md", source: "crates/contract/src/reason.rs", name, print };
    vec![
        part("claims", |_, _| events(&[(Object::Claim, "claim")])),
        part("snapshots", |_, _| events(&[(Object::Snapshot, "snapshot")])),
        part("others", |_, _| {
            events(&[(Object::Volume, "volume"), (Object::Config, "ConfigMap"), (Object::Run, "Job")])
        }),
        Part {
            file: "docs/troubleshooting.md",
            source: "crates/contract/src/cause.rs",
            name: "",
            print: |_, _| documented("cause", cause::ALL),
        },
        Part {
            file: "docs/troubleshooting.md",
            source: "crates/core/src/findings/kind.rs",
            name: "",
            print: |_, _| findings(),
        },
    ]
}

/// Prints the reasons of events on these kinds of objects; the first column names the kind, if there are several.
fn events(objects: &[(Object, &str)]) -> String {
    let of = |object: Object| reason::ALL.iter().copied().filter(move |reason| reason.on.contains(&object));
    let named = objects.len() > 1;
    let row = |on: &str, reason: &Reason| {
        let on = named.then(|| on.to_owned());
        let rest =
            [code(reason.name), level(reason.level).to_owned(), in_one_line(reason.doc), reason.remedy.to_owned()];
        on.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let rows: Vec<_> = objects.iter().flat_map(|(object, on)| of(*object).map(move |reason| row(on, reason))).collect();
    let head = ["on", "reason", "type", "meaning", "what to do"];
    format!("\n{}\n", table(&head[usize::from(!named)..], rows))
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Normal => "Normal",
        Level::Warning => "Warning",
        Level::Either => "either",
    }
}

/// Prints a section for each severity, the most severe first.
fn findings() -> String {
    let sections = [("Errors", Severity::Error), ("Warnings", Severity::Warning), ("Worth knowing", Severity::Info)];
    let section = |(title, severity): (&str, Severity)| {
        let kinds = FindingKind::ALL.iter().map(|kind| kind.spec()).filter(|spec| spec.severity == severity);
        let rows = kinds.map(|spec| vec![code(spec.name), in_one_line(spec.doc), spec.remedy.to_owned()]);
        format!("\n### {title}\n\n{}", table(&["kind", "meaning", "what to do"], rows))
    };
    sections.into_iter().map(section).collect::<String>() + "\n"
}

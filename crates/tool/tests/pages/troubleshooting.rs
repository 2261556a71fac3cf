//! The tables of `docs/troubleshooting.md`.

use flex_contract::cause;
use flex_contract::reason::{self, Level, Object};
use flex_core::findings::{FindingKind, Severity};

use crate::{Part, code, documented, in_one_line, table};

pub fn parts() -> Vec<Part> {
    vec![
        Part {
            file: "docs/troubleshooting.md",
            source: "crates/contract/src/reason.rs",
            name: "",
            print: |_, _| events(),
        },
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

/// Prints the reasons of events, each with the kinds of objects that have such events.
fn events() -> String {
    let kinds = [
        (Object::Claim, "claim"),
        (Object::Volume, "volume"),
        (Object::Snapshot, "snapshot"),
        (Object::Config, "ConfigMap"),
        (Object::Run, "Job"),
    ];
    let rows = reason::ALL.iter().map(|reason| {
        let on: Vec<&str> =
            kinds.iter().filter(|(object, _)| reason.on.contains(object)).map(|(_, kind)| *kind).collect();
        vec![
            code(reason.name),
            on.join(", "),
            level(reason.level).to_owned(),
            in_one_line(reason.doc),
            reason.remedy.to_owned(),
        ]
    });
    format!("\n{}\n", table(&["reason", "on", "type", "meaning", "what to do"], rows))
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

//! The tables of keys in `docs/config.md`.

use flex_core::config::capability;
use flex_core::config::keys::{self, Group, KeySpec};

use crate::{Part, code, definition, documented, table};

const SOURCE: &str = "crates/core/src/config/keys/table.rs";

pub fn parts() -> Vec<Part> {
    let part = |name, print| Part { file: "docs/config.md", source: SOURCE, name, print };
    vec![
        part("what runs", |_, _| group(Group::Program)),
        part("where and how", |_, _| group(Group::Placement)),
        part("which claims, which volumes", |_, _| group(Group::Volumes)),
        part("limits", |_, _| group(Group::Limits)),
        part("pools", |_, _| group(Group::Pools)),
        part("a StorageClass may set", |_, _| listed(|key| key.class_may_set)),
        part("no matter for a volume", |_, _| listed(|key| !key.affects_volume)),
        Part {
            file: "docs/operations.md",
            source: SOURCE,
            name: "taken from the class",
            print: |_, _| listed(|key| key.follows_class),
        },
        Part {
            file: "docs/config.md",
            source: "crates/contract/src/capability.rs",
            name: "",
            print: |_, _| documented("capability", capability::ALL),
        },
    ]
}

/// Prints the table of a group, and after it the text of each key. The errors say by themselves what to do.
fn group(group: Group) -> String {
    let keys: Vec<&KeySpec> = keys::ALL.iter().copied().filter(|key| key.group == group).collect();
    let rows = keys.iter().map(|key| vec![name(key), key.value.to_owned(), key.default.to_owned(), code(key.example)]);
    let docs: String = keys.iter().map(|key| definition(key.name, key.doc)).collect();
    format!("\n{}\n{docs}\n", table(&["key", "value", "default", "example"], rows))
}

/// Prints the name of a key, as a link to the section that says more.
fn name(key: &KeySpec) -> String {
    match key.section {
        "" => code(key.name),
        section => format!("[{}](#{section})", code(key.name)),
    }
}

/// Prints the names of some keys.
fn listed(which: fn(&KeySpec) -> bool) -> String {
    let names: Vec<String> = keys::ALL.iter().filter(|key| which(key)).map(|key| code(key.name)).collect();
    let (last, others) = names.split_last().expect("some keys match");
    let mut lines = vec![String::new()];
    for word in others.iter().map(|name| format!("{name},")).chain([format!("and {last}.")]) {
        let line = lines.last_mut().expect("there is a line");
        match line.len() + word.len() < 130 {
            true => *line = format!("{line} {word}").trim().to_owned(),
            false => lines.push(word),
        }
    }
    format!("\n{}\n\n", lines.join("\n"))
}

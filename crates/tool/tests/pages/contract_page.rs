//! The variables and exit codes in `docs/contract.md`.

use flex_contract::exit;
use flex_contract::variable::{self, Group};

use crate::{Part, code, in_one_line, table};

pub fn parts() -> Vec<Part> {
    let part = |source, print| Part { file: "docs/contract.md", source, name: "", print };
    vec![
        part("crates/contract/src/variable.rs", |_, _| variables()),
        part("crates/contract/src/exit.rs", |_, _| exit_codes()),
    ]
}

/// Prints a table for each group, with its title, and a sentence about the whole group.
fn variables() -> String {
    let source = "These variables are empty in runs of other kinds, except for [delete runs without a PersistentVolume](#a-delete-run-without-a-persistentvolume).";
    let groups = [
        (Group::Operation, "The operation", ""),
        (Group::Claim, "The claim", ""),
        (Group::Volume, "The volume", ""),
        (Group::DataSource, "The data source", source),
        (Group::Attributes, "Attributes", ""),
        (Group::Place, "The place", ""),
        (Group::Config, "The config", ""),
    ];
    let section = |(group, title, about): (Group, &str, &str)| {
        let of_group = variable::ALL.iter().filter(|variable| variable.group == group);
        let rows = of_group.map(|variable| vec![code(variable.name), in_one_line(variable.doc)]);
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        format!("\n**{title}**\n\n{about}{}", table(&["variable", "value"], rows))
    };
    groups.into_iter().map(section).collect::<String>() + "\n"
}

fn exit_codes() -> String {
    let rows = exit::ALL
        .iter()
        .map(|known| vec![known.code.to_string(), code(known.name), in_one_line(known.doc), known.follows.to_owned()]);
    format!("\n{}\n", table(&["code", "name", "meaning", "what follows"], rows))
}

//! The commands in `docs/command-line.md`, and the flags of the orchestrator in `docs/operations.md`.

use clap::{Arg, ArgAction, Command};
use flex_core::claim::timeline::Stage;
use strum::IntoEnumIterator as _;

use crate::{Part, code, table};

const SOURCE: &str = "crates/tool/src";

pub fn parts() -> Vec<Part> {
    vec![
        Part { file: "docs/command-line.md", source: SOURCE, name: "commands", print: |_, _| commands() },
        Part {
            file: "docs/command-line.md",
            source: "crates/core/src/claim/timeline.rs",
            name: "",
            print: |_, _| stages(),
        },
        Part {
            file: "docs/operations.md",
            source: "src/orchestrate.rs",
            name: "",
            print: |_, _| flags_of_orchestrator(),
        },
    ]
}

/// An argument of more commands than these is named once, beside the table.
const FEW: usize = 4;

/// Prints all commands, each with the arguments that few others have.
fn commands() -> String {
    let command = flex_tool::command();
    let commands: Vec<&Command> = command.get_subcommands().collect();
    let all: Vec<String> = commands.iter().copied().flat_map(names).collect();
    let rows = commands.iter().map(|command| {
        let about = command.get_about().expect("each command says what it does").to_string();
        let mut own = names(command);
        own.retain(|argument| all.iter().filter(|other| *other == argument).count() <= FEW);
        own.sort();
        vec![code(command.get_name()), sentence(&about), own.join(", ")]
    });
    format!("\n{}\n", table(&["command", "what it does", "arguments"], rows))
}

fn names(command: &Command) -> Vec<String> {
    command.get_arguments().map(name).collect()
}

fn stages() -> String {
    let rows = Stage::iter().map(|stage| {
        let what = stage.documentation().trim().to_owned();
        vec![stage.words().to_owned(), code(stage.name()), what, stage.worker().to_owned()]
    });
    format!("\n{}\n", table(&["stage", "in documents", "what has happened", "whose work it was until then"], rows))
}

/// Returns a text of the command line with the full stop that it lacks.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// Returns the long name of an argument, or the word for its value.
fn name(arg: &Arg) -> String {
    assert!(arg.get_help().is_some(), "{}: each argument says what it means", arg.get_id());
    let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
    if let Some(long) = arg.get_long() {
        return code(&format!("--{long}"));
    }
    let word = if value.is_empty() { arg.get_id().as_str().to_uppercase() } else { value };
    let more = if matches!(arg.get_action(), ArgAction::Append) { "…" } else { "" };
    code(&format!("{word}{more}"))
}

fn flags_of_orchestrator() -> String {
    let command = flex_provisioner::orchestrate::command();
    let rows = command.get_arguments().map(|arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        // A default that is no text is in the help.
        let (meaning, in_words) = match help.split_once(" [default: ") {
            Some((meaning, default)) => (meaning, default.trim_end_matches(['.', ']']).to_owned()),
            None => (help.as_str(), String::new()),
        };
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let defaults = arg.get_default_values().iter().filter(|_| takes_value);
        let default = defaults.map(|value| code(&value.to_string_lossy())).next().unwrap_or(in_words);
        let variable = arg.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
        vec![name(arg), variable, default, sentence(meaning)]
    });
    format!("\n{}\n", table(&["flag", "variable", "default", "meaning"], rows))
}

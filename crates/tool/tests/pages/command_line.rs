//! The commands and flags in `docs/command-line.md`, and the flags of the orchestrator in `docs/operations.md`.

use clap::{Arg, ArgAction, Command};
use flex_core::claim::timeline::Stage;
use strum::IntoEnumIterator as _;

use crate::{Part, code, table};

const SOURCE: &str = "crates/tool/src";

pub fn parts() -> Vec<Part> {
    let page = |name, print| Part { file: "docs/command-line.md", source: SOURCE, name, print };
    vec![
        page("commands", |_, _| commands()),
        page("flags", |_, _| flags()),
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

fn commands() -> String {
    let command = flex_tool::command();
    let rows = command.get_subcommands().map(|command| {
        let about = command.get_about().expect("each command says what it does").to_string();
        vec![code(command.get_name()), sentence(&about)]
    });
    format!("\n{}\n", table(&["command", "what it does"], rows))
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

/// An argument after the name of a command.
struct Argument {
    flag: String,
    variable: String,
    default: String,
    meaning: String,
}

fn given(arg: &Arg) -> Argument {
    let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("{}, {}", code(&format!("-{short}")), code(&format!("--{long}"))),
        (None, Some(long)) => code(&format!("--{long}")),
        _ => {
            let name = if value.is_empty() { arg.get_id().as_str().to_uppercase() } else { value };
            let more = if matches!(arg.get_action(), ArgAction::Append) { "…" } else { "" };
            code(&format!("{name}{more}"))
        }
    };
    let help = arg.get_help().expect("each flag says what it means").to_string();
    // A default that is no text is in the help.
    let (meaning, in_words) = match help.split_once(" [default: ") {
        Some((meaning, default)) => (meaning, default.trim_end_matches(['.', ']']).to_owned()),
        None => (help.as_str(), String::new()),
    };
    let defaults = arg.get_default_values().iter().filter(|_| takes_value);
    let default = defaults.map(|value| code(&value.to_string_lossy())).next().unwrap_or(in_words);
    let variable = arg.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    Argument { flag, variable, default, meaning: sentence(meaning) }
}

fn flags_of_orchestrator() -> String {
    let command = flex_provisioner::orchestrate::command();
    let rows =
        command.get_arguments().map(given).map(|given| vec![given.flag, given.variable, given.default, given.meaning]);
    format!("\n{}\n", table(&["flag", "variable", "default", "meaning"], rows))
}

/// Prints the flags of all commands. A flag with one meaning and default stands once, with its commands.
fn flags() -> String {
    let command = flex_tool::command();
    let commands: Vec<&Command> = command.get_subcommands().collect();
    let all: Vec<&str> = commands.iter().map(|command| command.get_name()).collect();
    let mut rows: Vec<(Vec<&str>, Argument)> = Vec::new();
    for command in &commands {
        for given in command.get_arguments().map(given) {
            let same = |(_, known): &&mut (_, Argument)| {
                (&known.flag, &known.default, &known.meaning) == (&given.flag, &given.default, &given.meaning)
            };
            match rows.iter_mut().find(same) {
                Some((names, _)) => names.push(command.get_name()),
                None => rows.push((vec![command.get_name()], given)),
            }
        }
    }
    let row = |of: String, given: Argument| vec![given.flag, of, given.variable, given.default, given.meaning];
    let of_all = command.get_arguments().map(given).map(|given| row("all".to_owned(), given));
    let rows = of_all.chain(rows.into_iter().map(|(names, given)| row(named(&names, &all), given)));
    format!("\n{}\n", table(&["flag", "of", "variable", "default", "meaning"], rows))
}

/// Names commands; of many that follow each other in the list of all, only the first and the last.
fn named(names: &[&str], all: &[&str]) -> String {
    match names {
        [first, .., last] if names.len() > 10 && all.windows(names.len()).any(|some| some == names) => {
            format!("{} to {}", code(first), code(last))
        }
        _ => names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", "),
    }
}

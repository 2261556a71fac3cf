//! The completion of `kubectl flex`.
//!
//! kubectl knows no commands of its plugins. It looks for a program `kubectl_complete-flex` and gives it the words after
//! `kubectl flex`, the last one perhaps unfinished. The program prints a line for each candidate, and a last line with
//! what the shell must know, as programs do that are built with the Go library Cobra.

pub(super) mod candidates;
mod line;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use clap_complete::CompletionCandidate;
use clap_complete::engine;
use flex_core::text::line as printable;

use self::line::Line;
use crate::contexts;
use crate::name::PLUGIN_FILE;
use crate::out::say;

/// The first argument by which the program completes the words after it.
pub(super) const COMPLETE: &str = "__complete";
/// The program that kubectl starts to complete the words after `kubectl flex`.
pub(super) const SCRIPT: &str = "\
#!/bin/sh
# kubectl starts this program as kubectl_complete-flex, to complete the words after `kubectl flex`.
exec kubectl-flex __complete \"$@\"";

/// Cobra's number for: add no space after the candidate.
const NO_SPACE: u8 = 2;
/// Cobra's number for: do not offer the files of the folder.
const NO_FILES: u8 = 4;

/// Prints the candidates for the last of the words.
pub(super) fn complete(words: Vec<OsString>, mut command: Command) -> anyhow::Result<ExitCode> {
    let (current, before) = words.split_last().map_or((OsString::new(), &[][..]), |(last, rest)| (last.clone(), rest));
    let line = Line::read(&command, before);
    contexts::complete_from(line.cluster.as_ref().and_then(|cluster| cluster.kubeconfig().cloned()));
    candidates::complete_for(line);
    let args: Vec<OsString> =
        [PLUGIN_FILE.into()].into_iter().chain(before.iter().cloned()).chain([current.clone()]).collect();
    let (last, folder) = (args.len() - 1, std::env::current_dir().ok());
    let found = engine::complete(&mut command, args, last, folder.as_deref()).unwrap_or_default();
    let is_flag = |text: &str| text.starts_with('-');
    let wants_flags = is_flag(&current.to_string_lossy());
    let shown: Vec<_> = found.iter().map(Shown::of).filter(|shown| wants_flags || !is_flag(&shown.value)).collect();
    for Shown { value, help } in &shown {
        match help.is_empty() {
            true => say!("{value}"),
            false => say!("{value}\t{help}"),
        }
    }
    // The files and folders among the candidates come from here.
    let is_open = !shown.is_empty() && shown.iter().all(|shown| shown.value.ends_with(['/', '=']));
    say!(":{}", NO_FILES | if is_open { NO_SPACE } else { 0 });
    Ok(ExitCode::SUCCESS)
}

/// A candidate as text.
struct Shown {
    value: String,
    help: String,
}

impl Shown {
    fn of(candidate: &CompletionCandidate) -> Self {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        Shown {
            value: printable(&candidate.get_value().to_string_lossy(), usize::MAX),
            help: printable(help, usize::MAX),
        }
    }
}

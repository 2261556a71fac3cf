//! `completion` and `man`: what other programs know of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::complete::SCRIPT;
use crate::name::{PLUGIN_FILE, is_plugin};
use crate::out::say;

#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell; or `kubectl`, for the file kubectl_complete-flex.
    #[arg(value_enum)]
    shell: Reader,
}

/// The reader of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reader {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    Kubectl,
}

impl Reader {
    /// Returns the shell; `None` for kubectl.
    fn shell(self) -> Option<Shell> {
        Some(match self {
            Reader::Bash => Shell::Bash,
            Reader::Elvish => Shell::Elvish,
            Reader::Fish => Shell::Fish,
            Reader::PowerShell => Shell::PowerShell,
            Reader::Zsh => Shell::Zsh,
            Reader::Kubectl => return None,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The directory for the pages. The command creates it if it does not exist.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Prints the completion for a shell. It is for the file that was started, because shells know no plugins of kubectl.
pub(super) fn completion(args: CompletionArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    let Some(shell) = args.shell.shell() else {
        say!("{SCRIPT}");
        return Ok(ExitCode::SUCCESS);
    };
    let file = if is_plugin() { PLUGIN_FILE.to_owned() } else { command.get_name().to_owned() };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, file, &mut script);
    let script = String::from_utf8(script).context("the completion is no text")?;
    say!("{}", script.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Writes a page of the manual for the program, and one for each command.
pub(super) fn man(args: ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    let ManArgs { directory } = args;
    let failed = || format!("the pages cannot be written into {}", directory.display());
    std::fs::create_dir_all(&directory).with_context(failed)?;
    clap_mangen::generate_to(command, &directory).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}

//! The check of a script by the shell of this machine, and by shellcheck where it is installed.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

/// A message about a line of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remark {
    /// The line in the script, from 1.
    pub line: u64,
    /// The script cannot run.
    pub is_error: bool,
    /// The message.
    pub message: String,
}

/// Checks a script. Without a shell on this machine, nothing is found.
pub(super) fn remarks(script: &str) -> Vec<Remark> {
    match fed("sh", &["-n"], script).and_then(|output| syntax(&output)) {
        // The linter would report the same mistake in other words.
        Some(error) => vec![error],
        None => linted(script),
    }
}

/// Runs a program with a script as its standard input. Returns `None` if it is not installed.
fn fed(program: &str, arguments: &[&str], script: &str) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut input = child.stdin.take()?;
    std::thread::scope(|scope| {
        // A program may end before it has read everything.
        scope.spawn(move || drop(input.write_all(script.as_bytes())));
        child.wait_with_output().ok()
    })
}

/// Returns the syntax error that a shell reports.
fn syntax(output: &Output) -> Option<Remark> {
    if output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().next().unwrap_or_default();
    let ShellMessage { line, text: message } = place(first);
    Some(Remark { line, is_error: true, message: format!("the shell cannot read it: {message}") })
}

/// A message of a shell.
#[derive(Debug, PartialEq)]
struct ShellMessage<'a> {
    line: u64,
    text: &'a str,
}

/// Divides a message such as `sh: 3: Syntax error` or `sh: line 3: syntax error` into its line and its text.
fn place(text: &str) -> ShellMessage<'_> {
    let mut rest = text;
    while let Some((start, after)) = rest.split_once(": ") {
        if let Ok(line) = start.trim_start_matches("line ").parse() {
            return ShellMessage { line, text: after };
        }
        rest = after;
    }
    ShellMessage { line: 1, text }
}

/// A comment of shellcheck.
#[derive(Deserialize)]
struct Comment {
    line: u64,
    level: String,
    code: u64,
    message: String,
}

/// Returns what shellcheck says, without its hints on style.
fn linted(script: &str) -> Vec<Remark> {
    let Some(output) = fed("shellcheck", &["--shell=sh", "--format=json", "-"], script) else { return Vec::new() };
    let comments: Vec<Comment> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let matters = |comment: &Comment| matches!(comment.level.as_str(), "error" | "warning");
    let remark = |Comment { line, code, message, .. }| Remark {
        line,
        is_error: false,
        message: format!("shellcheck SC{code}: {message}"),
    };
    comments.into_iter().filter(matters).map(remark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_syntax_error_is_read_from_the_message_of_each_shell() {
        for (message, line, text) in [
            ("sh: 3: Syntax error: \"fi\" unexpected", 3, "Syntax error: \"fi\" unexpected"),
            ("sh: line 12: syntax error near `fi'", 12, "syntax error near `fi'"),
            ("sh: syntax error: unterminated quote", 1, "sh: syntax error: unterminated quote"),
        ] {
            assert_eq!(place(message), ShellMessage { line, text });
        }
    }

    #[test]
    fn a_script_that_the_shell_cannot_read_is_an_error() {
        let [Remark { line: 3, is_error: true, message }] = &remarks("set -eu\nif true; then\nfi\n")[..] else {
            panic!("{:?}", remarks("set -eu\nif true; then\nfi\n"));
        };
        assert!(message.starts_with("the shell cannot read it: "), "{message}");
        let long = "true\n".repeat(13_000);
        assert_eq!(remarks(&long), []);
    }
}

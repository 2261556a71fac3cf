//! Standard output and standard error of the subcommands.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::process::exit;

use anstream::{AutoStream, ColorChoice};
use flex_core::text::output;

use super::name::name;

/// The exit code of a command whose reader left: that of a program that the signal `SIGPIPE` has ended.
const NOBODY_READS: i32 = 141;

/// Writes a line, without characters that act on a terminal. Ends the process without a word if nobody reads on, as with
/// `| head`.
pub(super) fn line(text: Arguments<'_>) {
    let text = text.to_string();
    let text = output(&text, colours());
    let Err(error) = writeln!(std::io::stdout().lock(), "{text}") else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        aside(format_args!("{}: standard output cannot be written: {error}", name()));
        exit(1)
    }
    exit(NOBODY_READS)
}

/// Writes a line to standard error, without characters that act on a terminal. The command goes on if nobody reads it.
pub(super) fn aside(text: Arguments<'_>) {
    let _ = write_aside(&mut std::io::stderr().lock(), text);
}

fn write_aside(to: &mut impl Write, text: Arguments<'_>) -> std::io::Result<()> {
    // No remark has colours.
    writeln!(to, "{}", output(&text.to_string(), false))
}

/// Checks whether standard output shows colours: it is a terminal, and nobody has said otherwise by `NO_COLOR`.
pub(super) fn colours() -> bool {
    AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

/// Writes a line to standard output, formatted as by `println!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::out::line(format_args!($($text)*)) };
}
pub(super) use say;

/// Writes a line to standard error, formatted as by `eprintln!`.
macro_rules! remark {
    ($($text:tt)*) => { $crate::cli::out::aside(format_args!($($text)*)) };
}
pub(super) use remark;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_acts_on_no_terminal() {
        let mut written = Vec::new();
        let text = "\u{1b}[1mred\u{1b}[2J\u{7}\u{202e}";
        write_aside(&mut written, format_args!("it says: {text}")).unwrap();
        let expected = "it says: \\u001b[1mred\\u001b[2J\\u0007\\u202e\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    /// A text of others elsewhere would reach the terminal as it is.
    #[test]
    fn only_this_file_writes_to_the_terminal() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli"))];
        let (mut found, mut seen) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|ending| ending == "rs") && !entry.ends_with("cli/out.rs") {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    let writes = ["print!(", "println!(", "dbg!(", "io::stderr", "stderr()"];
                    found.extend(writes.iter().any(|writes| text.contains(writes)).then_some(entry));
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen} files are seen");
        assert!(found.is_empty(), "write by `say!` or `remark!`: {found:?}");
    }
}

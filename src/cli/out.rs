//! Standard output of the subcommands.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::process::exit;

use anstream::{AutoStream, ColorChoice};

use super::name::name;
use crate::text::output;

/// The exit code of a command whose reader left: that of a program that the signal `SIGPIPE` has ended.
const NOBODY_READS: i32 = 141;

/// Writes a line, without characters that act on a terminal. Ends the process without a word if nobody reads on, as with
/// `| head`.
pub(super) fn line(text: Arguments<'_>) {
    let text = text.to_string();
    let text = output(&text, colours());
    let Err(error) = writeln!(std::io::stdout().lock(), "{text}") else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        eprintln!("{}: standard output cannot be written: {error}", name());
        exit(1)
    }
    exit(NOBODY_READS)
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

//! Standard output and standard error of the subcommands.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::process::exit;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use flex_core::text::output;

use crate::name::name;

/// The exit code of a command whose reader left: that of a program that the signal `SIGPIPE` has ended.
const NOBODY_READS: i32 = 141;

/// When standard output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Colours {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always, also in a pipe.
    Always,
    /// Never.
    Never,
}

impl Colours {
    /// Makes the choice for this process.
    pub(super) fn choose(self) {
        let choice = match self {
            Colours::Auto => ColorChoice::Auto,
            Colours::Always => ColorChoice::Always,
            Colours::Never => ColorChoice::Never,
        };
        choice.write_global();
    }
}

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

/// Checks whether standard output shows colours: by `--color`, or because it is a terminal and nobody has set
/// `NO_COLOR`.
pub(super) fn colours() -> bool {
    AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

/// Returns the number of columns of the terminal; `None` where standard output is none, and lines may have any length.
pub(super) fn width() -> Option<usize> {
    let (columns, _) = std::io::stdout().is_terminal().then(crossterm::terminal::size)?.ok()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Writes a line to standard output, formatted as by `println!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(super) use say;

/// Writes a line to standard error, formatted as by `eprintln!`.
macro_rules! remark {
    ($($text:tt)*) => { $crate::out::aside(format_args!($($text)*)) };
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
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let (mut found, mut seen) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|ending| ending == "rs") && !entry.ends_with("src/out.rs") {
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

    /// The lines that print another error than one of the library, each by its file and a part of the line.
    const OTHERS: &[(&str, &str)] = &[
        // Errors of writes say by `says` what the API server refuses.
        ("crates/tool/src/adopt/mod.rs", "work.writes.move_in(&fresh, mapping)"),
        ("crates/tool/src/adopt/mod.rs", "its record is written, its mark is not"),
        ("crates/tool/src/adopt/undo.rs", "its mark is gone, its record is not"),
        ("crates/tool/src/adopt/work.rs", "self.writes.read_volume(name)"),
        ("crates/tool/src/adopt/work.rs", "self.writes.read_claim("),
        ("crates/tool/src/adopt/work.rs", "self.writes.remove_adoption_mark(volume)"),
        ("crates/tool/src/adopt/work.rs", "its mark could not be written again ({error})"),
        ("crates/tool/src/import.rs", "work.writes.validate_import(made)"),
        ("crates/tool/src/import.rs", "work.writes.import(made)"),
        ("crates/tool/src/import.rs", "its record is written, its mark is not"),
        ("crates/tool/src/import.rs", "its mark is gone: run this command again"),
        // Errors of the desk have theirs from `broken`, which uses `says`.
        ("crates/tool/src/desk/on_cluster/place.rs", "self.delete_job(&name)"),
        ("crates/tool/src/desk/on_cluster/place.rs", "self.end_pods(&self.ours())"),
        ("crates/tool/src/desk/on_cluster/place.rs", "storage that no list run could show"),
        ("crates/tool/src/desk/on_cluster/mount/mod.rs", "{name} of a mount, perhaps: {error}"),
        // These are no errors of the library, or are not printed.
        ("src/api/client.rs", "ParseNoProxy"),
        ("crates/tool/src/out.rs", "standard output cannot be written"),
        ("crates/tool/src/status/asked.rs", "the answer cannot be read: {error}"),
        ("crates/tool/src/desk/on_cluster/source.rs", "texts.map_err("),
        ("crates/tool/src/doctor/list.rs", "listing::read(&log)"),
        ("crates/tool/src/import.rs", "size => size.map_err("),
    ];

    /// Returns the sources of commands and of the access to the API without their tests, each with its path.
    fn sources() -> Vec<(String, String)> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let (mut found, mut folders) = (Vec::new(), vec![root.join("crates/tool/src"), root.join("src/api")]);
        let mut files = vec![root.join("src/page/observe.rs"), root.join("src/orchestrate.rs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for path in files {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name.ends_with(".rs") && !name.contains("test") && name != "src/api/says.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                found.push((name, text.to_owned()));
            }
        }
        found
    }

    /// Checks whether a line prints a variable that may be an error of the library.
    fn prints_error(line: &str) -> bool {
        let of = |name: &str| {
            let text = format!("{name}.to_string()");
            let before = [" ", "&", "("].iter().any(|before| line.contains(&format!("{before}{text}")));
            before || line.contains(&format!("{{{name}:#}}")) || line.contains(&format!("{{{name}:?}}"))
        };
        ["error", "err", "e", "why", "failed", "cause"].into_iter().any(of)
            || ["{error}", "{err}", "map_err(ToString::to_string)"].iter().any(|form| line.contains(form))
    }

    /// The form that the library prints has the whole answer. No command and no page prints it. A line of a log may.
    #[test]
    fn commands_print_no_error_of_the_library_itself() {
        let sources = sources();
        assert!(sources.len() > 100, "{} sources", sources.len());
        let mut others = OTHERS.to_vec();
        for (file, text) in &sources {
            for line in text.lines().filter(|line| !line.contains("tracing::") && !line.trim().starts_with("//")) {
                let other = OTHERS.iter().find(|(of, part)| of == file && line.contains(part));
                others.retain(|left| Some(left) != other);
                let is_wrong = other.is_none() && prints_error(line);
                assert!(!is_wrong, "{file} prints an error itself: use `says` in `{}`", line.trim());
            }
        }
        assert!(others.is_empty(), "these lines are gone: {others:?}");
    }
}

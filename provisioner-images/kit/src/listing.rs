//! The list of a backend's storage, in the form of [`flex_contract::listing`].

use std::io::{BufRead, Write};

use flex_contract::listing::{Entry, LONGEST_LOG, write};

use crate::Failure;

/// The last line of a script's list. If it is missing, the script has died.
pub const END: &str = "end";

/// Prints a complete list on standard output.
pub fn print(entries: &[Entry]) -> Result<(), Failure> {
    let text = write(entries);
    if text.len() > LONGEST_LOG {
        return Err(Failure::never(format!(
            "the list of {} volumes is {} bytes long, and {LONGEST_LOG} are read of a pod's log",
            entries.len(),
            text.len()
        )));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::retry(format!("the list cannot be printed: {error}")))
}

/// Reads `volume|kept|rubbish ID [BYTES|- [PLACE]]` lines, of which the last must be `end`. A script that dies must not
/// seem to have fewer volumes.
pub fn read(lines: impl BufRead) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let mut ended = false;
    for line in lines.lines() {
        let line = line.map_err(|error| Failure::retry(format!("the list cannot be read: {error}")))?;
        match line.trim_end() {
            _ if ended => return Err(Failure::usage(format!("`{line}` stands after `{END}`"))),
            END => ended = true,
            text => entries.push(Entry::parse(text).ok_or_else(|| {
                Failure::usage(format!(
                    "`{line}` is not `volume|kept|rubbish ID [BYTES|- [PLACE]]`: an ID has letters, digits, `-`, `_` and \
                     `.`, and begins with a letter or a digit; list only the names of volumes"
                ))
            })?),
        }
    }
    match ended {
        true => Ok(entries),
        false => Err(Failure::retry(format!(
            "the list broke off after {} entries: its last line must be `{END}`",
            entries.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_needs_its_end() {
        let read = |text: &str| read(text.as_bytes());
        assert_eq!(read("volume a\nrubbish b - /x y\nend\n").unwrap()[1].place, "/x y");
        assert_eq!(read("end").unwrap(), []);
        for (text, code, says) in [
            ("", 75, "broke off after 0"),
            ("volume a\n", 75, "broke off after 1"),
            ("volume a\nend\nvolume b\n", 64, "after `end`"),
            ("a\nend\n", 64, "`a` is not"),
            ("volume ../a\nend\n", 64, "is not"),
            ("volume lost+found - /x\nend\n", 64, "list only the names of volumes"),
        ] {
            let failure = read(text).expect_err(text);
            assert_eq!(failure.code, code, "{text:?}");
            assert!(failure.message.contains(says), "{text:?}: {failure}");
        }
    }
}

//! The list of a backend's storage. The image prints it in a `list` run, and the orchestrator reads it from the pod's
//! log.
//!
//! ```text
//! flex-list 1
//! flex-list volume c0ffee00-0000-4000-8000-000000000001 1073741824 /exports/data/team-a
//! flex-list kept c0ffee00-0000-4000-8000-000000000002 - /exports/data/team-b
//! flex-list rubbish c0ffee00-0000-4000-8000-000000000003 - /exports/data/.deleting-c0ffee00
//! flex-list end 3
//! ```
//!
//! The orchestrator ignores all other lines of the log. Only a complete list is valid: it has its first line, its last
//! line, and between them as many entries as the last line says. A log that was rotated or cut, or whose image died,
//! holds no valid list. So no volume can seem to be missing because of a damaged log.

use std::fmt;

use crate::text::cut;

/// The first word of each line of a list.
pub const MARK: &str = "flex-list";
/// The version of the format. It follows [`MARK`] in the first line.
pub const VERSION: &str = "1";
/// The largest length of an id, in bytes.
pub const LONGEST_ID: usize = 253;
/// The largest length of a place, in bytes. The writer cuts longer places.
pub const LONGEST_PLACE: usize = 512;
/// The largest log that the orchestrator reads for a list, in bytes. A kubelet keeps 10 MiB of a container's log by
/// default.
pub const LONGEST_LOG: usize = 8 << 20;

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The storage of a volume.
    Volume,
    /// Storage that outlives its volume because the config says so. No volume needs to have it.
    Kept,
    /// Storage that an unfinished deletion left behind. No volume has it.
    Rubbish,
}

impl State {
    /// Returns the word of the state in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Volume => "volume",
            State::Kept => "kept",
            State::Rubbish => "rubbish",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [State::Volume, State::Kept, State::Rubbish].into_iter().find(|state| state.as_str() == text)
    }
}

/// One item of storage on a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Entry {
    /// The state of the item.
    pub state: State,
    /// The volume id: the `CLAIM_UUID` with which the storage was made.
    pub id: String,
    /// The size in bytes, where the backend knows it.
    pub bytes: Option<u64>,
    /// The place of the storage, for a person to read; may be empty.
    pub place: String,
}

/// The reason why a text holds no valid list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The text has no first line.
    #[error(
        "the log has no line `{MARK} {VERSION}`: the image printed no list, or the beginning of the log is gone (a kubelet with a small containerLogMaxSize)"
    )]
    NotBegun,
    /// The text has a second first line.
    #[error("the log has two lists")]
    Twice,
    /// The text has no last line.
    #[error("the list has no last line `{MARK} end COUNT`: the image died, or the log was cut")]
    NotEnded,
    /// The number of entries differs from that in the last line.
    #[error("the list says that it has {said} entries, but {found} are there: a part of it is lost")]
    Incomplete {
        /// The number of entries by the last line.
        said: usize,
        /// The number of entries in the text.
        found: usize,
    },
    /// This line cannot be read.
    #[error(
        "the line `{0}` of the list cannot be read; it should be `{MARK} volume|kept|rubbish ID [BYTES|- [PLACE]]`"
    )]
    Line(String),
    /// The log is larger than [`LONGEST_LOG`].
    #[error("the log is longer than {LONGEST_LOG} bytes, which is as much as is read of a list")]
    TooLong,
}

impl Entry {
    /// Reads an entry from `STATE ID [BYTES|- [PLACE]]`, which is a line without its mark.
    pub fn parse(line: &str) -> Option<Self> {
        let mut texts = line.splitn(4, ' ');
        let state = State::parse(texts.next()?)?;
        let id = texts.next().filter(|id| is_id(id))?.to_owned();
        let bytes = match texts.next() {
            None | Some("-" | "") => None,
            Some(number) => Some(number.parse().ok()?),
        };
        Some(Entry { state, id, bytes, place: place(texts.next().unwrap_or_default()) })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { state, id, bytes, place: at } = self;
        let bytes = bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        write!(f, "{} {id} {bytes} {}", state.as_str(), place(at))
    }
}

/// Checks that a text can be a volume id, which is part of names and lines.
pub fn is_id(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=LONGEST_ID).contains(&text.len())
        && text.bytes().all(legal)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Puts a place on one line, and cuts it to the largest length.
fn place(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    cut(&plain, LONGEST_PLACE).trim().to_owned()
}

/// Writes a complete list.
pub fn write(entries: &[Entry]) -> String {
    let mut text = format!("{MARK} {VERSION}\n");
    for entry in entries {
        text.push_str(&format!("{MARK} {}\n", entry.to_string().trim_end()));
    }
    text.push_str(&format!("{MARK} end {}\n", entries.len()));
    text
}

/// Reads the list in a log.
///
/// # Errors
/// If the log holds no complete list, or several.
pub fn read(log: &str) -> Result<Vec<Entry>, ListError> {
    if log.len() > LONGEST_LOG {
        return Err(ListError::TooLong);
    }
    let mut begun = false;
    let mut said: Option<usize> = None;
    let mut entries = Vec::new();
    for line in log.lines() {
        let Some(rest) = line.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')) else { continue };
        let rest = rest.trim_end();
        let unreadable = || ListError::Line(line.chars().take(100).collect());
        match rest.split_once(' ') {
            None if rest == VERSION && begun => return Err(ListError::Twice),
            None if rest == VERSION => begun = true,
            // The beginning is gone, or something was written after the end.
            _ if !begun => return Err(ListError::NotBegun),
            _ if said.is_some() => return Err(unreadable()),
            Some(("end", count)) => said = Some(count.parse().map_err(|_| unreadable())?),
            _ => entries.push(Entry::parse(rest).ok_or_else(unreadable)?),
        }
    }
    match said {
        _ if !begun => Err(ListError::NotBegun),
        None => Err(ListError::NotEnded),
        Some(said) if said != entries.len() => Err(ListError::Incomplete { said, found: entries.len() }),
        Some(_) => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(state: State, id: &str, bytes: Option<u64>, location: &str) -> Entry {
        Entry { state, id: id.into(), bytes, place: location.into() }
    }

    #[test]
    fn a_written_list_is_read_back() {
        let entries = vec![
            entry(State::Volume, "c0ffee", Some(1 << 30), "/exports/a b/ü"),
            entry(State::Kept, "a.b_c-1", None, ""),
            entry(State::Rubbish, "1", None, "/x/.deleting-1"),
        ];
        assert_eq!(read(&write(&entries)), Ok(entries));
        assert_eq!(read("flex-list 1\nflex-list end 0\n"), Ok(vec![]), "an empty backend is a list too");
        assert_eq!(read("hello\nflex-list 1\nls: x\nflex-list volume a\nflex-list end 1\nbye").unwrap().len(), 1);
    }

    #[test]
    fn an_incomplete_list_is_refused() {
        for (log, error) in [
            ("", ListError::NotBegun),
            ("flex-list volume a\nflex-list end 1\n", ListError::NotBegun),
            ("flex-list 2\nflex-list end 0\n", ListError::NotBegun),
            ("flex-list 1\n", ListError::NotEnded),
            ("flex-list 1\nflex-list volume a\n", ListError::NotEnded),
            ("flex-list 1\nflex-list end 1\n", ListError::Incomplete { said: 1, found: 0 }),
            ("flex-list 1\nflex-list volume a\nflex-list end 0\n", ListError::Incomplete { said: 0, found: 1 }),
            ("flex-list 1\nflex-list end 0\nflex-list 1\nflex-list end 0\n", ListError::Twice),
            ("flex-list 1\nflex-list end 0\nflex-list volume a\n", ListError::Line("flex-list volume a".into())),
            ("flex-list 1\nflex-list volume ../a\n", ListError::Line("flex-list volume ../a".into())),
            ("flex-list 1\nflex-list volume a b\n", ListError::Line("flex-list volume a b".into())),
            ("flex-list 1\nflex-list lost a\n", ListError::Line("flex-list lost a".into())),
        ] {
            assert_eq!(read(log), Err(error), "{log:?}");
        }
        assert_eq!(read(&"x".repeat(LONGEST_LOG + 1)), Err(ListError::TooLong));
    }

    #[test]
    fn a_location_stays_on_its_line() {
        let odd = entry(State::Volume, "a", None, &format!("a\nflex-list end 1\r{}", "ü".repeat(LONGEST_PLACE)));
        let read = read(&write(&[odd])).unwrap();
        assert!(read[0].place.len() <= LONGEST_PLACE && read[0].place.starts_with("a?flex-list end 1?"), "{read:?}");
    }

    proptest! {
        /// A log that is cut at its beginning or end yields the complete list or no list.
        #[test]
        fn a_cut_list_is_never_read_as_a_shorter_one(count in 0usize..8, from in 0usize..400, to in 0usize..400) {
            let entries: Vec<_> =
                (0..count).map(|n| entry(State::Volume, &format!("id-{n}"), Some(n as u64), "/p")).collect();
            let log = format!("noise\n{}noise\n", write(&entries));
            let (from, to) = (from.min(log.len()), log.len().saturating_sub(to));
            if from <= to && let Ok(found) = read(&log[from..to]) {
                prop_assert_eq!(found, entries);
            }
        }

        /// A list that lost a line is not valid.
        #[test]
        fn a_list_without_one_of_its_lines_is_refused(count in 1usize..8, lost in 0usize..10) {
            let entries: Vec<_> = (0..count).map(|n| entry(State::Volume, &format!("id-{n}"), None, "")).collect();
            let text = write(&entries);
            let lines: Vec<&str> = text.lines().collect();
            let lost = lost % lines.len();
            let rest: Vec<&str> = lines.iter().enumerate().filter(|(n, _)| *n != lost).map(|(_, line)| *line).collect();
            prop_assert!(read(&rest.join("\n")).is_err());
        }
    }
}

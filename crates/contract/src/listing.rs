//! The list of what a backend has, as an image prints it in a `list` run and the orchestrator reads it
//! from the pod's log.
//!
//! ```text
//! flex-list 1
//! flex-list volume c0ffee00-0000-4000-8000-000000000001 1073741824 /exports/data/team-a
//! flex-list kept c0ffee00-0000-4000-8000-000000000002 - /exports/data/team-b
//! flex-list rubbish c0ffee00-0000-4000-8000-000000000003 - /exports/data/.deleting-c0ffee00
//! flex-list end 3
//! ```
//!
//! Every other line of the log is passed over. A list counts only whole: with its first line, its last
//! line, and as many entries between them as the last line says. A log that was rotated, cut or written
//! by an image that died is no list, so that no volume can look missing because of it.

use std::fmt;

use crate::text::cut;

/// Begins every line of a list.
pub const MARK: &str = "flex-list";
/// The version of the format, in the first line.
pub const VERSION: &str = "1";
/// The longest id, in bytes.
pub const LONGEST_ID: usize = 253;
/// The longest place, in bytes; longer ones are cut by the writer.
pub const LONGEST_PLACE: usize = 512;
/// The longest log that is read for a list, in bytes. A kubelet keeps 10 MiB of a container's log unless
/// it is told otherwise.
pub const LONGEST_LOG: usize = 8 << 20;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A volume's storage.
    Volume,
    /// Storage that outlives its volume by the config's will; nobody need know it.
    Kept,
    /// What a deletion that died half-way left behind. No volume is this.
    Rubbish,
}

impl State {
    /// As it stands in a line.
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

/// One thing that a backend has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Entry {
    /// What it is.
    pub state: State,
    /// The volume's id: the `CLAIM_UUID` that it was made with.
    pub id: String,
    /// Its size in bytes, where the backend knows one.
    pub bytes: Option<u64>,
    /// Where it is, for a person; may be empty.
    pub place: String,
}

/// Why a text holds no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// There is no first line.
    #[error(
        "the log has no line `{MARK} {VERSION}`: the image printed no list, or the beginning of the log is gone (a kubelet with a small containerLogMaxSize)"
    )]
    NotBegun,
    /// There is a second first line.
    #[error("the log has two lists")]
    Twice,
    /// There is no last line.
    #[error("the list has no last line `{MARK} end COUNT`: the image died, or the log was cut")]
    NotEnded,
    /// There are other entries than the last line says.
    #[error("the list says that it has {said} entries, but {found} are there: a part of it is lost")]
    Incomplete {
        /// By the last line.
        said: usize,
        /// In the log.
        found: usize,
    },
    /// A line cannot be read.
    #[error(
        "the line `{0}` of the list cannot be read; it should be `{MARK} volume|kept|rubbish ID [BYTES|- [PLACE]]`"
    )]
    Line(String),
    /// The log is longer than what is read.
    #[error("the log is longer than {LONGEST_LOG} bytes, which is as much as is read of a list")]
    TooLong,
}

impl Entry {
    /// From `STATE ID [BYTES|- [PLACE]]`, which is a line without its mark.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let state = State::parse(words.next()?)?;
        let id = words.next().filter(|id| is_id(id))?.to_owned();
        let bytes = match words.next() {
            None | Some("-" | "") => None,
            Some(number) => Some(number.parse().ok()?),
        };
        Some(Entry { state, id, bytes, place: place(words.next().unwrap_or_default()) })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { state, id, bytes, place: at } = self;
        let bytes = bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        write!(f, "{} {id} {bytes} {}", state.as_str(), place(at))
    }
}

/// What can be the id of a volume: it is part of names and lines.
pub fn is_id(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=LONGEST_ID).contains(&text.len())
        && text.bytes().all(legal)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// A place on one line, no longer than is allowed.
fn place(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    cut(&plain, LONGEST_PLACE).trim().to_owned()
}

/// A whole list, as it is printed.
pub fn write(entries: &[Entry]) -> String {
    let mut text = format!("{MARK} {VERSION}\n");
    for entry in entries {
        text.push_str(&format!("{MARK} {}\n", entry.to_string().trim_end()));
    }
    text.push_str(&format!("{MARK} end {}\n", entries.len()));
    text
}

/// The list in a log.
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
            // The beginning is gone, or somebody wrote after the end.
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

    fn entry(state: State, id: &str, bytes: Option<u64>, place: &str) -> Entry {
        Entry { state, id: id.into(), bytes, place: place.into() }
    }

    #[test]
    fn what_is_written_is_read_back() {
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
    fn what_is_not_whole_is_no_list() {
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
    fn a_place_stays_on_its_line() {
        let odd = entry(State::Volume, "a", None, &format!("a\nflex-list end 1\r{}", "ü".repeat(LONGEST_PLACE)));
        let read = read(&write(&[odd])).unwrap();
        assert!(read[0].place.len() <= LONGEST_PLACE && read[0].place.starts_with("a?flex-list end 1?"), "{read:?}");
    }

    proptest! {
        /// Wherever a log is cut, at its beginning or its end, what is left is the whole list or none.
        #[test]
        fn a_cut_list_is_never_a_shorter_one(count in 0usize..8, from in 0usize..400, to in 0usize..400) {
            let entries: Vec<_> =
                (0..count).map(|n| entry(State::Volume, &format!("id-{n}"), Some(n as u64), "/p")).collect();
            let log = format!("noise\n{}noise\n", write(&entries));
            let (from, to) = (from.min(log.len()), log.len().saturating_sub(to));
            if from <= to && let Ok(found) = read(&log[from..to]) {
                prop_assert_eq!(found, entries);
            }
        }

        /// Nor is one that lost any of its lines.
        #[test]
        fn a_list_without_a_line_is_none(count in 1usize..8, lost in 0usize..10) {
            let entries: Vec<_> = (0..count).map(|n| entry(State::Volume, &format!("id-{n}"), None, "")).collect();
            let text = write(&entries);
            let lines: Vec<&str> = text.lines().collect();
            let lost = lost % lines.len();
            let rest: Vec<&str> = lines.iter().enumerate().filter(|(n, _)| *n != lost).map(|(_, line)| *line).collect();
            prop_assert!(read(&rest.join("\n")).is_err());
        }
    }
}

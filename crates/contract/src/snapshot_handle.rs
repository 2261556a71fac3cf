//! The handle of a snapshot whose storage chooses ids itself. A snapshot run writes it into the termination message before
//! it exits 0, and the later runs for the snapshot get it as `SNAPSHOT_HANDLE`.
//!
//! ```text
//! flex-snapshot 1 snap-0a1b2c
//! ```
//!
//! The handle is the rest of the line. A message with several such lines hands back nothing: nobody could know which is
//! meant.

/// The first word of the line with the handle.
pub const MARK: &str = "flex-snapshot";
/// The version of the format.
pub const VERSION: &str = "1";
/// The length of the longest handle, in bytes. The orchestrator keeps a handle of this length whole.
pub const LONGEST: usize = 2048;

/// Checks that a text can be handed back.
pub fn is_handle(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && text.trim() == text && !text.chars().any(char::is_control)
}

/// Returns the line that hands back a handle.
pub fn line(handle: &str) -> String {
    format!("{MARK} {VERSION} {handle}\n")
}

/// Reads the handle in a termination message; `None` if the message hands back none.
pub fn read(message: &str) -> Option<String> {
    let mut lines = message.lines().filter(|line| line.split(' ').next() == Some(MARK));
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let handle = line.strip_prefix(MARK)?.strip_prefix(' ')?.strip_prefix(VERSION)?.strip_prefix(' ')?.trim();
    is_handle(handle).then(|| handle.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handle_is_read_as_it_was_written() {
        for handle in ["snap-1", "/subscriptions/a/snapshots/b c", "é=,\"x\""] {
            assert_eq!(read(&format!("some words\n{}more", line(handle))).as_deref(), Some(handle));
        }
        let longest = "x".repeat(LONGEST);
        assert_eq!(read(&line(&longest)), Some(longest.clone()));
        for nothing in [
            String::new(),
            "flex-snapshot".into(),
            "flex-snapshot 1".into(),
            line(""),
            "flex-snapshot 2 a".into(),
            "flex-snapshots 1 a".into(),
            "the line flex-snapshot 1 a".into(),
            line("a") + &line("a"),
            line(&format!("{longest}x")),
            line("a\u{7}b"),
        ] {
            assert_eq!(read(&nothing), None, "{nothing:?}");
        }
    }
}

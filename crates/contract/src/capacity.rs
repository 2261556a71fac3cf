//! The answer of a `capacity` run: the bytes that a backend has free. The image writes it into the termination message,
//! and the orchestrator reads it from there.
//!
//! ```text
//! flex-capacity 1 107374182400 10737418240
//! ```
//!
//! The numbers are the version of the format, the free bytes, and the size of the largest possible volume where that is
//! less. The orchestrator ignores all other lines of the message. A message with several answers has no valid answer:
//! nobody could know which is meant.

use std::fmt;

/// The first word of the line with the answer.
pub const MARK: &str = "flex-capacity";
/// The version of the format.
pub const VERSION: &str = "1";
/// The largest size that the API can hold, in bytes.
pub const MAX_BYTES: u64 = i64::MAX as u64;

/// The free space of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The free bytes for volumes.
    pub bytes: u64,
    /// The size of the largest possible volume, in bytes, where it is less than `bytes`.
    pub largest: Option<u64>,
}

/// The reason why a text holds no valid answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The text has no answer.
    #[error(
        "the termination message has no line `{MARK} {VERSION} BYTES`: the image must write one to /dev/termination-log, as `flex-pv capacity` does"
    )]
    None,
    /// The text has several answers.
    #[error("the termination message has several lines that begin with `{MARK}`; one is possible")]
    Several,
    /// The answer cannot be read.
    #[error("the line `{0}` cannot be read; it should be `{MARK} {VERSION} BYTES [LARGEST]`, both in whole bytes")]
    Line(String),
}

impl Answer {
    /// Reads the answer in a termination message.
    ///
    /// # Errors
    /// If the message has no answer, or several, or one that cannot be read.
    pub fn read(message: &str) -> Result<Self, AnswerError> {
        let mut lines = message.lines().map(str::trim).filter(|line| line.split(' ').next() == Some(MARK));
        match (lines.next(), lines.next()) {
            (None, _) => Err(AnswerError::None),
            (Some(_), Some(_)) => Err(AnswerError::Several),
            (Some(line), None) => Self::parse(line).ok_or_else(|| AnswerError::Line(line.chars().take(100).collect())),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut texts = line.split_ascii_whitespace().skip(1);
        texts.next().filter(|version| *version == VERSION)?;
        let bytes = |word: &str| word.parse().ok().filter(|bytes| *bytes <= MAX_BYTES);
        let free = bytes(texts.next()?)?;
        let largest = match texts.next() {
            Some(word) => Some(bytes(word)?),
            None => None,
        };
        texts.next().is_none().then_some(Answer { bytes: free, largest })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK} {VERSION} {}", self.bytes)?;
        self.largest.map_or(Ok(()), |largest| write!(f, " {largest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_line_is_an_answer() {
        let answer = |bytes, largest| Ok(Answer { bytes, largest });
        assert_eq!(Answer::read("flex-capacity 1 10\n"), answer(10, None));
        assert_eq!(Answer::read("df: warning\n flex-capacity 1 0 0 \nbye"), answer(0, Some(0)));
        assert_eq!(Answer::read("flex-capacityx 1 10"), Err(AnswerError::None));
        assert_eq!(Answer::read(""), Err(AnswerError::None));
        assert_eq!(Answer::read("flex-capacity 1 10\nflex-capacity 1 10"), Err(AnswerError::Several));
        for line in [
            "flex-capacity",
            "flex-capacity 1",
            "flex-capacity 2 10",
            "flex-capacity 1 -1",
            "flex-capacity 1 10Gi",
            "flex-capacity 1 1 1 1",
            "flex-capacity 1 9223372036854775808",
        ] {
            assert_eq!(Answer::read(line), Err(AnswerError::Line(line.into())), "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_written_capacity_is_read_back(bytes in 0..=MAX_BYTES, largest in proptest::option::of(0..=MAX_BYTES), around in "[a-z \n]{0,20}") {
            let answer = Answer { bytes, largest };
            prop_assert_eq!(Answer::read(&format!("{around}\n{answer}\n{around}")), Ok(answer));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            let _ = Answer::read(&format!("{MARK} {text}"));
        }
    }
}

//! A wrong program, as a row of a table.

use flex_desk::conformance::Case;

pub(super) use self::Found::{By, Only};

/// Texts of a right program, and those that take their places, one after the other.
pub(super) type Edits = &'static [(&'static str, &'static str)];

/// The end of the sentence "a program that …", the case that must find the program, and its mistake.
pub(super) type Row = (&'static str, Found, Edits);

/// The case that must find a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This case, and no other.
    Only(Case),
    /// This case, and perhaps others.
    By(Case),
}

impl Found {
    /// Returns the case.
    pub(super) fn case(self) -> Case {
        match self {
            Only(case) | By(case) => case,
        }
    }
}

/// Returns a right program with other texts.
pub(super) fn edited(right: &str, does: &str, edits: Edits) -> String {
    edits.iter().fold(right.to_owned(), |text, (right, wrong)| {
        assert!(text.contains(right), "{does}: the program has no `{right}`");
        text.replacen(right, wrong, 1)
    })
}

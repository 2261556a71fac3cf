//! Texts of others, before they are told or kept: bounded, and harmless to a terminal.

use std::borrow::Cow;

/// A text in at most so many bytes, with an ellipsis where its end is missing.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub('…'.len_utf8());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// The same, with control characters other than ends of lines made visible.
pub fn printable(text: &str, most: usize) -> String {
    let mut shown = String::new();
    // Nothing becomes shorter by being shown.
    for c in text.chars().take(most + 1) {
        match c {
            '\n' => shown.push(c),
            '\t' => shown.push(' '),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    cut(&shown, most).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character_and_keeps_the_bound() {
        for (text, most, expected) in
            [("short", 5, "short"), ("longer", 5, "lo…"), ("ßßß", 5, "ß…"), ("ßßßß", 3, "…"), ("", 0, "")]
        {
            assert_eq!(cut(text, most), expected, "{text} in {most}");
        }
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(printable("a\u{1b}[2Jb\tc\nd\0", 100), "a\\u{1b}[2Jb c\nd\\u{0}");
        assert_eq!(printable(&"\0".repeat(100), 20), format!("{}\\u…", "\\u{0}".repeat(3)));
    }
}

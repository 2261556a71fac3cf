//! Texts of others, before they are shown or stored: cut to a length, and harmless to a terminal.

use std::borrow::Cow;

use crate::limits;

/// Cuts a text to a number of bytes, with an ellipsis in place of a missing end.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let available = most.saturating_sub('…'.len_utf8());
    let end = (0..=available).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// Bounds a text that is short unless somebody else wrote it, such as the name of an object.
pub fn name(text: &str) -> String {
    cut(text, limits::NAME).into_owned()
}

/// Does the same for a text that may be missing.
pub fn name_of(text: Option<&str>) -> String {
    name(text.unwrap_or_default())
}

/// Reads a note that is no longer than the orchestrator writes any.
pub(crate) fn note<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str((text.len() <= limits::NOTE).then_some(text)?).ok()
}

/// Checks whether a character acts on the text around it. Such a character moves the cursor, ends a line, or turns the
/// direction of reading, so that a text reads as another.
fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_a_line = matches!(c, '\u{2028}' | '\u{2029}');
    let is_not_seen = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    c.is_control() || turns || ends_a_line || is_not_seen
}

fn escaped(text: &str, most: usize, lines: bool) -> String {
    let mut escaped = String::new();
    // No character becomes shorter when it is escaped.
    for c in text.chars().take(most.saturating_add(1)) {
        match c {
            '\n' if lines => escaped.push(c),
            '\t' => escaped.push(' '),
            c if is_control(c) => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    cut(&escaped, most).into_owned()
}

/// Escapes the characters of a text that would act on a terminal or a reader, except for line ends.
pub fn printable(text: &str, most: usize) -> String {
    escaped(text, most, true)
}

/// Escapes a text of somebody else, with its line ends. So nobody can write lines in the name of the orchestrator.
pub fn line(text: &str, most: usize) -> String {
    escaped(text, most, false)
}

/// The codes of the colours and of the boldness that this program writes to a terminal. None of them hides a text.
const STYLES: &[&str] = &[
    "0", "1", "2", "4", "30", "31", "32", "33", "34", "35", "36", "37", "39", "90", "91", "92", "93", "94", "95", "96",
    "97",
];

/// Returns the length of a style at the beginning of a text; `None` if there is none that this program writes.
fn style_at(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let (codes, _) = codes.split_once('m')?;
    codes.split(';').all(|code| STYLES.contains(&code)).then_some(codes.len() + 3)
}

/// Escapes the acting characters in the output of a command, except for line ends, tabs and, if the output may have
/// them, styles. The escapes are those of JSON and YAML.
pub fn output(text: &str, styles: bool) -> Cow<'_, str> {
    let acts = |c: char| is_control(c) && !matches!(c, '\n' | '\t');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let style = style_at(rest).filter(|_| styles);
        let (taken, after) = rest.split_at(style.unwrap_or(c.len_utf8()));
        match style.is_none() && acts(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}"))),
            false => safe.push_str(taken),
        }
        rest = after;
    }
    Cow::Owned(safe)
}

/// The output of a program's own lines. Each write is one line, whose text may come from anybody.
#[derive(Clone, Copy, Debug)]
pub struct Lines<W>(pub W, pub Escape);

/// The way in which an acting character is escaped.
#[derive(Clone, Copy, Debug)]
pub enum Escape {
    /// As Rust writes it, for people.
    Text,
    /// As JSON writes it.
    Json,
}

impl<W: std::io::Write> std::io::Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let Lines(to, escape) = self;
        let text = String::from_utf8_lossy(line);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        let mut safe = String::with_capacity(line.len());
        for c in text.chars() {
            match escape {
                _ if !is_control(c) => safe.push(c),
                Escape::Text => safe.extend(c.escape_default()),
                Escape::Json => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")))
                }
            }
        }
        to.write_all((safe + end).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_splits_no_character_and_keeps_the_bound() {
        for (text, most, expected) in
            [("short", 5, "short"), ("longer", 5, "lo…"), ("ßßß", 5, "ß…"), ("ßßßß", 3, "…"), ("", 0, "")]
        {
            assert_eq!(cut(text, most), expected, "{text} in {most}");
        }
    }

    #[test]
    fn a_printed_text_has_no_commands_for_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\tc\nd\0", 100), "a\\u{1b}[2Jb c\nd\\u{0}");
        assert_eq!(printable(&"\0".repeat(100), 20), format!("{}\\u…", "\\u{0}".repeat(3)));
    }

    #[test]
    fn foreign_text_cannot_forge_or_reverse_a_line() {
        let texts = "ok\nWARN all is well\r\u{202e}dab\u{2066}\u{2028}\u{feff}é";
        assert_eq!(line(texts, 1000), "ok\\nWARN all is well\\r\\u{202e}dab\\u{2066}\\u{2028}\\u{feff}é");
        assert!(printable(texts, 1000).starts_with("ok\nWARN") && !printable(texts, 1000).contains('\u{202e}'));
        assert_eq!(
            line(&line(texts, 1000), 1000),
            line(texts, 1000),
            "a shown text does not change when it is shown again"
        );
    }

    #[test]
    fn the_output_of_a_command_acts_on_no_terminal() {
        let text = "\u{1b}[1;31mred\u{1b}[0m\u{1b}[8mhidden\u{1b}[2J\u{7}\u{202e}x\n\ttab é";
        let escaped = "\\u001b[8mhidden\\u001b[2J\\u0007\\u202ex\n\ttab é";
        assert_eq!(output(text, true), format!("\u{1b}[1;31mred\u{1b}[0m{escaped}"));
        assert_eq!(output(text, false), format!("\\u001b[1;31mred\\u001b[0m{escaped}"));
        let document = serde_json::json!({ "name": "a\u{202e}b" }).to_string();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&output(&document, true)).unwrap()["name"], "a\u{202e}b");
    }

    #[test]
    fn each_event_is_one_line_of_the_log() {
        let written = |escape: Escape, text: &str| {
            let mut to = Vec::new();
            std::io::Write::write_all(&mut Lines(&mut to, escape), text.as_bytes()).unwrap();
            String::from_utf8(to).unwrap()
        };
        assert_eq!(written(Escape::Text, "a\u{1b}[31m\nb\u{202e}c\n"), "a\\u{1b}[31m\\nb\\u{202e}c\n");
        let json = written(Escape::Json, "{\"a\":\"b\u{202e}c\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["a"], "b\u{202e}c");
        assert!(!json.contains('\u{202e}') && json.ends_with("}\n"));
    }
}

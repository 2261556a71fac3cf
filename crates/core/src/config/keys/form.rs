//! The forms of values, as far as words and regular expressions can say them.
//!
//! Editors get them by the JSON schema of a config. A form excludes only what the check of a config refuses, but for empty
//! values and odd spellings, such as `+5`, or blanks around a word. The check knows more.

use flex_contract::capability;

/// A name of Kubernetes, as a regular expression.
pub const NAME: &str = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*";
/// The name of a provisioner: that of a CSI driver, or two names with a slash between them.
pub const PROVISIONER: &str = "[a-z0-9][a-z0-9.-]*(?:/[a-z0-9][a-z0-9.-]*)?";
/// A Deployment with its namespace.
pub const DEPLOYMENT: &str = "[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*";
/// A key of labels and annotations, or a finalizer.
pub const KEY: &str = "[A-Za-z0-9._/-]+";
/// An image.
pub const IMAGE: &str = "[A-Za-z0-9._/:@+-]*[A-Za-z0-9._+-]";
/// A file system.
pub const FILE_SYSTEM: &str = "[a-z0-9]{1,16}";
/// The largest user id.
const MAX_USER: u64 = i32::MAX as u64;
/// A length of time: `90s`, `1h30m`, `1 hour, 30 minutes`, `01:30:00`, or one of ISO 8601.
const TIME: &str = "\\+?(?:[Pp][Tt0-9](?:[.,]?[0-9A-Za-z])*|[0-9](?:[.,]?[0-9 ])*[A-Za-z\u{b5}\u{3bc}:](?:[.,]?[0-9A-Za-z\u{b5}\u{3bc}: ])*)";
/// A size, as Kubernetes writes it.
const SIZE: &str = "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?";

/// The form of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any text: only the check can judge it.
    Text,
    /// A document in YAML.
    Yaml,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of these words.
    SomeOf(&'static [&'static str]),
    /// A list of capabilities.
    Capabilities,
    /// A text that matches this regular expression.
    Like(&'static str),
    /// A list of texts that match this regular expression.
    List(&'static str),
    /// A whole number: the least and the largest.
    Number(u64, u64),
    /// The id of a user, or `any`.
    User,
    /// A length of time.
    Time,
    /// A shortest and a longest time, or one of them.
    Times,
    /// A size in bytes.
    Size,
}

impl Form {
    /// Returns the words that the value consists of. None for other forms.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Form::OneOf(words) | Form::SomeOf(words) => words,
            _ => &[],
        }
    }

    /// Returns the regular expression that the value matches, in the part of the language that ECMA 262 shares with
    /// others. `None` where the value is any text, or one of the [`Form::words`].
    pub fn pattern(self) -> Option<String> {
        let whole = |inner: &str| format!("^\\s*(?:{inner})\\s*$");
        Some(match self {
            Form::Text | Form::Yaml | Form::OneOf(_) => return None,
            Form::SomeOf(words) => list(&words.join("|")),
            Form::Capabilities => list(&capability::names().collect::<Vec<_>>().join("|")),
            Form::Like(inner) => whole(inner),
            Form::List(item) => list(item),
            Form::Number(min, max) => whole(&numbers(min, max)),
            Form::User => whole(&format!("any|{}", numbers(0, MAX_USER))),
            Form::Time => whole(TIME),
            Form::Times => whole(&format!("{TIME}(?:\\s*\\.\\.\\s*{TIME})?")),
            Form::Size => whole(SIZE),
        })
    }
}

/// Returns the expression for a list: one of YAML, or items between commas or line ends.
fn list(item: &str) -> String {
    let (blanks, any) = ("[ \\t\\r]*", "[\\s\\S]*");
    let items = format!("{blanks}(?:(?:{item}){blanks})?");
    format!("^(?:\\s*\\[{any}|\\s*- {any}|{items}(?:[,\\n]{items})*)$")
}

/// Returns the expression for the whole numbers of a range that begins with 0 or 1.
fn numbers(min: u64, max: u64) -> String {
    let digits = max.to_string();
    let mut ways: Vec<String> = Vec::new();
    if min == 0 {
        ways.push("0".into());
    }
    // Numbers with fewer digits.
    match digits.len() {
        1 => {}
        2 => ways.push("[1-9]".into()),
        length => ways.push(format!("[1-9][0-9]{{0,{}}}", length - 2)),
    }
    // Numbers that agree with the largest up to a digit, which is lower.
    for (place, digit) in digits.bytes().enumerate() {
        let lowest = if place == 0 { b'1' } else { b'0' };
        if digit > lowest {
            let (same, rest) = (&digits[..place], digits.len() - place - 1);
            let rest = if rest == 0 { String::new() } else { format!("[0-9]{{{rest}}}") };
            ways.push(format!("{same}[{}-{}]{rest}", char::from(lowest), char::from(digit - 1)));
        }
    }
    ways.push(digits);
    format!("0*(?:{})", ways.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_spelled_digit_by_digit() {
        assert_eq!(numbers(0, 1000), "0*(?:0|[1-9][0-9]{0,2}|1000)");
        assert_eq!(numbers(1, 250), "0*(?:[1-9][0-9]{0,1}|[1-1][0-9]{2}|2[0-4][0-9]{1}|250)");
        assert_eq!(numbers(1, 9), "0*(?:[1-8]|9)");
    }

    #[test]
    fn only_forms_of_words_have_words() {
        assert_eq!(Form::OneOf(&["a", "b"]).words(), ["a", "b"]);
        assert_eq!((Form::Size.words(), Form::Text.pattern(), Form::OneOf(&["a"]).pattern()), (&[][..], None, None));
        assert!(Form::SomeOf(&["a", "b"]).pattern().is_some_and(|pattern| pattern.contains("(?:a|b)")));
    }
}

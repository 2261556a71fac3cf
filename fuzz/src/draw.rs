//! Draws values that a hostile writer could choose from the fuzzer's bytes.

use arbitrary::Unstructured;

/// The marker in every text of a user: it shows where such a text arrives. No object's name and no value that may have
/// an effect can contain it.
pub const MARKER: &str = "QzMARKzQ";

/// Texts with a special meaning for some program.
const NASTY: &[&str] = &[
    "\n",
    "\0",
    "\u{1b}[2J",
    "\u{202e}",
    "ß𝄞",
    "'",
    "\"",
    "`id`",
    "$(id)",
    "$$(A)",
    "${A}",
    "; id",
    "| id",
    "--help",
    "-x",
    "../../etc",
    "/",
    "//",
    ".",
    "..",
    "a/../b",
    "/dev/null",
    "{{.A}}",
    "- a: b\n",
    ": ",
    "# a",
    "!!binary a",
    "*a",
    "&a",
    "%",
    "~",
    "null",
    "true",
    "on",
    "0x10",
    "1e3",
    "[",
    "{",
    "}",
    "<a>",
    ",",
    "=",
    "@",
    "\\",
    "\r\n",
    "\t",
    "\u{7f}",
    "\u{feff}",
    " ",
];

/// A source of values. It never ends: after the fuzzer's bytes each value is the first choice, and short.
#[derive(Debug)]
pub struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    /// Starts with the fuzzer's bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Draws a number below another.
    pub fn below(&mut self, most: usize) -> usize {
        self.0.int_in_range(0..=most.saturating_sub(1)).unwrap_or_default()
    }

    /// Draws a boolean; false after the end.
    pub fn chance(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Draws any number.
    pub fn number(&mut self) -> i64 {
        match self.below(6) {
            0 => 0,
            1 => i64::from(self.0.arbitrary::<u8>().unwrap_or_default()),
            2 => -1,
            3 => i64::MIN,
            4 => i64::MAX,
            _ => self.0.arbitrary().unwrap_or_default(),
        }
    }

    /// Draws one of these values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Draws a text of a user's choice, with the marker more often than not.
    pub fn text(&mut self) -> String {
        match self.below(8) {
            0 => MARKER.to_owned(),
            1 => format!("{MARKER}{}", self.pick(NASTY)),
            2 => format!("{}{MARKER}", self.pick(NASTY)),
            3 => self.pick(NASTY).to_owned(),
            4 => String::new(),
            5 => {
                let unit = self.pick(&[MARKER, "\u{1}", "$", "ß", "a ", "\n", "a,"]);
                unit.repeat(self.pick(&[10, 100, 1000, 10_000, 100_000]) / unit.len())
            }
            _ => {
                let length = self.below(200).min(self.0.len());
                let bytes = self.0.bytes(length).unwrap_or_default();
                String::from_utf8_lossy(bytes).into_owned()
            }
        }
    }

    /// Draws one of these texts, or any text.
    pub fn text_or(&mut self, from: &[&str]) -> String {
        match self.below(4) {
            3 => self.text(),
            _ => self.pick(from).to_owned(),
        }
    }

    /// Draws several texts.
    pub fn texts(&mut self, from: &[&str]) -> Vec<String> {
        let count = self.pick(&[1, 0, 2, 3, 300]);
        (0..count).map(|_| self.text_or(from)).collect()
    }
}

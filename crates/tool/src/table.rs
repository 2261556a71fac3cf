//! Tables, as kubectl prints them: columns as wide as they must be, and colours only on a terminal.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use flex_core::text::line;
use tabwriter::TabWriter;

/// The spaces between two columns.
const GAP: usize = 3;
/// The text of a cell without content.
const NOTHING: &str = "-";

/// What a cell says of its row. Only a terminal shows the difference: the text must say it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
}

impl Tone {
    pub(super) fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.into(), tone: Tone::Plain }
    }
}

impl Cell {
    /// Makes a cell with a tone.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Cell { text: text.into(), tone }
    }

    fn shown(&self, coloured: bool) -> String {
        let text = line(&self.text, usize::MAX);
        let text = if text.is_empty() { NOTHING } else { &text };
        match coloured && self.tone != Tone::Plain {
            true => format!("{0}{text}{0:#}", self.tone.style()),
            false => text.to_owned(),
        }
    }
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table without rows.
    pub(super) fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Control characters of the texts are escaped.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Checks whether the table has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines of the table, headings first.
    pub(super) fn text(&self, coloured: bool) -> String {
        let mut columns = TabWriter::new(Vec::new()).padding(GAP).minwidth(0).ansi(true);
        let headings = self.headings.iter().map(|heading| line(heading, usize::MAX)).collect::<Vec<_>>().join("\t");
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| cell.shown(coloured)).collect::<Vec<_>>());
        let lines: Vec<_> = std::iter::once(headings).chain(rows.map(|row| row.join("\t"))).collect();
        // Writing into memory cannot fail.
        let _ = columns.write_all(lines.join("\n").as_bytes()).and_then(|()| columns.flush());
        let text = columns.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row([Cell::from("a"), Cell::toned("ok", Tone::Good)]);
        table.row(["a longer name\u{1b}[2J\ttab".into(), Cell::default()]);
        table
    }

    #[test]
    fn headings_act_on_no_terminal() {
        assert_eq!(Table::new(["a\u{1b}[2J"]).text(false), "a\\u{1b}[2J\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let longest = "a longer name\\u{1b}[2J tab";
        let width = longest.len() + GAP;
        let expected = format!("{:width$}STATE\n{:width$}ok\n{longest:width$}-\n", "NAME", "a");
        assert_eq!(table().text(false), expected);
    }

    #[test]
    fn colours_do_not_change_the_columns() {
        let coloured = table().text(true);
        assert!(coloured.contains("\u{1b}[32mok\u{1b}[0m"), "{coloured:?}");
        assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), table().text(false));
    }
}

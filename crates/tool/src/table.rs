//! Tables, as kubectl prints them: columns as wide as they must be, and colours only on a terminal.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use flex_core::text::line;
use tabwriter::TabWriter;

use crate::name::told;

/// The spaces between two columns.
const GAP: usize = 3;
/// The least room for the last column, however narrow the terminal.
const LEAST: usize = 10;
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

    /// Returns the text with its colour, in so many characters at most.
    fn shown(&self, coloured: bool, room: usize) -> String {
        let text = self.plain();
        let is_longer = text.chars().nth(room).is_some();
        let text = if is_longer { text.chars().take(room.saturating_sub(1)).chain(['…']).collect() } else { text };
        match coloured && self.tone != Tone::Plain {
            true => format!("{0}{text}{0:#}", self.tone.style()),
            false => text,
        }
    }

    fn plain(&self) -> String {
        let text = told(&self.text);
        if text.is_empty() { NOTHING.to_owned() } else { text }
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
        self.fitted(coloured, None)
    }

    /// Returns the same with the last column cut, so that the lines fit into a terminal of this width.
    pub(super) fn fitted(&self, coloured: bool, width: Option<usize>) -> String {
        let last = self.headings.len().saturating_sub(1);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(self.width_before(last)).max(LEAST));
        let room = |column: usize| if column == last { room } else { usize::MAX };
        let mut columns = TabWriter::new(Vec::new()).padding(GAP).minwidth(0).ansi(true);
        let headings = self.headings.iter().map(|heading| line(heading, usize::MAX)).collect::<Vec<_>>().join("\t");
        let cells = |row: &Vec<Cell>| -> Vec<String> {
            row.iter().enumerate().map(|(column, cell)| cell.shown(coloured, room(column))).collect()
        };
        let rows = self.rows.iter().map(cells);
        let lines: Vec<_> = std::iter::once(headings).chain(rows.map(|row| row.join("\t"))).collect();
        // Writing into memory cannot fail.
        let _ = columns.write_all(lines.join("\n").as_bytes()).and_then(|()| columns.flush());
        let text = columns.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Returns the width of the columns before one, with their gaps.
    fn width_before(&self, last: usize) -> usize {
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.plain().chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or_default() + GAP
        };
        (0..last).map(widest).sum()
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
    fn the_last_column_is_cut_to_the_width_of_the_terminal() {
        let mut table = Table::new(["NAME", "REASON"]);
        table.row(["a".into(), Cell::toned("the array is switched off", Tone::Bad)]);
        let wide = "NAME   REASON\na      the array is switched off\n";
        for (width, expected) in [
            (None, wide),
            (Some(32), wide),
            (Some(31), "NAME   REASON\na      the array is switched o…\n"),
            (Some(20), "NAME   REASON\na      the array is…\n"),
            (Some(2), "NAME   REASON\na      the array…\n"),
        ] {
            assert_eq!(table.fitted(false, width), expected, "{width:?}");
        }
        assert_eq!(
            table.fitted(true, Some(20)).replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""),
            table.fitted(false, Some(20))
        );
    }

    #[test]
    fn colours_do_not_change_the_columns() {
        let coloured = table().text(true);
        assert!(coloured.contains("\u{1b}[32mok\u{1b}[0m"), "{coloured:?}");
        assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), table().text(false));
    }
}

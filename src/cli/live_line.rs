//! A line on a terminal that is rewritten in place, below lines that stay.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use rustix::termios::tcgetwinsize;

use super::{failure::Failure, log::ERASE, output::written};

/// Separates the parts of a line. Lines that are too long for the terminal lose their last parts.
pub(super) const SEPARATOR: &str = " · ";

/// Width of a terminal that does not tell it, and the width of a line on a wider one.
const MAX_COLUMNS: usize = 100;

/// The last line on a terminal. Other lines must not be printed directly while it is shown.
pub(super) struct LiveLine {
    is_shown: bool,
}

// === impl LiveLine ===

impl LiveLine {
    /// Returns `None` unless standard output is a terminal that can erase a line.
    pub(super) fn on_stdout() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        (io::stdout().is_terminal() && !is_dumb).then_some(Self { is_shown: false })
    }

    /// Replaces the text of the line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn show(&mut self, text: &str) -> Result<(), Failure> {
        // A line that wraps could not be erased. The terminal may have another width by now.
        let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { MAX_COLUMNS } else { (columns - 1).min(MAX_COLUMNS) };
        self.is_shown = true;
        put(format_args!("{ERASE}{}", fitted(text, columns)))
    }

    /// Prints a line that stays above this line. The next [`show`](Self::show) shows this line again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn print_above(&mut self, line: impl Display) -> Result<(), Failure> {
        let erase = if std::mem::take(&mut self.is_shown) { ERASE } else { "" };
        put(format_args!("{erase}{line}\n"))
    }

    /// Ends the line, so that the shell's prompt is at the start of the next line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn end(mut self, text: &str) -> Result<(), Failure> {
        self.show(text)?;
        put("\n")
    }
}

/// Writes at once, although the text does not end with a new line.
fn put(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

/// Removes parts from the end until the text has at most `columns` characters.
fn fitted(text: &str, columns: usize) -> String {
    let mut rest = text;
    while rest.chars().count() > columns
        && let Some((before, _)) = rest.rsplit_once(SEPARATOR)
    {
        rest = before;
    }
    rest.chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_loses_its_last_parts() {
        let text = "block 43 · 472 calls · 335 hits (71 %)";
        assert_eq!(fitted(text, 38), text);
        assert_eq!(fitted(text, 37), "block 43 · 472 calls");
        assert_eq!(fitted(text, 19), "block 43");
        assert_eq!(fitted(text, 5), "block");
    }
}

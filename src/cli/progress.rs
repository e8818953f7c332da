//! Progress of a command, on a terminal or in a log.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::display::RoughDuration;

/// A bar on a terminal; elsewhere a line about every ten seconds.
pub(super) enum Progress {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

pub(super) struct Lines {
    all: u64,
    done: u64,
    begun: Instant,
    told: Instant,
}

const BAR: &str = "{bar:32} {pos} of {len} blocks  {rate}  {eta} left  {msg}";

/// Time between two lines: short enough to show progress, long enough to leave room for other lines.
const LINES_APART: Duration = Duration::from_secs(10);

// === impl Progress ===

impl Progress {
    pub(super) fn new(all: u64) -> Self {
        if !io::stderr().is_terminal() {
            let now = Instant::now();
            return Self::Lines(Mutex::new(Lines { all, done: 0, begun: now, told: now }));
        }
        let bar = ProgressBar::new(all);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
                // Ignores an error, because the bar is useful without its rate, too.
                let _ = write!(text, "{:.1}/s", state.per_sec());
            };
            bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self::Bar(bar)
    }

    /// Counts one more block as done.
    pub(super) fn step(&self) {
        match self {
            Self::Bar(bar) => bar.inc(1),
            Self::Lines(lines) => lines.lock().step(),
        }
    }

    /// Prints a line beside the progress.
    pub(super) fn say(&self, line: &str) {
        match self {
            Self::Bar(bar) => bar.println(line),
            // Ignores an error, so that the command continues if standard error is closed.
            Self::Lines(_) => drop(writeln!(io::stderr(), "{line}")),
        }
    }

    /// Shows the reason for a wait. `None` removes it from the bar.
    pub(super) fn waits(&self, text: Option<&str>) {
        match self {
            Self::Bar(bar) => bar.set_message(text.unwrap_or_default().to_owned()),
            Self::Lines(_) => {
                if let Some(text) = text {
                    self.say(text);
                }
            }
        }
    }

    pub(super) fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

// === impl Lines ===

impl Lines {
    fn step(&mut self) {
        self.done += 1;
        let now = Instant::now();
        if now - self.told < LINES_APART || self.done == self.all {
            return;
        }
        self.told = now;
        let rate = self.done as f64 / (now - self.begun).as_secs_f64();
        let left = RoughDuration(Duration::from_secs_f64((self.all - self.done) as f64 / rate));
        let _ =
            writeln!(io::stderr(), "{} of {} blocks, {rate:.1} a second, {left} left", self.done, self.all);
    }
}

//! Starts the log.

use std::io::{self, IsTerminal, Write};

use tracing::error;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt, layer::SubscriberExt, registry, reload, util::SubscriberInitExt,
};

use super::log_text::TextFields;
use crate::config::{LogConfig, LogFormat};

/// Returns the cursor to the start of the line and erases the line.
pub(super) const ERASE: &str = "\r\x1b[2K";

/// Changes the level of a running log.
pub(super) struct LogLevel(reload::Handle<EnvFilter, Registry>);

/// Layer that collects spans for a purpose other than the log, such as their export, with a filter of its own.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Logs to standard error, panics included, so that a program that reads the log sees them. The level applies to the
/// log only; `beside` has a filter of its own.
pub(super) fn start(config: &LogConfig, beside: Option<SpanLayer>) -> LogLevel {
    start_with(config, beside, io::stderr)
}

/// Same as [`start`], but each line replaces the text of the terminal's last line, which a live line shows.
pub(super) fn start_above_live_line(config: &LogConfig) {
    start_with(config, None, || AboveLiveLine(io::stderr()));
}

fn start_with<W>(
    config: &LogConfig,
    beside: Option<SpanLayer>,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> LogLevel
where
    W: Write + 'static,
{
    let (filter, level) = reload::Layer::new(config.filter().unwrap_or_default());
    let lines = fmt::layer().with_writer(writer);
    let lines = match config.format {
        LogFormat::Text => lines
            .fmt_fields(TextFields)
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .with_filter(filter)
            .boxed(),
        // The list of spans contains the current span.
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_filter(filter).boxed()
        }
    };
    let layers: Vec<_> = beside.into_iter().chain([lines]).collect();
    if registry().with(layers).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| error!("{panic}")));
    }
    LogLevel(level)
}

/// Writer of one log line on a terminal with a live line.
struct AboveLiveLine(io::Stderr);

impl Write for AboveLiveLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    // The subscriber writes a line at once. Erasing and writing must not be two writes, between which the live line
    // could appear.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.write_all(&[ERASE.as_bytes(), line].concat())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

// === impl LogLevel ===

impl LogLevel {
    /// Sets the level. The format does not change.
    pub(super) fn set(&self, config: &LogConfig) {
        if let Ok(filter) = config.filter() {
            // Fails only if the subscriber no longer exists.
            let _ = self.0.reload(filter);
        }
    }
}

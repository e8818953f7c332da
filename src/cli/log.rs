//! Starts the log.

use std::io::{self, IsTerminal};

use tracing::error;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt, layer::SubscriberExt, registry, reload, util::SubscriberInitExt,
};

use super::log_text::TextFields;
use crate::config::{LogConfig, LogFormat};

/// Changes the level of a running log.
pub(super) struct LogLevel(reload::Handle<EnvFilter, Registry>);

/// Layer that collects spans for a purpose other than the log, such as their export, with a filter of its own.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Logs to standard error, panics included, so that a program that reads the log sees them. The level applies to the
/// log only; `beside` has a filter of its own.
pub(super) fn start(config: &LogConfig, beside: Option<SpanLayer>) -> LogLevel {
    let (filter, level) = reload::Layer::new(config.filter().unwrap_or_default());
    let lines = fmt::layer().with_writer(io::stderr);
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

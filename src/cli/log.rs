//! Turns the log on.

use std::io::{self, IsTerminal};

use tracing::error;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{LogConfig, LogFormat};

/// Changes what is logged while it is.
pub(super) struct LogLevel(Box<dyn Fn(EnvFilter) + Send + Sync>);

/// Logs to standard error; panics too, so that a program that reads the log sees them.
pub(super) fn start(config: &LogConfig) -> LogLevel {
    let filter = config.filter().unwrap_or_default();
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let (started, level) = match config.format {
        LogFormat::Text => {
            let builder =
                builder.with_ansi(io::stderr().is_terminal()).with_target(false).with_filter_reloading();
            let filter = builder.reload_handle();
            (builder.try_init(), LogLevel(Box::new(move |to| drop(filter.reload(to)))))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let filter = builder.reload_handle();
            (builder.try_init(), LogLevel(Box::new(move |to| drop(filter.reload(to)))))
        }
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| error!("{panic}")));
    }
    level
}

// === impl LogLevel ===

impl LogLevel {
    /// Logs at this level from now on. The format stays.
    pub(super) fn set(&self, config: &LogConfig) {
        if let Ok(filter) = config.filter() {
            (self.0)(filter);
        }
    }
}

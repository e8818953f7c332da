//! Turns the log on.

use std::io::{self, IsTerminal};

use tracing::error;
use tracing_subscriber::fmt;

use crate::config::{LogConfig, LogFormat};

/// Logs to standard error; panics too, so that a program that reads the log sees them.
pub(super) fn start(config: &LogConfig) {
    let filter = config.filter().unwrap_or_default();
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match config.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| error!("{panic}")));
    }
}

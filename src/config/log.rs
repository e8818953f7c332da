//! What is logged, and how.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,holdfast::upstream=debug`.
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

// === impl LogConfig ===

impl LogConfig {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["level"];

    /// What the level means to the subscriber.
    ///
    /// # Errors
    /// If it is neither a level nor directives.
    pub fn filter(&self) -> Result<EnvFilter, String> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let directives = self.level.contains(['=', ',']);
        // A single word that is no level would count as a module's name, and silence everything else.
        if !directives && !LEVELS.contains(&self.level.to_lowercase().as_str()) {
            return Err(format!("{:?} is not one of {}", self.level, LEVELS.join(", ")));
        }
        EnvFilter::try_new(&self.level).map_err(|error| format!("{:?}: {error}", self.level))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.filter().map(drop)
    }
}

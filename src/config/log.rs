//! Level and format of the log.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,holdfast::upstream=debug`. The levels
    /// `debug` and `trace` alone leave the libraries at `info`.
    pub level: String,
    /// Format of the lines.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// A JSON object for programs.
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

    /// Returns the level as a filter for the subscriber.
    ///
    /// # Errors
    /// If the level is neither a known level nor a list of directives.
    pub fn filter(&self) -> Result<EnvFilter, String> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let directives = self.level.contains(['=', ',']);
        // `EnvFilter` takes any other single word for a module's name, and would drop the log lines of all other
        // modules.
        if !directives && !LEVELS.contains(&self.level.to_lowercase().as_str()) {
            return Err(format!("{:?} is not one of {}", self.level, LEVELS.join(", ")));
        }
        // A level alone is that of Holdfast: the debug lines of its libraries would drown its own.
        let directives = match self.level.to_lowercase().as_str() {
            level @ ("debug" | "trace") => format!("info,holdfast={level}"),
            _ => self.level.clone(),
        };
        EnvFilter::try_new(directives).map_err(|error| format!("{:?}: {error}", self.level))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.filter().map(drop)
    }
}

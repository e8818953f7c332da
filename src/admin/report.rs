//! The interface of the status report.

use super::history::Counts;

/// The program's report about itself.
pub trait Report: Send + Sync + 'static {
    /// Checks that the program can answer calls. Returns a reason if it can answer cached content only, because every
    /// endpoint refuses calls.
    ///
    /// # Errors
    /// If the program cannot answer calls. The error is the reason, one line for people.
    fn ready(&self) -> Result<Option<String>, String>;

    /// Returns the whole status report, for people and programs.
    fn status(&self) -> serde_json::Value;

    /// Returns the counters for the history, which samples them every two seconds.
    fn counts(&self) -> Counts;
}

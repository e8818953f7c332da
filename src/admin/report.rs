//! The interface of the status report.

use super::history::Counts;

/// What the program tells of itself.
pub trait Report: Send + Sync + 'static {
    /// Can it answer calls?
    ///
    /// # Errors
    /// If not: why, in a line for people.
    fn ready(&self) -> Result<(), String>;

    /// All there is to know, for people and programs.
    fn status(&self) -> serde_json::Value;

    /// Returns the counters for the history, which samples them every two seconds.
    fn counts(&self) -> Counts;
}

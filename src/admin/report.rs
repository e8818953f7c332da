//! What the program reports about itself.

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

    /// What has been counted, for the history. Taken every other second, whether anybody looks or not.
    fn counts(&self) -> Counts;
}

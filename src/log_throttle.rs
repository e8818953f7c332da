//! Limits how often a repeated event is logged.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two log lines of the same event. An operator must learn that something fails, and why, but
/// not once per call.
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// Time of the last log line of each event.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<BTreeMap<&'static str, Instant>>);

// === impl LogThrottle ===

impl LogThrottle {
    /// Returns whether the event `what` is due to be logged, and if so records the current time as its last log line.
    pub(crate) fn is_due(&self, what: &'static str) -> bool {
        let mut said = self.0.lock();
        let due = said.get(what).is_none_or(|last| last.elapsed() >= EVERY);
        if due {
            said.insert(what, Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_message_is_due_once_per_interval() {
        let throttle = LogThrottle::default();
        assert!(throttle.is_due("refused"));
        assert!(!throttle.is_due("refused"));
        assert!(throttle.is_due("reset"));
        tokio::time::advance(EVERY).await;
        assert!(throttle.is_due("refused"));
    }
}

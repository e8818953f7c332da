//! Logs an event that repeats at most once in a while.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// An operator must learn that something fails, and how; not once for every call.
const EVERY: Duration = Duration::from_secs(10);

/// When each thing was last said.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<BTreeMap<&'static str, Instant>>);

// === impl LogThrottle ===

impl LogThrottle {
    /// Is it time to say `what` again? Then it counts as said.
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
    async fn each_thing_is_said_once_in_a_while() {
        let throttle = LogThrottle::default();
        assert!(throttle.is_due("refused"));
        assert!(!throttle.is_due("refused"));
        assert!(throttle.is_due("reset"));
        tokio::time::advance(EVERY).await;
        assert!(throttle.is_due("refused"));
    }
}

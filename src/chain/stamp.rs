//! Points in time with a total order.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

/// A point in time, with a sequence number.
///
/// Two events can have the same clock reading, but their order still matters: a head requested before a write says
/// nothing about the chain after that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Clock reading.
    pub time: Instant,
    /// Sequence number: higher for later stamps.
    pub order: u64,
}

/// Makes [`Stamp`]s.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

// === impl Stamp ===

impl Stamp {
    /// Returns whether the answer to a request sent at this stamp may serve a call that arrived at `arrival`. It may if
    /// the request was sent after the arrival, or at most `staleness` before it.
    pub fn serves(self, arrival: Self, staleness: Duration) -> bool {
        self.order >= arrival.order
            || (!staleness.is_zero() && arrival.time.saturating_duration_since(self.time) <= staleness)
    }

    /// Returns whether this stamp is before `other`.
    pub fn is_before(self, other: Self) -> bool {
        self.order < other.order
    }
}

// === impl Clock ===

impl Clock {
    /// Returns the current stamp.
    pub fn now(&self) -> Stamp {
        // The order is taken before the time. If two threads race, the stamp with the later order can have the earlier
        // time, but only by the time that one thread spends between these two lines.
        let order = self.0.fetch_add(1, Relaxed) + 1;
        Stamp { time: Instant::now(), order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn order_decides_between_equal_times() {
        let clock = Clock::default();
        let (first, second) = (clock.now(), clock.now());
        assert_eq!(first.time, second.time);
        assert!(first.is_before(second) && !second.is_before(first) && !first.is_before(first));
        // Without staleness, a request serves the calls that arrived before it was sent, or with it.
        assert!(second.serves(first, Duration::ZERO) && second.serves(second, Duration::ZERO));
        assert!(!first.serves(second, Duration::ZERO));
    }
}

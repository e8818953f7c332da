//! Points in time with a total order.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

/// A point in time, with a sequence number.
///
/// Two events can have the same clock reading, but their order still matters: a head requested before a write says
/// nothing about the chain after it.
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
    /// Returns whether a request sent at this stamp may serve a call that arrived at `arrival`: it was sent no earlier
    /// than `staleness` before that.
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
        // Take the order first: of two threads, the one with the later order may have an earlier time only by as much
        // as reading the clock takes.
        let order = self.0.fetch_add(1, Relaxed) + 1;
        Stamp { time: Instant::now(), order }
    }
}

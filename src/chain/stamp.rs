//! Moments, in order.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

/// A moment: when it was, and what came before it.
///
/// Two things can happen at the same reading of a clock, and which of them was first still matters:
/// a head asked for before a write tells nothing of what is after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When.
    pub time: Instant,
    /// Later moments have a higher one.
    pub order: u64,
}

/// Makes [`Stamp`]s.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

// === impl Stamp ===

impl Stamp {
    /// Was what was sent at this moment sent no earlier than `staleness` before `arrival`?
    pub fn serves(self, arrival: Self, staleness: Duration) -> bool {
        self.order >= arrival.order
            || (!staleness.is_zero() && arrival.time.saturating_duration_since(self.time) <= staleness)
    }

    /// Was it before `other`?
    pub fn is_before(self, other: Self) -> bool {
        self.order < other.order
    }
}

// === impl Clock ===

impl Clock {
    /// This moment.
    pub fn now(&self) -> Stamp {
        // The order first: of two threads the one with the later order must not have the earlier
        // time by more than the time it takes to read it.
        let order = self.0.fetch_add(1, Relaxed) + 1;
        Stamp { time: Instant::now(), order }
    }
}

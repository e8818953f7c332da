//! Pauses that double with each failure.

use std::time::Duration;

/// A pause that doubles each time, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Pauses since the last [reset](Self::reset).
    pauses: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Creates a backoff that starts at `first` and stops doubling at `longest`. A `longest` below `first` is treated
    /// as `first`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pauses: 0 }
    }

    /// Returns the next pause, and doubles the pause after it.
    pub fn next_pause(&mut self) -> Duration {
        self.pauses = self.pauses.saturating_add(1);
        self.last_pause()
    }

    /// Returns the pause that [`next_pause`](Self::next_pause) returned last, or the first pause if it has returned none.
    pub fn last_pause(&self) -> Duration {
        let doublings = self.pauses.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest.max(self.first))
    }

    /// Starts again with the first pause.
    pub fn reset(&mut self) {
        self.pauses = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!(backoff.last_pause().as_secs(), 1);
        let pauses: Vec<_> = (0..5).map(|_| backoff.next_pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        assert_eq!(backoff.last_pause().as_secs(), 5);
        assert!((0..100).all(|_| backoff.next_pause().as_secs() == 5));
        backoff.reset();
        assert_eq!(backoff.next_pause().as_secs(), 1);
        let mut short = Backoff::new(Duration::from_secs(9), Duration::from_secs(5));
        assert_eq!((short.next_pause().as_secs(), short.next_pause().as_secs()), (9, 9));
    }
}

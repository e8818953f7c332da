//! A token bucket: a rate limit with a burst, for clients and for endpoints. It reads no clock: the caller passes the
//! time.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket that refills at a constant rate.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Time between two tokens.
    interval: Duration,
    burst: u32,
    /// Time at which the bucket is full again; `None` before the first token is taken.
    full_at: Option<Instant>,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens, at least 1, that gains one token per `interval`.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: burst.max(1), full_at: None }
    }

    /// Returns how long to wait until `tokens` are available. A number above the burst is treated as the burst.
    pub fn wait(&self, tokens: u32, now: Instant) -> Duration {
        let Some(full_at) = self.full_at else { return Duration::ZERO };
        // The bucket has enough tokens now if it becomes full within this time.
        let spare = self.interval * (self.burst - tokens.min(self.burst));
        (full_at.saturating_duration_since(now)).saturating_sub(spare)
    }

    /// Takes `tokens`, even if the bucket has fewer.
    pub fn take(&mut self, tokens: u32, now: Instant) {
        let from = self.full_at.map_or(now, |full_at| full_at.max(now));
        // Caps the debt at `tokens` below empty, because repeated takes from an empty bucket would otherwise raise it
        // without bound.
        let most = now + self.interval * self.burst.saturating_add(tokens);
        self.full_at = Some((from + self.interval * tokens).min(most));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_grants_more_than_burst_plus_rate(
            per_second in 1u32..50,
            burst in 1u32..20,
            asks in proptest::collection::vec((0u64..400, 1u32..5), 1..100),
        ) {
            let begun = Instant::now();
            let (mut now, mut bucket, mut taken) = (begun, TokenBucket::new(Duration::from_secs(1) / per_second, burst), 0u32);
            for (millis, tokens) in asks {
                now += Duration::from_millis(millis);
                if bucket.wait(tokens, now).is_zero() {
                    bucket.take(tokens, now);
                    taken += tokens;
                }
                let allowed = f64::from(burst) + now.duration_since(begun).as_secs_f64() * f64::from(per_second);
                // One take of up to 4 tokens may exceed a burst of fewer tokens.
                prop_assert!(f64::from(taken) <= allowed + 5.0, "{} of {}", taken, allowed);
            }
        }

        #[test]
        fn a_token_is_available_after_the_reported_wait(per_second in 1u32..50, burst in 1u32..20, drained in 0u32..60) {
            let now = Instant::now();
            let mut bucket = TokenBucket::new(Duration::from_secs(1) / per_second, burst);
            bucket.take(drained, now);
            let wait = bucket.wait(1, now);
            prop_assert!(bucket.wait(1, now + wait).is_zero());
            if drained < burst {
                prop_assert!(wait.is_zero());
            }
        }

        #[test]
        fn debt_is_bounded(takes in 1u32..5_000) {
            let now = Instant::now();
            let mut bucket = TokenBucket::new(Duration::from_millis(100), 5);
            (0..takes).for_each(|_| bucket.take(3, now));
            prop_assert!(bucket.wait(1, now) <= Duration::from_secs(1));
        }
    }
}

//! A rate that must not be exceeded, with a burst. Pure: time comes as an argument. It serves clients and endpoints.

use std::time::Duration;

use tokio::time::Instant;

/// Tokens that come back at a rate.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Between two tokens.
    interval: Duration,
    burst: u32,
    /// When it will be full.
    full_at: Option<Instant>,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full one, into which a token comes back each `interval`; `burst` is at least 1.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: burst.max(1), full_at: None }
    }

    /// How long until `tokens` can be taken; more than the burst count as the burst.
    pub fn wait(&self, tokens: u32, now: Instant) -> Duration {
        let Some(full_at) = self.full_at else { return Duration::ZERO };
        // With so much missing at most, there is enough.
        let spare = self.interval * (self.burst - tokens.min(self.burst));
        (full_at.saturating_duration_since(now)).saturating_sub(spare)
    }

    /// Takes tokens, whether they are there or not.
    pub fn take(&mut self, tokens: u32, now: Instant) {
        let from = self.full_at.map_or(now, |full_at| full_at.max(now));
        // Who takes what is not there, since it must, owes no more than that and a burst: else it would never end.
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
        fn in_no_time_more_is_taken_than_the_burst_and_the_rate_allow(
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
                // What is taken at once may exceed a burst that is smaller than it.
                prop_assert!(f64::from(taken) <= allowed + 5.0, "{} of {}", taken, allowed);
            }
        }

        #[test]
        fn waiting_as_long_as_it_says_is_enough(per_second in 1u32..50, burst in 1u32..20, drained in 0u32..60) {
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
        fn a_debt_does_not_grow_for_ever(takes in 1u32..5_000) {
            let now = Instant::now();
            let mut bucket = TokenBucket::new(Duration::from_millis(100), 5);
            (0..takes).for_each(|_| bucket.take(3, now));
            prop_assert!(bucket.wait(1, now) <= Duration::from_secs(1));
        }
    }
}

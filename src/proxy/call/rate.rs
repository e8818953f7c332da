//! Rate limits of clients.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::time::Instant;

use crate::token_bucket::TokenBucket;

/// Largest number of calls per unit of time that a rate may have. A million calls per second is more than any client
/// makes.
const MOST: u32 = 1_000_000;

/// Number of calls per unit of time: `100/s`, `600/m`, `5000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    calls: NonZeroU32,
    per: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    Second,
    Minute,
    Hour,
}

/// Invalid rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a rate; use calls per second, minute or hour, from 1 to {MOST}, such as \"100/s\" or \"600/m\""
)]
pub struct RateError {
    /// The rejected text.
    pub text: String,
}

/// Rate limit of a client: a sustained rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// Sustained rate.
    pub rate: Rate,
    /// Number of calls that an idle client may make at once.
    pub burst: NonZeroU32,
}

/// Remaining calls of one client, as a token bucket. Cheap to clone; clones share the tokens.
#[derive(Clone, Debug)]
pub struct Bucket {
    allowance: Allowance,
    tokens: Arc<Mutex<TokenBucket>>,
}

// === impl Unit ===

impl Unit {
    fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 60 * 60,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
        }
    }
}

// === impl Rate ===

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let error = || RateError { text: text.chars().take(32).collect() };
        let (calls, unit) = text.split_once('/').ok_or_else(error)?;
        let calls: NonZeroU32 = calls.trim().parse().map_err(|_| error())?;
        let per = match unit.trim() {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            "h" => Unit::Hour,
            _ => return Err(error()),
        };
        if calls.get() > MOST { Err(error()) } else { Ok(Self { calls, per }) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.calls, self.per.as_str())
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

/// Deserializes a [`Rate`]. Its errors show the expected form, because a plain number is a common first try.
struct RateVisitor;

impl de::Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("calls per unit of time, such as \"100/s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
        text.parse().map_err(E::custom)
    }
}

// === impl Allowance ===

impl Allowance {
    /// Returns an allowance. Without `burst`, all calls of one time unit may come at once.
    pub fn new(rate: Rate, burst: Option<NonZeroU32>) -> Self {
        Self { rate, burst: burst.unwrap_or(rate.calls) }
    }

    /// Returns the time in which the bucket regains one call.
    fn interval(self) -> Duration {
        self.rate.per.time() / self.rate.calls.get()
    }

    /// Returns the time after which an exhausted bucket is full again, and can be dropped.
    pub fn recovery(self) -> Duration {
        self.interval().saturating_mul(self.burst.get())
    }
}

// === impl Bucket ===

impl Bucket {
    /// Returns a full bucket.
    pub fn new(allowance: Allowance) -> Self {
        let tokens = TokenBucket::new(allowance.interval(), allowance.burst.get());
        Self { allowance, tokens: Arc::new(Mutex::new(tokens)) }
    }

    /// Returns the allowance of this bucket.
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Takes tokens for this number of calls out of the bucket, all or none. For several calls, which belong to one that
    /// has taken its token, all other tokens of a full bucket are enough; the rest is a debt.
    ///
    /// # Errors
    /// Returns the time until these calls are allowed.
    pub fn take(&self, calls: u32) -> Result<(), Duration> {
        let (now, mut tokens) = (Instant::now(), self.tokens.lock());
        let others = self.allowance.burst.get() - 1;
        match tokens.wait(if calls > 1 { calls.min(others) } else { calls }, now) {
            Duration::ZERO => tokens.take(calls, now),
            wait => return Err(wait),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    fn allowance(rate: &str, burst: Option<u32>) -> Allowance {
        Allowance::new(rate.parse().unwrap(), burst.and_then(NonZeroU32::new))
    }

    #[test]
    fn rates_round_trip_as_text() {
        for text in ["1/s", "100/s", "600/m", "5000/h", "1000000/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["0/s", "100", "100/d", "1.5/s", "-1/s", "/s", "", "1000001/s", "99999999999/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn further_calls_of_a_call_need_at_most_the_rest_of_a_full_bucket() {
        for burst in 1..4 {
            let bucket = Bucket::new(allowance("1/s", Some(burst)));
            assert!(bucket.take(1).is_ok() && bucket.take(10).is_ok());
            let debt = Duration::from_secs(12 - u64::from(burst));
            assert_eq!(bucket.take(1), Err(debt));
            time::advance(debt).await;
            assert!(bucket.take(1).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_refill_evenly() {
        let bucket = Bucket::new(allowance("120/m", Some(3)));
        assert!((0..3).all(|_| bucket.take(1).is_ok()));
        assert_eq!(bucket.take(1), Err(Duration::from_millis(500)));
        time::advance(Duration::from_millis(200)).await;
        assert_eq!(bucket.take(1), Err(Duration::from_millis(300)));
        time::advance(Duration::from_millis(300)).await;
        assert!(bucket.take(1).is_ok() && bucket.take(1).is_err());

        time::advance(bucket.allowance().recovery() + Duration::from_secs(60)).await;
        assert_eq!((0..10).filter(|_| bucket.take(1).is_ok()).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn rate_without_burst_allows_all_calls_at_once() {
        let bucket = Bucket::new(allowance("7/h", None));
        assert_eq!((0..10).filter(|_| bucket.take(1).is_ok()).count(), 7);
        assert_eq!(bucket.allowance().recovery().as_secs(), 3599);
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_rates_and_bursts_are_exact() {
        for (rate, burst) in [("1/h", 1_000_000), ("1000000/s", 1_000_000), ("1000000/s", 1), ("1/h", 1)] {
            let bucket = Bucket::new(allowance(rate, Some(burst)));
            for _ in 0..3 {
                assert_eq!(
                    (0..=burst).filter(|_| bucket.take(1).is_ok()).count(),
                    burst as usize,
                    "{rate} {burst}"
                );
                time::advance(bucket.allowance().recovery()).await;
            }
        }
    }
}

//! How often a client may call.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::time::Instant;

use crate::token_bucket::TokenBucket;

/// The most calls in any unit of time: a call for each microsecond of it is no limit any more.
const MOST: u32 = 1_000_000;

/// So many calls in a unit of time: `100/s`, `600/m`, `5000/h`.
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

/// Text that is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no rate; write calls per second, minute or hour, from 1 to {MOST}, such as \"100/s\" or \"600/m\""
)]
pub struct RateError {
    /// The text.
    pub text: String,
}

/// How many calls a client may make: steadily, and at once after a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// Calls that come back in a unit of time, evenly.
    pub rate: Rate,
    /// Calls at once, by a client that has rested.
    pub burst: NonZeroU32,
}

/// What one client may still do. Cheap to clone; clones share what is left.
///
/// A call takes one, and time brings them back.
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

/// Says what it expects: a number alone is what people try first.
struct RateVisitor;

impl de::Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("calls in a time, such as \"100/s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
        text.parse().map_err(E::custom)
    }
}

// === impl Allowance ===

impl Allowance {
    /// Without a burst of its own, a rate lets a whole unit's calls come at once.
    pub fn new(rate: Rate, burst: Option<NonZeroU32>) -> Self {
        Self { rate, burst: burst.unwrap_or(rate.calls) }
    }

    /// Until one call comes back.
    fn interval(self) -> Duration {
        self.rate.per.time() / self.rate.calls.get()
    }

    /// Until a client that has used up all of it may do so again: then it is as if it had never been seen.
    pub fn recovery(self) -> Duration {
        self.interval().saturating_mul(self.burst.get())
    }
}

// === impl Bucket ===

impl Bucket {
    /// A full one.
    pub fn new(allowance: Allowance) -> Self {
        let tokens = TokenBucket::new(allowance.interval(), allowance.burst.get());
        Self { allowance, tokens: Arc::new(Mutex::new(tokens)) }
    }

    /// What it was made for.
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Takes a call out of it.
    ///
    /// # Errors
    /// If there is none: how long until there is.
    pub fn take(&self) -> Result<(), Duration> {
        let (now, mut tokens) = (Instant::now(), self.tokens.lock());
        match tokens.wait(1, now) {
            Duration::ZERO => tokens.take(1, now),
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
    fn rates_read_as_they_are_written() {
        for text in ["1/s", "100/s", "600/m", "5000/h", "1000000/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["0/s", "100", "100/d", "1.5/s", "-1/s", "/s", "", "1000001/s", "99999999999/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_comes_back_evenly() {
        let bucket = Bucket::new(allowance("120/m", Some(3)));
        assert!((0..3).all(|_| bucket.take().is_ok()));
        assert_eq!(bucket.take(), Err(Duration::from_millis(500)));
        time::advance(Duration::from_millis(200)).await;
        assert_eq!(bucket.take(), Err(Duration::from_millis(300)));
        time::advance(Duration::from_millis(300)).await;
        assert!(bucket.take().is_ok() && bucket.take().is_err());

        time::advance(bucket.allowance().recovery() + Duration::from_secs(60)).await;
        assert_eq!((0..10).filter(|_| bucket.take().is_ok()).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_alone_lets_its_calls_come_at_once() {
        let bucket = Bucket::new(allowance("7/h", None));
        assert_eq!((0..10).filter(|_| bucket.take().is_ok()).count(), 7);
        assert_eq!(bucket.allowance().recovery().as_secs(), 3599);
    }

    #[tokio::test(start_paused = true)]
    async fn the_ends_of_what_can_be_set_can_be_counted() {
        for (rate, burst) in [("1/h", 1_000_000), ("1000000/s", 1_000_000), ("1000000/s", 1), ("1/h", 1)] {
            let bucket = Bucket::new(allowance(rate, Some(burst)));
            for _ in 0..3 {
                assert_eq!(
                    (0..=burst).filter(|_| bucket.take().is_ok()).count(),
                    burst as usize,
                    "{rate} {burst}"
                );
                time::advance(bucket.allowance().recovery()).await;
            }
        }
    }
}

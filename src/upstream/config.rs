//! The `[upstream]` section: endpoints, limits and time-outs.

use std::{collections::BTreeMap, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::secret::Secret;

/// Settings for calls to the upstream endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time-out for connecting to a node, short enough for another endpoint to answer while the client still waits.
    /// Not a configuration key; only tests change it.
    #[serde(skip)]
    pub connect_timeout: Duration,
    /// Time-out of one attempt, from opening a connection, if necessary, to the last byte of the response.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Maximum number of fetches and forwarded calls in flight.
    pub max_in_flight: usize,
    /// Maximum number of fetches in flight for one client; its further fetches wait. `None` means half of
    /// `max_in_flight`, or all of it for an address that several clients share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_client: Option<usize>,
    /// Maximum time that a fetch waits for a slot or for an endpoint's rate limit. After that, the fetch fails, and
    /// the client may retry. Not a configuration key; only tests change it.
    #[serde(skip)]
    pub max_wait: Duration,
    /// Percentile of recent answer times after which a request also goes to a second endpoint; `None` disables hedging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Percentile>,
    /// Maximum size of a response, decompressed. The answers of a batch are one response.
    pub max_answer: ByteSize,
    /// The upstream endpoints.
    pub endpoints: Vec<EndpointConfig>,
}

/// One upstream endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Name in logs, in metrics and on the status page; `None` means the URL without its secret parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL. Providers put their API key into the path, so the whole URL is a secret.
    pub url: Secret,
    /// The `ws://` or `wss://` URL for `newHeads` subscriptions. It is a secret, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ws: Option<Secret>,
    /// Order of use: Holdfast calls the available endpoints with the lowest value. Endpoints with equal values
    /// share the calls.
    #[serde(default)]
    pub priority: u32,
    /// Relative share of the calls among endpoints of equal priority.
    #[serde(default = "one")]
    pub weight: u32,
    /// Rate limit for calls to this endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateConfig>,
    /// Whether the endpoint is a single node without a load balancer, so that consecutive answers do not contradict
    /// each other.
    #[serde(default)]
    pub consistent: bool,
    /// Headers to send with every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
}

/// Rate limit of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Average number of calls per second.
    pub per_second: u32,
    /// Maximum number of calls in one burst.
    pub burst: u32,
}

/// A percentile from 0.5 to 0.999, stored in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile(u16);

const THOUSAND: f64 = 1e3;

fn one() -> u32 {
    1
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(25),
            max_in_flight: 256,
            max_per_client: None,
            max_wait: Duration::from_secs(2),
            hedge: None,
            max_answer: ByteSize::mib(128),
            endpoints: Vec::new(),
        }
    }
}

// === impl Config ===

impl Config {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["timeout", "max_answer", "endpoints"];
}

// === impl EndpointConfig ===

impl EndpointConfig {
    /// Returns an endpoint at `url` with default settings.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            name: None,
            url: Secret::Plain(url.into()),
            ws: None,
            priority: 0,
            weight: 1,
            rate: None,
            consistent: false,
            headers: BTreeMap::new(),
        }
    }
}

// === impl Percentile ===

impl Percentile {
    /// Returns `None` unless `share` is between 0.5 and 0.999.
    pub fn try_new(share: f64) -> Option<Self> {
        (0.5..=0.999).contains(&share).then(|| Self((share * THOUSAND).round() as u16))
    }

    /// Returns the index of this percentile in a sorted list of `of` values.
    pub(in crate::upstream) fn place(self, of: usize) -> usize {
        (of * usize::from(self.0) / THOUSAND as usize).min(of.saturating_sub(1))
    }
}

impl Serialize for Percentile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / THOUSAND)
    }
}

impl<'de> Deserialize<'de> for Percentile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        Self::try_new(share).ok_or_else(|| {
            de::Error::custom(format_args!(
                "{share} is not a valid percentile for hedging; write a number from 0.5 to 0.999, such as 0.95"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_lies_between_0_5_and_0_999() {
        for share in [0.5, 0.95, 0.999] {
            let percentile = Percentile::try_new(share).unwrap();
            assert!(percentile.place(32) < 32);
            assert_eq!(serde_json::to_value(percentile).unwrap(), share);
        }
        for share in [0.0, 0.499, 0.9991, 1.0, 95.0, f64::NAN] {
            assert_eq!(Percentile::try_new(share), None);
        }
    }
}

//! Which node to ask, and how patiently.

use std::{collections::BTreeMap, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::secret::Secret;

/// How upstreams are asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// To reach the node at all: another is asked soon enough for the client to wait. Not a key: only tests use another.
    #[serde(skip)]
    pub connect_timeout: Duration,
    /// For one attempt, from the first byte sent to the last byte read.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Fetches at once.
    pub max_in_flight: usize,
    /// Fetches of one client at a time; its others wait for these. Half of `max_in_flight` if `None`; all for an address that
    /// clients share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_client: Option<usize>,
    /// How long a fetch may wait for its turn, or for the rate of an endpoint: past it, the client had better try again. Not
    /// a key: only tests use another.
    #[serde(skip)]
    pub max_wait: Duration,
    /// What has taken longer than this share of recent answers is asked of another endpoint too; `None` never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Percentile>,
    /// The largest answer that is read, unpacked.
    pub max_answer: ByteSize,
    /// The nodes.
    pub endpoints: Vec<EndpointConfig>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Where it is. Providers put their key into the path, so the whole URL counts as a secret.
    pub url: Secret,
    /// Where it tells of new heads, a `ws://` or `wss://` URL; a secret as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ws: Option<Secret>,
    /// Whom to ask first: the lowest that can be asked. Those that are equal share the calls.
    #[serde(default)]
    pub priority: u32,
    /// How much of what is shared it takes, in proportion.
    #[serde(default = "one")]
    pub weight: u32,
    /// How often it may be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateConfig>,
    /// One node without a balancer in between: it does not contradict itself from call to call.
    #[serde(default)]
    pub consistent: bool,
    /// Sent with every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
}

/// How often an endpoint may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Calls in a second, in the long run.
    pub per_second: u32,
    /// Calls at once.
    pub burst: u32,
}

/// A share of the answers, from the half to all but a thousandth, in thousandths.
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
    /// An endpoint at this URL, and nothing else said of it.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
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
    /// `None` if it is not between 0.5 and 0.999.
    pub fn try_new(share: f64) -> Option<Self> {
        (0.5..=0.999).contains(&share).then(|| Self((share * THOUSAND).round() as u16))
    }

    /// The place of the last that is within this share, of so many in order.
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
                "{share} is no share to hedge at; write a number from 0.5 to 0.999, such as 0.95"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_that_can_be_late() {
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

//! Which node to ask, and how patiently.

use std::{collections::BTreeMap, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::{EndpointError, HeadFeed, Percentile, Reach};
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

    /// Can it be used as it is configured? Looks up its secrets, and connects to nothing.
    ///
    /// # Errors
    /// If the endpoint's secrets, URLs or headers are no good, or its share or rate is nothing.
    pub fn check(&self) -> Result<(), EndpointError> {
        if self.weight == 0 {
            return Err(EndpointError::Weight);
        }
        let of_rate = self.rate.map(|rate| [("per_second", rate.per_second), ("burst", rate.burst)]);
        if let Some((key, _)) = of_rate.into_iter().flatten().find(|(_, value)| *value == 0) {
            return Err(EndpointError::Rate { key });
        }
        Reach::resolve(self)?;
        HeadFeed::try_new(self, &Config::default()).map(drop)
    }
}

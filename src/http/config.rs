//! Configuration of the edge: limits and access rules for clients.

use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::sender::{address::Network, host::HostName, key::KeyConfig};
use crate::proxy::{MethodsConfig, Rate};

/// Largest burst. A larger burst would limit nothing.
const MOST_AT_ONCE: u32 = 1_000_000;

/// Limits of requests, and access rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The largest request body.
    pub max_body: ByteSize,
    /// Time for a whole body to arrive. It is long enough for a slow uplink, and short enough that a slow client does
    /// not hold a permit for long. This is not a configuration key: only tests change it.
    #[serde(skip)]
    pub body_timeout: Duration,
    /// Maximum number of calls in one batch.
    pub max_batch: usize,
    /// Maximum number of calls of one batch that run at a time. More calls would only wait for the upstream. This is
    /// not a configuration key.
    #[serde(skip)]
    pub batch_concurrency: usize,
    /// Time after which no further call of a batch begins. This is not a configuration key: only tests change it.
    #[serde(skip)]
    pub batch_timeout: Duration,
    /// Largest total size of a batch's answers, enough for a hundred large blocks with receipts. This is not a
    /// configuration key: only tests change it.
    #[serde(skip)]
    pub max_batch_answer: ByteSize,
    /// Whether cached answers are sent as gzip to clients that accept it.
    pub compress: bool,
    /// Maximum number of requests in flight. Further requests are refused.
    pub max_in_flight: usize,
    /// Maximum number of requests of one client in flight. `None` stands for half of `max_in_flight`; for an address
    /// that many clients share, it stands for all of `max_in_flight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_client: Option<usize>,
    /// Web pages that may read answers: `*`, or a list of origins.
    pub allowed_origins: Vec<String>,
    /// Hosts that the listener serves. A loopback listener also serves `localhost` and loopback addresses. Any other
    /// listener serves every host if this list is empty.
    pub allowed_hosts: Vec<HostName>,
    /// Proxies whose `x-forwarded-for` is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Call rate of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Calls that a client may make at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// Keys of the clients that have access; if empty, all clients have access.
    pub keys: Vec<KeyConfig>,
}

/// The configuration in force. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct SharedConfig(Arc<ArcSwap<Config>>);

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ConfigError {
    /// Path of the setting, below `http`.
    pub key: String,
    /// The problem, and a valid alternative.
    pub message: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_body: ByteSize::mib(5),
            body_timeout: Duration::from_secs(10),
            max_batch: 1000,
            batch_concurrency: 32,
            // This is twice the deadline of a call. Writes run one after another, and if the first write times out, the
            // next write must still begin.
            batch_timeout: Duration::from_secs(60),
            max_batch_answer: ByteSize::mib(64),
            compress: true,
            max_in_flight: 1024,
            max_per_client: None,
            allowed_origins: vec!["*".to_owned()],
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            rate: None,
            burst: None,
            keys: Vec::new(),
        }
    }
}

// === impl Config ===

impl Config {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &[
        "max_body",
        "max_batch",
        "compress",
        "max_in_flight",
        "max_per_client",
        "rate",
        "burst",
        "keys",
        "trusted_proxies",
        "allowed_hosts",
        "allowed_origins",
    ];

    /// Checks the rules for clients: bursts, and names, hashes and methods of keys.
    ///
    /// # Errors
    /// If a setting is invalid. The error names the first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_burst("burst".to_owned(), self.rate, self.burst)?;
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for (at, key) in self.keys.iter().enumerate() {
            let wrong =
                |member: &str, message: String| ConfigError { key: format!("keys.{at}.{member}"), message };
            KeyConfig::check_name(&key.name).map_err(|message| wrong("name", message))?;
            if !names.insert(&key.name) {
                return Err(wrong(
                    "name",
                    format!("two keys are named {:?}; give each its own name", key.name),
                ));
            }
            if !hashes.insert(key.sha256.to_string()) {
                return Err(wrong("sha256", "the same key is listed twice; remove one".to_owned()));
            }
            let methods = MethodsConfig {
                allow: key.allow.clone().unwrap_or_default(),
                deny: key.deny.clone(),
                trusted_origins: Vec::new(),
            };
            methods.check().map_err(|(list, error)| wrong(list, error.to_string()))?;
            check_burst(format!("keys.{at}.burst"), key.rate, key.burst)?;
        }
        Ok(())
    }
}

fn check_burst(key: String, rate: Option<Rate>, burst: Option<NonZeroU32>) -> Result<(), ConfigError> {
    let message = match (rate, burst) {
        (None, Some(_)) => "has no effect without a rate; set one, such as rate = \"100/s\"".to_owned(),
        (_, Some(burst)) if burst.get() > MOST_AT_ONCE => format!("must be at most {MOST_AT_ONCE}"),
        _ => return Ok(()),
    };
    Err(ConfigError { key, message })
}

// === impl SharedConfig ===

impl SharedConfig {
    pub(super) fn new(config: &Config) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(config.clone())))
    }

    pub(super) fn load(&self) -> Arc<Config> {
        self.0.load_full()
    }

    pub(super) fn set(&self, config: &Config) {
        self.0.store(Arc::new(config.clone()));
    }
}

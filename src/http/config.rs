//! What the edge takes from its clients.

use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::sender::{address::Network, host::HostName, key::KeyConfig};
use crate::proxy::{MethodsConfig, Rate};

/// More at once is no limit any more.
const MOST_AT_ONCE: u32 = 1_000_000;

/// Limits of a request, and who may send one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The largest request body.
    pub max_body: ByteSize,
    /// For a whole body to arrive: long enough for a slow uplink, too short to hold a place for long. Not a key: only tests
    /// use another.
    #[serde(skip)]
    pub body_timeout: Duration,
    /// The most calls in one batch.
    pub max_batch: usize,
    /// Calls of one batch that run at a time: more would only wait for each other upstream. Not a key.
    #[serde(skip)]
    pub batch_concurrency: usize,
    /// After so long, no more calls of a batch are begun. Not a key: only tests use another.
    #[serde(skip)]
    pub batch_timeout: Duration,
    /// The largest sum of a batch's answers: a hundred large blocks with receipts. Not a key: only tests use another.
    #[serde(skip)]
    pub max_batch_answer: ByteSize,
    /// Are answers from memory sent as gzip, to clients who take it?
    pub compress: bool,
    /// Requests at a time; more are shed.
    pub max_in_flight: usize,
    /// Requests of one client at a time. Half of `max_in_flight` if `None`; all for an address that clients share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_client: Option<usize>,
    /// Web pages that may read answers: `*`, or a list of origins.
    pub allowed_origins: Vec<String>,
    /// Hosts that are served, beside those that always are.
    pub allowed_hosts: Vec<HostName>,
    /// Proxies whose `x-forwarded-for` is believed.
    pub trusted_proxies: Vec<Network>,
    /// How often a client may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Calls at once, by a client that has rested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// Who may come in; anybody, if empty.
    pub keys: Vec<KeyConfig>,
}

/// The configuration in force. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct SharedConfig(Arc<ArcSwap<Config>>);

/// What is wrong with a key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ConfigError {
    /// Which one, below `http`.
    pub key: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_body: ByteSize::mib(5),
            body_timeout: Duration::from_secs(10),
            max_batch: 1000,
            batch_concurrency: 32,
            // Twice what a call may take: of calls that run one after another, as writes do, each may fail slowly and
            // another still has its turn.
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

    /// Do the rules for clients make sense together?
    ///
    /// # Errors
    /// Names the first key that does not.
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
                return Err(wrong("sha256", "the same key is there twice; leave one out".to_owned()));
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
        (None, Some(_)) => "is nothing without a rate beside it, such as rate = \"100/s\"".to_owned(),
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

//! Which methods are served, and how long a call may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    chain::Rules,
    client::ClientLimit,
    proxy::glob::{Glob, GlobError},
};

/// How calls are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The chain that the upstream must serve; whatever it serves, if `None`.
    pub chain_id: Option<u64>,
    /// Serve the six operations and nothing else.
    pub strict: bool,
    /// For one call, whatever it waits for.
    pub call_timeout: Duration,
    /// Upstream fetches at a time, and those of one client.
    pub fetches: ClientLimit,
    /// Which methods are let through.
    pub methods: MethodsConfig,
    /// How the chain is followed.
    pub chain: ChainConfig,
}

/// How the chain is followed, and how long what is known of it is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainConfig {
    /// How old knowledge may be when a call arrives.
    #[serde(with = "humantime_serde")]
    pub max_staleness: Duration,
    /// The newest blocks whose links are remembered.
    pub window: usize,
    /// How long a lower head is shown before it is a rollback: a replica that lags catches up within it. Not a key: only
    /// models use another.
    #[serde(skip)]
    pub lag_patience: Duration,
    /// Blocks this deep count as final, on a chain whose node knows no finality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finality_depth: Option<u64>,
    /// How much older than the finalized block a block must be to be final by one answer. Not a key: only models use
    /// another than the default.
    #[serde(skip)]
    pub final_margin: Duration,
    /// What is done before anybody asks.
    pub follow: Follow,
    /// How often a follower asks for the head, where no endpoint pushes new ones: often enough for chains with blocks every
    /// second or two, and still within the free plans of providers. Not a key: only models use another.
    #[serde(skip)]
    pub follow_interval: Duration,
}

/// What is done before anybody asks. Each does what those above it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Follow {
    /// Nothing: without traffic there are no upstream calls.
    Off,
    /// The view of the chain is kept new.
    Heads,
    /// The block of each new head is fetched.
    Blocks,
    /// Its receipts too.
    Full,
}

/// Which methods are let through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MethodsConfig {
    /// Globs of the methods that are forwarded.
    pub allow: Vec<String>,
    /// Globs of those that are not, allowed or not.
    pub deny: Vec<String>,
    /// Web pages that may call every allowed method, also those that sign: `https://app.example.org`.
    pub trusted_origins: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            chain_id: None,
            strict: false,
            call_timeout: Duration::from_secs(30),
            fetches: ClientLimit::new(256, None),
            methods: MethodsConfig::default(),
            chain: ChainConfig::default(),
        }
    }
}

impl Default for ChainConfig {
    fn default() -> Self {
        Self {
            max_staleness: Duration::from_secs(1),
            window: 1024,
            lag_patience: Duration::from_secs(15),
            finality_depth: None,
            final_margin: Rules::FINAL_MARGIN,
            follow: Follow::Off,
            follow_interval: Duration::from_secs(1),
        }
    }
}

impl Default for MethodsConfig {
    fn default() -> Self {
        let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        Self { allow: globs(&["eth_*", "net_*", "web3_*"]), deny: Vec::new(), trusted_origins: Vec::new() }
    }
}

// === impl ChainConfig ===

impl ChainConfig {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["max_staleness"];
}

// === impl MethodsConfig ===

impl MethodsConfig {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["allow", "deny", "trusted_origins"];

    /// Are all its globs globs?
    ///
    /// # Errors
    /// Names the list and the glob that is not.
    pub fn check(&self) -> Result<(), (&'static str, GlobError)> {
        for (key, globs) in [("allow", &self.allow), ("deny", &self.deny)] {
            for glob in globs {
                Glob::try_new(glob).map_err(|error| (key, error))?;
            }
        }
        Ok(())
    }
}

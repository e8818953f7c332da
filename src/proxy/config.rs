//! Configuration: allowed methods, deadlines, and how the proxy follows the chain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    chain::Rules,
    client::ClientLimit,
    proxy::glob::{Glob, GlobError},
};

/// Configuration of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Chain id that the upstream must serve; `None` accepts any.
    pub chain_id: Option<u64>,
    /// Serve only the six cached operations.
    pub strict: bool,
    /// Deadline of a call, including all waits.
    pub call_timeout: Duration,
    /// Limit on concurrent upstream fetches, in total and per client.
    pub fetches: ClientLimit,
    /// Allowed methods.
    pub methods: MethodsConfig,
    /// How the proxy follows the chain.
    pub chain: ChainConfig,
}

/// How the proxy follows the chain, and for how long its view of the chain stays fresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainConfig {
    /// Maximum age of the view when a call arrives.
    #[serde(with = "humantime_serde")]
    pub max_staleness: Duration,
    /// Number of newest blocks whose parent links the tracker keeps.
    pub window: usize,
    /// Time for which a lower head counts as a lagging replica; after that it is a rollback. Not a configuration key:
    /// only model tests change it.
    #[serde(skip)]
    pub lag_patience: Duration,
    /// Depth at which a block counts as final, for chains whose node has no finality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finality_depth: Option<u64>,
    /// How much older than the finalized block a block must be to become final by a single answer. Not a
    /// configuration key: only model tests change it.
    #[serde(skip)]
    pub final_margin: Duration,
    /// How much the follower fetches ahead of client calls.
    pub follow: Follow,
    /// Poll interval of the follower while no endpoint pushes new heads: short enough for chains with a block every
    /// second or two, and within the free plans of providers. Not a configuration key: only model tests change it.
    #[serde(skip)]
    pub follow_interval: Duration,
}

/// How much the follower fetches ahead of client calls. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Follow {
    /// Nothing: without traffic there are no upstream calls.
    Off,
    /// Refresh the head.
    Heads,
    /// Also fetch the block of each new head.
    Blocks,
    /// Also fetch the receipts of that block.
    Full,
}

/// Allowed methods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MethodsConfig {
    /// Globs of the methods to forward.
    pub allow: Vec<String>,
    /// Globs of methods to refuse, even if `allow` lists them.
    pub deny: Vec<String>,
    /// Origins of web pages that may call every allowed method, including those that sign: `https://app.example.org`.
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
    /// Keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["max_staleness"];
}

// === impl MethodsConfig ===

impl MethodsConfig {
    /// Keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["allow", "deny", "trusted_origins"];

    /// Checks that all patterns are valid.
    ///
    /// # Errors
    /// Returns the name of the list and its first invalid pattern.
    pub fn check(&self) -> Result<(), (&'static str, GlobError)> {
        for (key, globs) in [("allow", &self.allow), ("deny", &self.deny)] {
            for glob in globs {
                Glob::try_new(glob).map_err(|error| (key, error))?;
            }
        }
        Ok(())
    }
}

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
    /// Whether to serve only the six methods in [`Query::METHODS`](crate::eth::Query::METHODS).
    pub strict: bool,
    /// Deadline of a call, including all waits.
    pub call_timeout: Duration,
    /// Limit on concurrent upstream fetches, in total and per client.
    pub fetches: ClientLimit,
    /// Allowed methods.
    pub methods: MethodsConfig,
    /// How the proxy follows the chain.
    pub chain: ChainConfig,
    /// Limits of `eth_getLogs`.
    pub logs: LogsConfig,
}

/// Limits of `eth_getLogs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogsConfig {
    /// Maximum number of blocks of a range.
    pub max_blocks: usize,
    /// Maximum number of logs in the answer for a range. The logs of a single block may be more.
    pub max_results: usize,
}

/// How the proxy follows the chain, and for how long its view of the chain stays fresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainConfig {
    /// Maximum age of a view of the chain that may answer a call, measured when the call arrives.
    #[serde(with = "humantime_serde")]
    pub max_staleness: Duration,
    /// Number of newest blocks whose parent links the tracker keeps.
    pub window: usize,
    /// Time for which the tracker takes a lower head for the head of a lagging replica. After that time, a lower head
    /// can be a rollback. Not a configuration key, because only model tests change this value.
    #[serde(skip)]
    pub lag_patience: Duration,
    /// Number of blocks below the head at which a block becomes final, for chains whose nodes do not report finality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finality_depth: Option<u64>,
    /// How much older than the finalized block a block must be for a single answer to make it final. Not a
    /// configuration key, because only model tests change this value.
    #[serde(skip)]
    pub final_margin: Duration,
    /// How much the follower fetches ahead of client calls.
    pub follow: Follow,
    /// Poll interval of the follower while no endpoint pushes new heads. The default is short enough for chains with a
    /// block every second or two, and long enough to stay within providers' free plans. Not a configuration key,
    /// because only model tests change this value.
    #[serde(skip)]
    pub follow_interval: Duration,
}

/// How much the follower fetches ahead of client calls. Each level includes all levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Follow {
    /// Fetch nothing. Without client calls, the proxy makes no upstream calls.
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
    /// Origins of web pages that may call every allowed method, including methods that sign. Example:
    /// `https://app.example.org`.
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
            logs: LogsConfig::default(),
        }
    }
}

impl Default for LogsConfig {
    fn default() -> Self {
        Self { max_blocks: 10_000, max_results: 10_000 }
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
        Self {
            allow: globs(&["eth_*", "net_*", "web3_*", "debug_getRaw*"]),
            deny: Vec::new(),
            trusted_origins: Vec::new(),
        }
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

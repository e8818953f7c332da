//! How much is demanded of an answer, and what becomes of one that fails.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How answers are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is demanded of an answer before it is kept.
    pub level: Demand,
    /// What becomes of an answer that cannot be right, if nobody else can be asked.
    pub on_mismatch: OnMismatch,
    /// How long an answer waits for its checks, where it is handed on in any case. Not a key: only tests use another.
    #[serde(skip)]
    pub patience: Duration,
    /// Chains that keep Ethereum's rules, beside those that are known to.
    pub ethereum_chains: Vec<u64>,
}

/// What is demanded of an answer before it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// All proofs that what was fetched allows; nothing is fetched for them.
    Auto,
    /// Proof of everything: what cannot be proved alone is fetched with what proves it.
    Full,
    /// That it has the right shape, and its parts agree.
    Structural,
}

/// What becomes of an answer that cannot be right, if nobody else can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMismatch {
    /// It is handed on, and not kept.
    Pass,
    /// The client gets an error instead.
    Reject,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            level: Demand::Auto,
            on_mismatch: OnMismatch::Pass,
            patience: Duration::from_secs(2),
            ethereum_chains: Vec::new(),
        }
    }
}

// === impl Demand ===

impl Demand {
    /// Every demand.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Full, Self::Structural];

    /// Its name in the configuration and the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Full => "full",
            Self::Structural => "structural",
        }
    }
}

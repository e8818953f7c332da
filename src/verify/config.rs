//! Configuration of verification.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of the verification of upstream answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Checks that an answer must pass before it is cached.
    pub level: Demand,
    /// Treatment of an invalid answer when no other endpoint can be asked.
    pub on_mismatch: OnMismatch,
    /// Longest wait for the checks of an answer that the client gets whether or not the checks pass. This is not a
    /// configuration key: only tests change it.
    #[serde(skip)]
    pub patience: Duration,
    /// Ids of chains that follow Ethereum's rules, in addition to the built-in chains.
    pub ethereum_chains: Vec<u64>,
}

/// Checks that an answer must pass before it is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// All proofs that are possible with the fetched data. Holdfast fetches no extra data for a proof.
    Auto,
    /// Proof of everything. If content cannot be proved alone, Holdfast also fetches the data that proves it.
    Full,
    /// Structural checks only: the answer has the right shape, and its parts agree.
    Structural,
}

/// Treatment of an invalid answer when no other endpoint can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMismatch {
    /// The client gets the answer, but Holdfast does not cache it.
    Pass,
    /// The client gets an error instead of the answer.
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
    /// All demands.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Full, Self::Structural];

    /// Returns the demand's name in the configuration and the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

//! How much is demanded of an answer, and what becomes of one that fails.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How answers are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is demanded of an answer before it is kept.
    pub level: Demand,
    /// What becomes of an answer that cannot be right, if nobody else can be asked.
    pub on_mismatch: OnMismatch,
    /// How long an answer waits for its checks, where it is handed on in any case.
    #[serde(with = "humantime_serde")]
    pub patience: Duration,
    /// The share of answers from memory that are asked for again, and compared.
    pub audit: Share,
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

/// A share of something, from none to all, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u32);

const MILLION: f64 = 1e6;

impl Default for Config {
    fn default() -> Self {
        Self {
            level: Demand::Auto,
            on_mismatch: OnMismatch::Pass,
            patience: Duration::from_secs(2),
            audit: Share::default(),
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

// === impl Share ===

impl Share {
    /// All of it.
    pub const ALL: Self = Self(MILLION as u32);

    /// `None` if it is not between 0 and 1.
    pub fn try_new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then(|| Self((share * MILLION).round() as u32))
    }

    /// From 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / MILLION
    }

    /// Every so many is about such a share, a half or more being all; `None` if it is none at all.
    pub fn every(self) -> Option<u64> {
        (self.0 > 0).then(|| (MILLION / f64::from(self.0)).round() as u64)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        Self::try_new(share).ok_or_else(|| {
            de::Error::custom(format_args!("{share} is no share; write a number from 0 to 1, such as 0.001"))
        })
    }
}

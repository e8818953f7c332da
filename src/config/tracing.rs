//! Where spans are sent, and how many.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Problem;
use crate::{
    secret::Secret,
    upstream::{EndpointAddress, EndpointConfig, EndpointError},
};

/// What is traced for others to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// Who takes spans, by OTLP over HTTP; nobody, if it is unset or empty. A path or a query may hold a key: a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Secret>,
    /// The share of traces that are begun here and recorded; in one that a client has begun, the client decides.
    pub sample: SampleRatio,
    /// Sent with every request there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
}

/// A share of something, from none to all, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRatio(u32);

const MILLION: f64 = 1e6;

/// Said to whoever sets what this build cannot do.
const LEFT_OUT: &str = "this build cannot send spans: build it with --features otlp, or leave the key out";

/// What would be right.
const A_RECEIVER: &str = "expected the URL of a receiver that speaks OTLP over HTTP, such as http://127.0.0.1:4318; v1/traces is added to it";

impl Default for TracingConfig {
    fn default() -> Self {
        Self { otlp: None, sample: SampleRatio::ALL, headers: BTreeMap::new() }
    }
}

// === impl TracingConfig ===

impl TracingConfig {
    /// Where spans are sent, with its secrets looked up; `None` if they are sent nowhere.
    ///
    /// # Errors
    /// If the URL, a header or a secret is no good, or this build cannot send any.
    pub fn receiver(&self) -> Result<Option<EndpointAddress>, Problem> {
        const KEY: &str = "tracing.otlp";
        let Some(url) = &self.otlp else { return Ok(None) };
        let url = url.resolve().map_err(|error| Problem::new(KEY, error))?;
        if url.is_empty() {
            return Ok(None);
        }
        if cfg!(not(feature = "otlp")) {
            return Err(Problem::new(KEY, LEFT_OUT));
        }
        let receiver = EndpointConfig { headers: self.headers.clone(), ..EndpointConfig::at(url) };
        EndpointAddress::resolve(&receiver).map(Some).map_err(|error| match error {
            EndpointError::Url(_) => Problem::new(KEY, A_RECEIVER),
            error => Problem::new("tracing", error),
        })
    }
}

// === impl SampleRatio ===

impl SampleRatio {
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
}

impl Serialize for SampleRatio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for SampleRatio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        Self::try_new(share).ok_or_else(|| {
            de::Error::custom(format_args!("{share} is no share; write a number from 0 to 1, such as 0.001"))
        })
    }
}

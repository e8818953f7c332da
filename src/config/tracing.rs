//! Receiver and sampling of exported spans.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Problem;
use crate::{
    secret::Secret,
    upstream::{EndpointAddress, EndpointConfig, EndpointError},
};

/// Settings of the span export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// URL of a receiver of OTLP over HTTP. If it is unset or empty, Holdfast sends no spans. It is a secret because
    /// its path or query may contain a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Secret>,
    /// Fraction of its own traces that Holdfast records. For a trace that a client started, the client's `sampled`
    /// flag decides.
    pub sample: SampleRatio,
    /// Headers of every request to the receiver.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
}

/// A fraction from 0 to 1, stored in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRatio(u32);

const MILLION: f64 = 1e6;

/// Error for a receiver in a build without the feature `otlp`.
const LEFT_OUT: &str = "this build cannot send spans: build it with --features otlp, or leave the key out";

/// Error for a malformed URL.
const A_RECEIVER: &str = "expected the URL of a receiver that speaks OTLP over HTTP, such as http://127.0.0.1:4318; v1/traces is added to it";

impl Default for TracingConfig {
    fn default() -> Self {
        Self { otlp: None, sample: SampleRatio::ALL, headers: BTreeMap::new() }
    }
}

// === impl TracingConfig ===

impl TracingConfig {
    /// Resolves the address of the receiver and its secrets; `None` if no spans are sent.
    ///
    /// # Errors
    /// If the URL, a header or a secret is invalid, or this build cannot send spans.
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
    /// Every trace.
    pub const ALL: Self = Self(MILLION as u32);

    /// Creates a ratio; `None` if `share` is not between 0 and 1.
    pub fn try_new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then(|| Self((share * MILLION).round() as u32))
    }

    /// Returns the fraction, from 0 to 1.
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
            de::Error::custom(format_args!(
                "{share} is out of range; write a number from 0 to 1, such as 0.001"
            ))
        })
    }
}

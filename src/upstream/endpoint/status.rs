//! Status of an endpoint, for metrics, `/status` and the status page.

use std::{sync::Arc, time::Duration};

use super::{
    super::{EndpointId, EndpointTotals, UpstreamError, identity::IdentityState},
    Health,
};
use crate::eth::BlockNumber;

/// Status of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// The endpoint.
    pub id: EndpointId,
    /// The configured name, or the URL without secrets.
    pub name: Arc<str>,
    /// The URL without secrets; `None` for an endpoint in this process.
    pub url: Option<String>,
    /// The priority.
    pub priority: u32,
    /// The chain identity; `None` if it is not checked.
    pub identity: Option<IdentityState>,
    /// The state of the circuit breaker.
    pub health: Health,
    /// The newest block that the endpoint has shown.
    pub head: Option<BlockNumber>,
    /// The last failure, if the endpoint has not answered since.
    pub last_error: Option<UpstreamError>,
    /// The reason why the last invalid answer failed verification.
    pub last_mismatch: Option<String>,
    /// The last refusal (a rate limit or missing access), if the endpoint has not answered a call since.
    pub refusal: Option<UpstreamError>,
    /// Calls sent to the endpoint.
    pub totals: EndpointTotals,
    /// Time since the endpoint began to fail.
    pub outage: Option<Duration>,
    /// The remaining pause after a rate limit.
    pub pause: Duration,
    /// Whether a call failed in the last minute because the configured rate was used up.
    pub is_rate_used_up: bool,
}

/// Status of an endpoint in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointState {
    /// Healthy; gets calls.
    Ok,
    /// Failed before; one call tests whether it has recovered.
    Probing,
    /// Keeps failing; the circuit breaker is open.
    Unhealthy,
    /// Paused after a rate limit.
    RateLimited,
    /// Serves another chain.
    WrongChain,
    /// The chain identity is not known yet.
    Unknown,
}

// === impl EndpointState ===

impl EndpointState {
    /// Returns the name in metrics and `/status`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl EndpointStatus ===

impl EndpointStatus {
    /// Returns the status in one word.
    pub fn state(&self) -> EndpointState {
        // Until a call succeeds, not only during the pause.
        let is_limited =
            !self.pause.is_zero() || matches!(self.refusal, Some(UpstreamError::RateLimited { .. }));
        match &self.identity {
            Some(IdentityState::WrongChain(_)) => EndpointState::WrongChain,
            _ if is_limited => EndpointState::RateLimited,
            Some(IdentityState::Unknown(_)) => EndpointState::Unknown,
            Some(IdentityState::Known(_)) | None => match self.health {
                Health::Closed => EndpointState::Ok,
                Health::HalfOpen => EndpointState::Probing,
                Health::Open => EndpointState::Unhealthy,
            },
        }
    }
}

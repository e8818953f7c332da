//! How an endpoint does, for metrics, `/status` and the page.

use std::{sync::Arc, time::Duration};

use super::{
    super::{EndpointId, UpstreamError, identity::IdentityState},
    Health,
};
use crate::eth::BlockNumber;

/// How an endpoint does, for those who look.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Which it is.
    pub id: EndpointId,
    /// Its name: its URL without what is secret in it.
    pub name: Arc<str>,
    /// Its place in the order.
    pub priority: u32,
    /// Who it is; `None` where nobody cares.
    pub identity: Option<IdentityState>,
    /// Whether it is asked.
    pub health: Health,
    /// The highest block that it has shown.
    pub head: Option<BlockNumber>,
    /// Why it last failed, if it has not answered since.
    pub last_error: Option<UpstreamError>,
    /// What was wrong with the last answer of its that could not be right.
    pub last_mismatch: Option<String>,
    /// How long it wants to be left alone for its rate.
    pub paused: Option<Duration>,
}

/// How an endpoint does, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It is asked.
    Ok,
    /// It has failed, and one call tries it.
    Probing,
    /// It keeps failing, and is left alone.
    Unhealthy,
    /// It wants to be left alone for its rate.
    RateLimited,
    /// It is of another chain.
    WrongChain,
    /// It has not said yet who it is.
    Unknown,
}

// === impl EndpointState ===

impl EndpointState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Probing, Self::Unhealthy, Self::RateLimited, Self::WrongChain, Self::Unknown];

    /// Its name in metrics and `/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Probing => "probing",
            Self::Unhealthy => "unhealthy",
            Self::RateLimited => "rate_limited",
            Self::WrongChain => "wrong_chain",
            Self::Unknown => "unknown",
        }
    }
}

// === impl EndpointStatus ===

impl EndpointStatus {
    /// All of it in a word.
    pub fn state(&self) -> EndpointState {
        match &self.identity {
            Some(IdentityState::WrongChain(_)) => EndpointState::WrongChain,
            Some(IdentityState::Unknown(_)) => EndpointState::Unknown,
            Some(IdentityState::Known(_)) | None if self.paused.is_some_and(|wait| !wait.is_zero()) => {
                EndpointState::RateLimited
            }
            Some(IdentityState::Known(_)) | None => match self.health {
                Health::Closed => EndpointState::Ok,
                Health::HalfOpen => EndpointState::Probing,
                Health::Open => EndpointState::Unhealthy,
            },
        }
    }
}

//! A node as a `tower` service.

use std::time::Duration;

use tower::{Service, service_fn, util::BoxCloneSyncService};

use super::super::{Answers, Calls, Config, UpstreamError};
use crate::timeout::timeout;

/// A node as a service: takes one or more calls, and returns an answer for each.
pub type Transport = BoxCloneSyncService<Calls, Answers, UpstreamError>;

/// Settings of a transport. When they change, a new transport replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct TransportSettings {
    connect_timeout: Duration,
    timeout: Duration,
    max_answer: u64,
}

/// Adds a time-out to a transport.
pub(in crate::upstream) fn with_deadline(mut inner: Transport, after: Duration) -> Transport {
    BoxCloneSyncService::new(service_fn(move |calls: Calls| {
        // A transport is always ready, so `poll_ready` is not called.
        let answering = inner.call(calls);
        async move { timeout(after, answering).await.unwrap_or(Err(UpstreamError::TimedOut { after })) }
    }))
}

// === impl TransportSettings ===

impl From<&Config> for TransportSettings {
    fn from(config: &Config) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            timeout: config.timeout,
            max_answer: config.max_answer.as_u64(),
        }
    }
}

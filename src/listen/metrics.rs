//! Counts connections.

use std::sync::Arc;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use strum::VariantArray;

use super::{activity::Closed, handshake_failure::HandshakeFailure};
use crate::labels::Labels;

/// A listener's counters. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: Gauge,
    accepted: Counter,
    closed: Family<Labels<1>, Counter>,
    handshakes_failed: Family<Labels<1>, Counter>,
}

/// Counts a connection as open until dropped.
pub(super) struct Open(Gauge);

// === impl Metrics ===

impl Metrics {
    /// Registers `connections`, `connections_accepted_total`, `connections_closed_total{reason}` and
    /// `tls_handshakes_failed_total{reason}`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register("connections", "Open client connections", inner.open.clone());
        registry.register("connections_accepted", "Client connections accepted", inner.accepted.clone());
        registry.register(
            "connections_closed",
            "Client connections closed after a time-out or to make room for another, by reason",
            inner.closed.clone(),
        );
        registry.register(
            "tls_handshakes_failed",
            "TLS handshakes of client connections that failed, by reason",
            inner.handshakes_failed.clone(),
        );
        // Creates the counters at 0: if a counter first appears with value 1, `rate()` misses that increment.
        for reason in Closed::VARIANTS.iter().map(|closed| closed.as_str()) {
            drop(inner.closed.get_or_create(&[("reason", reason)]));
        }
        for reason in HandshakeFailure::VARIANTS.iter().map(|failure| failure.as_str()) {
            drop(inner.handshakes_failed.get_or_create(&[("reason", reason)]));
        }
        Self(Arc::new(inner))
    }

    pub(super) fn opened(&self) -> Open {
        self.0.accepted.inc();
        self.0.open.inc();
        Open(self.0.open.clone())
    }

    pub(super) fn handshake_failed(&self, reason: HandshakeFailure) {
        self.0.handshakes_failed.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    pub(super) fn closed(&self, reason: Closed) {
        self.0.closed.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

// === impl Open ===

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

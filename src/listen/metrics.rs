//! Counts connections.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use strum::VariantArray;

use super::{activity::Closed, handshake_failure::HandshakeFailure};
use crate::labels::Labels;

/// A listener's counters. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) open: Gauge,
    pub(super) accepted: Counter,
    closed: Family<Labels<1>, Counter>,
    handshakes_failed: Family<Labels<1>, Counter>,
}

// === impl Metrics ===

impl Metrics {
    /// Registers `connections`, `connections_accepted_total`, `connections_closed_total{reason}` and
    /// `tls_handshakes_failed_total{reason}`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("connections", "Open client connections", metrics.open.clone());
        registry.register("connections_accepted", "Client connections accepted", metrics.accepted.clone());
        registry.register(
            "connections_closed",
            "Client connections closed after a time-out or to make room for another, by reason",
            metrics.closed.clone(),
        );
        registry.register(
            "tls_handshakes_failed",
            "TLS handshakes of client connections that failed, by reason",
            metrics.handshakes_failed.clone(),
        );
        // Creates the counters at 0: if a counter first appears with value 1, `rate()` misses that increment.
        for reason in Closed::VARIANTS {
            drop(metrics.closed.get_or_create(&[("reason", reason.as_str())]));
        }
        for reason in HandshakeFailure::VARIANTS {
            drop(metrics.handshakes_failed.get_or_create(&[("reason", reason.as_str())]));
        }
        metrics
    }

    pub(super) fn handshake_failed(&self, reason: HandshakeFailure) {
        self.handshakes_failed.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    pub(super) fn closed(&self, reason: Closed) {
        self.closed.get_or_create(&[("reason", reason.as_str())]).inc();
    }
}

//! Counts refused requests, calls that a batch leaves out, gzip responses and panics.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::error::{HttpError, LeftOut};
use crate::labels::Labels;

/// The edge's counters. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    refused: Family<Labels<1>, Counter>,
    left_out: Family<Labels<1>, Counter>,
    compressed: Counter,
    saved: Counter,
}

/// Number of calls that panicked since the process started.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of calls that panicked since the process started.
pub(super) fn panics() -> u64 {
    PANICS.load(Relaxed)
}

/// Counts a call that panicked, and returns the new count.
pub(super) fn count_panic() -> u64 {
    PANICS.fetch_add(1, Relaxed) + 1
}

// === impl Metrics ===

impl Metrics {
    /// Registers `requests_refused_total{reason}`, `calls_left_out_total{reason}`, `responses_compressed_total` and
    /// `response_bytes_saved_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "requests_refused",
            "Requests refused as a whole, by reason; calls refused one by one are in calls_total",
            metrics.0.refused.clone(),
        );
        registry.register(
            "calls_left_out",
            "Calls of a batch that did not start, or whose answer did not fit, while others were answered",
            metrics.0.left_out.clone(),
        );
        registry.register("responses_compressed", "Responses sent as gzip", metrics.0.compressed.clone());
        registry.register(
            "response_bytes_saved",
            "Bytes saved by sending responses as gzip",
            metrics.0.saved.clone(),
        );
        // All counters are created at start, because `rate()` in Prometheus ignores the first value of a counter that
        // appears with its first increment.
        for reason in HttpError::REASONS {
            drop(metrics.0.refused.get_or_create(&[("reason", reason)]));
        }
        for reason in LeftOut::REASONS {
            drop(metrics.0.left_out.get_or_create(&[("reason", reason)]));
        }
        metrics
    }

    /// Returns the number of refused requests so far, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count =
            |reason| (reason, self.0.refused.get(&[("reason", reason)]).map_or(0, |count| count.get()));
        HttpError::REASONS.into_iter().map(count)
    }

    /// Counts a gzip response of `sent` bytes, which would have `plain` bytes uncompressed.
    pub(super) fn compressed(&self, plain: usize, sent: usize) {
        self.0.compressed.inc();
        self.0.saved.inc_by(plain.saturating_sub(sent) as u64);
    }

    pub(super) fn refused(&self, error: &HttpError) {
        self.0.refused.get_or_create(&[("reason", error.as_str())]).inc();
    }

    pub(super) fn left_out(&self, reason: LeftOut, calls: u64) {
        self.0.left_out.get_or_create(&[("reason", reason.as_str())]).inc_by(calls);
    }
}

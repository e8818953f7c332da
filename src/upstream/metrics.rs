//! Counts and times upstream attempts.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::UpstreamError;
use crate::jsonrpc::Answer;

/// The upstream's counters. A default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: Family<Labels, Counter>,
    seconds: Histogram,
    in_flight: Gauge,
    hedges: Counter,
    hedge_wins: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// Counts a request as in flight until dropped.
pub(super) struct InFlight(Gauge);

// === impl Inner ===

impl Default for Inner {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            // 1 ms to 32 s: a node next door to the slowest answer that is waited for.
            seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            in_flight: Gauge::default(),
            hedges: Counter::default(),
            hedge_wins: Counter::default(),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `upstream_calls_total{outcome}`, `upstream_seconds`, `upstream_in_flight`, `upstream_hedges_total`
    /// and `upstream_hedge_wins_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register(
            "upstream_calls",
            "Calls sent to the upstream, by what came of them",
            inner.calls.clone(),
        );
        registry.register("upstream_seconds", "Time an upstream request took", inner.seconds.clone());
        registry.register("upstream_in_flight", "Upstream requests under way", inner.in_flight.clone());
        registry.register(
            "upstream_hedges",
            "Requests sent a second time, to another endpoint, because the first took long",
            inner.hedges.clone(),
        );
        registry.register(
            "upstream_hedge_wins",
            "Those of them that answered first",
            inner.hedge_wins.clone(),
        );
        // There from the start: a counter that appears with its first error hides that error from `rate()`.
        for outcome in ["result", "error"].into_iter().chain(UpstreamError::REASONS) {
            drop(inner.calls.get_or_create(&Labels { outcome }));
        }
        Self(Arc::new(inner))
    }

    pub(super) fn begin(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.0.in_flight.clone())
    }

    pub(super) fn call_ended(&self, answer: Result<&Answer, &UpstreamError>) {
        let outcome = match answer {
            Ok(Answer::Result(_)) => "result",
            Ok(Answer::Error(_)) => "error",
            Err(error) => error.as_str(),
        };
        self.0.calls.get_or_create(&Labels { outcome }).inc();
    }

    pub(super) fn hedged(&self) {
        self.0.hedges.inc();
    }

    pub(super) fn hedge_won(&self) {
        self.0.hedge_wins.inc();
    }

    pub(super) fn request_ended(&self, elapsed: Duration) {
        self.0.seconds.observe(elapsed.as_secs_f64());
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

//! Metrics of verification.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{Failure, Level};
use crate::{histogram::Histogram, labels::Labels, workers::Overdue};

/// Metrics of verification. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    checked: Family<Labels<1>, Counter>,
    mismatches: Family<Labels<1>, Counter>,
    unprovable: Counter,
    overdue: Family<Labels<1>, Counter>,
    waiting: Gauge,
    seconds: Histogram,
}

// === impl Metrics ===

impl Metrics {
    /// Registers `checked_total{level}`, `mismatches_total{reason}`, `unprovable_total`,
    /// `checks_overdue_total{reason}`, `checks_waiting` and `check_seconds`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register(
            "checked",
            "Upstream answers that passed verification, by the level they reached",
            inner.checked.clone(),
        );
        registry.register(
            "mismatches",
            "Upstream answers that failed verification and were not cached, by reason",
            inner.mismatches.clone(),
        );
        registry.register(
            "unprovable",
            "Upstream answers that could be neither proved nor refuted and were not cached",
            inner.unprovable.clone(),
        );
        registry.register(
            "checks_overdue",
            "Upstream answers whose verification did not finish in time, by reason",
            inner.overdue.clone(),
        );
        registry.register(
            "checks_waiting",
            "Upstream answers waiting for a proof thread",
            inner.waiting.clone(),
        );
        registry.register("check_seconds", "Time to check an answer, in seconds", inner.seconds.clone());
        // The counters by reason are created at start, because `increase()` in Prometheus ignores the first value of a
        // counter that appears only with its first event.
        for reason in Failure::REASONS {
            drop(inner.mismatches.get_or_create(&[("reason", reason)]));
        }
        for reason in Overdue::ALL.map(Overdue::as_str) {
            drop(inner.overdue.get_or_create(&[("reason", reason)]));
        }
        Self(Arc::new(inner))
    }

    pub(super) fn passed(&self, level: Level) {
        self.0.checked.get_or_create(&[("level", level.as_str())]).inc();
    }

    pub(super) fn failed(&self, failure: &Failure) {
        self.0.mismatches.get_or_create(&[("reason", failure.as_str())]).inc();
    }

    pub(super) fn unprovable(&self) {
        self.0.unprovable.inc();
    }

    pub(super) fn overdue(&self, overdue: Overdue) {
        self.0.overdue.get_or_create(&[("reason", overdue.as_str())]).inc();
    }

    /// Returns the number of checks that wait for a proof thread.
    pub(super) fn waiting(&self) -> Gauge {
        self.0.waiting.clone()
    }

    pub(super) fn took(&self, elapsed: Duration) {
        self.0.seconds.observe(elapsed);
    }
}

//! Counts requests that were not let in, and answers that went out as gzip.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoKey,
    BadKey,
    Host,
    /// No key that is known, and too many such requests before.
    TooOften {
        wait: Duration,
    },
}

/// The edge's counters. A default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    refused: Family<Labels, Counter>,
    compressed: Counter,
    saved: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

// === impl Refusal ===

impl Refusal {
    const REASONS: [&str; 4] = ["no_key", "bad_key", "host", "no_key_too_often"];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NoKey => "no_key",
            Self::BadKey => "bad_key",
            Self::Host => "host",
            Self::TooOften { .. } => "no_key_too_often",
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `requests_refused_total{reason}`, `answers_compressed_total` and `answer_bytes_saved_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "requests_refused",
            "Requests that were not let in, by reason; calls over a rate are in calls_total",
            metrics.refused.clone(),
        );
        registry.register("answers_compressed", "Answers that went out as gzip", metrics.compressed.clone());
        registry.register(
            "answer_bytes_saved",
            "By how many bytes they were shorter than plain ones",
            metrics.saved.clone(),
        );
        metrics
    }

    /// How many requests were not let in so far, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |reason| (reason, self.refused.get(&Labels { reason }).map_or(0, |count| count.get()));
        Refusal::REASONS.into_iter().map(count)
    }

    /// An answer went out as gzip.
    pub(super) fn compressed(&self, plain: usize, sent: usize) {
        self.compressed.inc();
        self.saved.inc_by(plain.saturating_sub(sent) as u64);
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        self.refused.get_or_create(&Labels { reason: refusal.as_str() }).inc();
    }
}

//! Counters of reads and writes of cache tiers.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{cache::tier::TierKind, histogram::Histogram, labels::Labels};

/// Counters of the tiers. The default is not registered with any registry.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    reads: Family<Labels<2>, Counter>,
    writes: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
}

const READS: [&str; 6] = ["hit", "miss", "damaged", "rejected", "failed", "skipped"];
const WRITES: [&str; 4] = ["written", "failed", "skipped", "dropped"];

// === impl Metrics ===

impl Metrics {
    /// Registers `tier_reads_total{tier,outcome}`, `tier_writes_total{tier,outcome}` and `tier_read_seconds{tier}`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("tier_reads", "Reads from a cache tier, by outcome", metrics.reads.clone());
        registry.register(
            "tier_writes",
            "Parts of blocks to be written to a cache tier, by outcome",
            metrics.writes.clone(),
        );
        registry.register(
            "tier_read_seconds",
            "Duration of hits and misses in a cache tier, in seconds",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// Initializes all counters of a tier to 0, so that they appear from the start.
    pub(super) fn show(&self, tier: &'static str) {
        for outcome in READS {
            drop(self.reads.get_or_create(&[("tier", tier), ("outcome", outcome)]));
        }
        for outcome in WRITES {
            drop(self.writes.get_or_create(&[("tier", tier), ("outcome", outcome)]));
        }
    }

    pub(super) fn read(&self, tier: TierKind, found: bool, took: Duration) {
        let [hit, miss, ..] = READS;
        self.count_read(tier, if found { hit } else { miss });
        self.seconds.get_or_create(&[("tier", tier.as_str())]).observe(took);
    }

    pub(super) fn damaged(&self, tier: TierKind) {
        self.count_read(tier, "damaged");
    }

    pub(super) fn rejected(&self, tier: TierKind) {
        self.count_read(tier, "rejected");
    }

    pub(super) fn failed(&self, tier: TierKind) {
        self.count_read(tier, "failed");
    }

    pub(super) fn skipped(&self, tier: TierKind) {
        self.count_read(tier, "skipped");
    }

    pub(super) fn wrote(&self, tier: TierKind, outcome: Wrote) {
        let [written, failed, skipped, dropped] = WRITES;
        let outcome = match outcome {
            Wrote::Written => written,
            Wrote::Failed => failed,
            Wrote::Skipped => skipped,
            Wrote::Dropped => dropped,
        };
        self.writes.get_or_create(&[("tier", tier.as_str()), ("outcome", outcome)]).inc();
    }

    /// Number of failed reads and writes, and of damaged and rejected values.
    pub(super) fn errors(&self, tier: TierKind) -> u64 {
        let tier = tier.as_str();
        let count = |of: &Family<Labels<2>, Counter>, outcome| {
            of.get_or_create(&[("tier", tier), ("outcome", outcome)]).get()
        };
        let reads = ["damaged", "rejected", "failed"].map(|outcome| count(&self.reads, outcome));
        reads.into_iter().sum::<u64>() + count(&self.writes, "failed")
    }

    fn count_read(&self, tier: TierKind, outcome: &'static str) {
        self.reads.get_or_create(&[("tier", tier.as_str()), ("outcome", outcome)]).inc();
    }
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Written,
    Failed,
    /// The breaker of the tier is open, or the text is too long.
    Skipped,
    /// The queue was full.
    Dropped,
}

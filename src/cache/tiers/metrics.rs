//! What tiers are asked and told, and how they do.

use std::{fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
    },
    registry::Registry,
};

use super::{TierStatus, Tiers};
use crate::{cache::tier::TierKind, histogram::Histogram};

/// The counters of tiers. A default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    reads: Family<Labels, Counter>,
    writes: Family<Labels, Counter>,
    seconds: Family<TierLabels, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    tier: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabels {
    tier: &'static str,
}

/// Looks how they do when somebody asks.
#[derive(Debug)]
struct Gauges(Tiers);

const READS: [&str; 6] = ["hit", "miss", "damaged", "rejected", "failed", "skipped"];
const WRITES: [&str; 4] = ["written", "failed", "skipped", "dropped"];

// === impl Metrics ===

impl Metrics {
    /// Registers `tier_reads_total{tier,outcome}`, `tier_writes_total{tier,outcome}` and `tier_read_seconds{tier}`; with
    /// [`register_gauges`](Self::register_gauges), all that there is.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "tier_reads",
            "Times that a tier was asked for something, by what came of it",
            metrics.reads.clone(),
        );
        registry.register(
            "tier_writes",
            "Parts of blocks to be written to a tier, by what came of it",
            metrics.writes.clone(),
        );
        registry.register("tier_read_seconds", "Time a tier took to answer", metrics.seconds.clone());
        metrics
    }

    /// Registers `tier_bytes{tier}`, `tier_capacity_bytes{tier}`, `tier_blocks{tier}`, `tier_evictions_total{tier}`,
    /// `tier_reading{tier}` and `tier_writing{tier}`.
    pub fn register_gauges(&self, tiers: &Tiers, registry: &mut Registry) {
        for TierStatus { kind, .. } in tiers.status() {
            let tier = kind.as_str();
            for outcome in READS {
                drop(self.reads.get_or_create(&Labels { tier, outcome }));
            }
            for outcome in WRITES {
                drop(self.writes.get_or_create(&Labels { tier, outcome }));
            }
        }
        registry.register_collector(Box::new(Gauges(tiers.clone())));
    }

    pub(super) fn read(&self, tier: TierKind, found: bool, took: Duration) {
        let [hit, miss, ..] = READS;
        self.count_read(tier, if found { hit } else { miss });
        self.seconds.get_or_create(&TierLabels { tier: tier.as_str() }).observe(took);
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
        self.writes.get_or_create(&Labels { tier: tier.as_str(), outcome }).inc();
    }

    /// All that went wrong.
    pub(super) fn errors(&self, tier: TierKind) -> u64 {
        let tier = tier.as_str();
        let count = |of: &Family<Labels, Counter>, outcome| of.get_or_create(&Labels { tier, outcome }).get();
        let reads = ["damaged", "rejected", "failed"].map(|outcome| count(&self.reads, outcome));
        reads.into_iter().sum::<u64>() + count(&self.writes, "failed")
    }

    fn count_read(&self, tier: TierKind, outcome: &'static str) {
        self.reads.get_or_create(&Labels { tier: tier.as_str(), outcome }).inc();
    }
}

/// What came of something that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Written,
    Failed,
    /// The tier was left alone, or what it says does not count now.
    Skipped,
    /// Too much waited already.
    Dropped,
}

// === impl Gauges ===

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.status();
        type Told = fn(&TierStatus) -> Option<u64>;
        let gauges: [(&str, &str, Told); 5] = [
            ("tier_bytes", "Bytes that a tier keeps, where it can tell", |tier| tier.usage.bytes),
            ("tier_capacity_bytes", "How many there may be, where that is known", |tier| tier.usage.capacity),
            ("tier_blocks", "Blocks that a tier keeps, where it can tell", |tier| tier.usage.blocks),
            ("tier_reading", "1 if a tier is asked, 0 while it keeps failing", |tier| {
                Some(tier.reads.into())
            }),
            ("tier_writing", "1 if a tier is written to, 0 while that keeps failing", |tier| {
                Some(tier.writes.into())
            }),
        ];
        for (name, help, told) in gauges {
            let told: Vec<_> = all.iter().filter_map(|tier| Some((tier.kind, told(tier)?))).collect();
            if told.is_empty() {
                continue;
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (kind, value) in told {
                let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&TierLabels { tier: kind.as_str() })?)?;
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let help = "What made room for others in a tier: blocks, or keys";
        let mut family = encoder.encode_descriptor("tier_evictions", help, None, MetricType::Counter)?;
        for tier in &all {
            let evictions = ConstCounter::new(tier.usage.evictions);
            evictions.encode(family.encode_family(&TierLabels { tier: tier.kind.as_str() })?)?;
        }
        Ok(())
    }
}

//! Gauges of all tiers, read at each scrape.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{all::Tiers, metrics::Metrics, status::TierStatus};

#[derive(Debug)]
struct Gauges(Tiers);

/// Registers `tier_bytes{tier}`, `tier_capacity_bytes{tier}`, `tier_blocks{tier}`, `tier_evictions_total{tier}`,
/// `tier_reading{tier}` and `tier_writing{tier}`.
pub fn register_gauges(metrics: &Metrics, tiers: &Tiers, registry: &mut Registry) {
    for TierStatus { kind, .. } in tiers.status() {
        metrics.show(kind.as_str());
    }
    registry.register_collector(Box::new(Gauges(tiers.clone())));
}

// === impl Gauges ===

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.status();
        type Told = fn(&TierStatus) -> Option<u64>;
        let gauges: [(&str, &str, Told); 5] = [
            ("tier_bytes", "Bytes stored in a cache tier, if known", |tier| tier.usage.bytes),
            ("tier_capacity_bytes", "Limit of a cache tier in bytes, if known", |tier| tier.usage.capacity),
            ("tier_blocks", "Blocks stored in a cache tier, if known", |tier| tier.usage.blocks),
            ("tier_reading", "1 if reads from a cache tier succeed, 0 while they keep failing", |tier| {
                Some(tier.reads.into())
            }),
            ("tier_writing", "1 if writes to a cache tier succeed, 0 while they keep failing", |tier| {
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
                gauge.encode(family.encode_family(&[("tier", kind.as_str())])?)?;
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let help = "Evictions from a cache tier: blocks on disk, keys in Redis";
        let mut family = encoder.encode_descriptor("tier_evictions", help, None, MetricType::Counter)?;
        for tier in &all {
            let evictions = ConstCounter::new(tier.usage.evictions);
            evictions.encode(family.encode_family(&[("tier", tier.kind.as_str())])?)?;
        }
        Ok(())
    }
}

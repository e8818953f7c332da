//! Gauges of the chain, computed at each scrape.

use std::{fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

use crate::{proxy::operate::status::Status, verify::Demand};

#[derive(Debug)]
struct ChainGauges(Status);

/// Registers `head_number`, `head_age_seconds`, `view_age_seconds`, `finalized_number` and
/// `verification_level{content,level}`. Omits unknown values.
pub fn register_gauges(status: &Status, registry: &mut Registry) {
    registry.register_collector(Box::new(ChainGauges(status.clone())));
}

// === impl ChainGauges ===

impl Collector for ChainGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let chain = self.0.chain();
        let numbers = [
            ("head_number", "Number of the head block", chain.head.map(|head| head.number)),
            (
                "finalized_number",
                "Number of the finalized block",
                chain.finalized.map(|finalized| finalized.0),
            ),
        ];
        for (name, help, number) in numbers {
            let Some(number) = number else { continue };
            let gauge = ConstGauge::new(i64::try_from(number.0).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let ages = [
            ("head_age_seconds", "Seconds since the head last changed", chain.head_age),
            (
                "view_age_seconds",
                "Seconds since the last refresh of the head was sent; without calls or a follower there is no refresh",
                chain.age,
            ),
        ];
        for (name, help, age) in ages {
            let Some(age) = age else { continue };
            let gauge = ConstGauge::new(Duration::as_secs_f64(&age));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let in_force = self.0.verification();
        let help =
            "1 for the level of verification that content must reach to be cached, 0 for the other levels";
        let mut levels = encoder.encode_descriptor("verification_level", help, None, MetricType::Gauge)?;
        let parts =
            [("headers", in_force.headers), ("blocks", in_force.blocks), ("receipts", in_force.receipts)];
        for (content, demanded) in parts {
            for level in Demand::ALL {
                let labels = [("content", content), ("level", level.as_str())];
                ConstGauge::new(i64::from(level == demanded)).encode(levels.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

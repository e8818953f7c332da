//! Number of live tasks, counted at each scrape.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use tokio::runtime::Handle;

/// Collects the gauge `tasks`, which shows leaked tasks.
#[derive(Debug)]
struct Tasks(Handle);

/// Registers the gauge `tasks` of the current runtime.
pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Tasks(Handle::current())));
}

impl Collector for Tasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let alive = self.0.metrics().num_alive_tasks();
        let gauge = ConstGauge::new(i64::try_from(alive).unwrap_or(i64::MAX));
        let encoder =
            encoder.encode_descriptor("tasks", "Live tasks of the runtime", None, gauge.metric_type())?;
        gauge.encode(encoder)
    }
}

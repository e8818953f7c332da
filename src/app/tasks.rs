//! How many tasks there are, counted when somebody looks.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use tokio::runtime::Handle;

/// The runtime's tasks: one that is not ended with what it was for shows here.
#[derive(Debug)]
struct Tasks(Handle);

/// Registers `tasks`, of the runtime that this is called in.
pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Tasks(Handle::current())));
}

impl Collector for Tasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let alive = self.0.metrics().num_alive_tasks();
        let gauge = ConstGauge::new(i64::try_from(alive).unwrap_or(i64::MAX));
        let encoder =
            encoder.encode_descriptor("tasks", "Tasks that are alive", None, gauge.metric_type())?;
        gauge.encode(encoder)
    }
}

//! Gauges of the endpoints, computed when the registry is scraped.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use strum::VariantArray;

use super::{
    super::{EndpointState, metrics::endpoint_label},
    Pool,
};

#[derive(Debug)]
pub(in crate::upstream) struct EndpointGauges(Arc<Pool>);

// === impl EndpointGauges ===

impl EndpointGauges {
    /// Creates the gauges `endpoint_state{endpoint,state}`, `endpoint_primary{endpoint}` and `endpoint_head{endpoint}`.
    pub(in crate::upstream) fn new(pool: Arc<Pool>) -> Self {
        Self(pool)
    }
}

impl Collector for EndpointGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (endpoints, primary) = self.0.status();
        let gauge = MetricType::Gauge;
        let help = "1 for the state that an endpoint is in, 0 for the others";
        let mut states = encoder.encode_descriptor("endpoint_state", help, None, gauge)?;
        for endpoint in &endpoints {
            for &state in EndpointState::VARIANTS {
                let labels = (endpoint_label(&endpoint.name), [("state", state.as_str())]);
                let is_in = i64::from(endpoint.state() == state);
                ConstGauge::new(is_in).encode(states.encode_family(&labels)?)?;
            }
        }
        let help = "1 for the primary endpoint, whose head is canonical, 0 for the others";
        let mut primaries = encoder.encode_descriptor("endpoint_primary", help, None, gauge)?;
        for endpoint in &endpoints {
            let is_primary = i64::from(primary == Some(endpoint.id));
            let labels = endpoint_label(&endpoint.name);
            ConstGauge::new(is_primary).encode(primaries.encode_family(&labels)?)?;
        }
        let help = "Number of the newest block that an endpoint has shown";
        let mut heads = encoder.encode_descriptor("endpoint_head", help, None, gauge)?;
        for (endpoint, head) in endpoints.iter().filter_map(|endpoint| Some((endpoint, endpoint.head?))) {
            let labels = endpoint_label(&endpoint.name);
            let number = i64::try_from(head.0).unwrap_or(i64::MAX);
            ConstGauge::new(number).encode(heads.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

//! The edge's settings that a reload changes while requests are served.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{
    access::cors::CorsRules,
    config::{Config, SharedConfig},
    metrics::panics,
    permit::InFlightLimit,
};
use crate::budget::ByteBudget;

/// The edge's limits and CORS rules in force. Clones share them.
///
/// A request keeps the limits that were in force when it arrived.
#[derive(Clone, Debug)]
pub struct Reloadable {
    config: SharedConfig,
    in_flight: InFlightLimit,
    cors: CorsRules,
}

/// Reads the numbers of requests in flight, bytes in flight and panics when metrics are collected.
#[derive(Debug)]
struct InFlightGauges {
    in_flight: InFlightLimit,
    budget: ByteBudget,
}

// === impl Reloadable ===

impl Reloadable {
    /// Creates the settings of `config`.
    pub fn new(config: &Config) -> Self {
        Self {
            config: SharedConfig::new(config),
            in_flight: InFlightLimit::new(config),
            cors: CorsRules::new(config),
        }
    }

    /// Applies `config` from the next request on. Requests in flight finish, even if there are more than the new
    /// `max_in_flight`.
    pub fn apply(&self, config: &Config) {
        self.in_flight.set(config);
        self.cors.set(config);
        self.config.set(config);
    }

    /// Registers `requests_in_flight`, `bytes_in_flight` and `panics_total`.
    pub fn register(&self, budget: &ByteBudget, registry: &mut Registry) {
        let gauges = InFlightGauges { in_flight: self.in_flight.clone(), budget: budget.clone() };
        registry.register_collector(Box::new(gauges));
    }

    pub(super) fn config(&self) -> &SharedConfig {
        &self.config
    }

    pub(super) fn cors(&self) -> &CorsRules {
        &self.cors
    }

    pub(super) fn in_flight(&self) -> &InFlightLimit {
        &self.in_flight
    }
}

// === impl InFlightGauges ===

impl Collector for InFlightGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = [
            ("requests_in_flight", "Requests in flight", self.in_flight.taken() as u64),
            (
                "bytes_in_flight",
                "Bytes of large requests and answers being read, or waiting for their clients",
                self.budget.held(),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let panics = ConstCounter::new(panics());
        let help = "Calls that panicked and were answered with an error";
        panics.encode(encoder.encode_descriptor("panics", help, None, panics.metric_type())?)
    }
}

//! What of the edge can change while requests are served.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tower_http::cors::CorsLayer;

use super::{access::cors, config::Config, request::in_flight::InFlightLimit};

/// The edge's limits, as they are now. Clones share them.
///
/// A request keeps the limits that it came under.
#[derive(Clone, Debug)]
pub struct Live {
    config: Arc<ArcSwap<Config>>,
    in_flight: InFlightLimit,
    cors: Arc<ArcSwap<CorsLayer>>,
}

// === impl Live ===

impl Live {
    /// Starts with these.
    pub fn new(config: &Config) -> Self {
        Self {
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
            in_flight: InFlightLimit::new(config),
            cors: Arc::new(ArcSwap::from_pointee(cors::rules(&config.allowed_origins))),
        }
    }

    /// Takes these from the next request on. Where there are more requests than `max_in_flight` now allows,
    /// they are let finish.
    pub fn apply(&self, config: &Config) {
        self.in_flight.set(config);
        self.cors.store(Arc::new(cors::rules(&config.allowed_origins)));
        self.config.store(Arc::new(config.clone()));
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// What is said to web pages.
    pub(super) fn cors(&self) -> arc_swap::Guard<Arc<CorsLayer>> {
        self.cors.load()
    }

    pub(super) fn in_flight(&self) -> &InFlightLimit {
        &self.in_flight
    }
}

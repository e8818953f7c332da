//! What of the edge can change while requests are served.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Config, in_flight::InFlightLimit};

/// The edge's limits, as they are now. Clones share them.
///
/// A request keeps the limits that it came under. `allowed_origins` is read when the stack is built, and
/// does not change after.
#[derive(Clone, Debug)]
pub struct Live {
    config: Arc<ArcSwap<Config>>,
    in_flight: InFlightLimit,
}

// === impl Live ===

impl Live {
    /// Starts with these.
    pub fn new(config: &Config) -> Self {
        Self {
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
            in_flight: InFlightLimit::new(config.max_in_flight),
        }
    }

    /// Takes these from the next request on. Where there are more requests than `max_in_flight` now allows,
    /// they are let finish.
    pub fn apply(&self, config: &Config) {
        self.in_flight.set(config.max_in_flight);
        self.config.store(Arc::new(config.clone()));
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(super) fn in_flight(&self) -> &InFlightLimit {
        &self.in_flight
    }
}

//! What can change while calls are answered.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{Config, policy::Policy, view::View};

/// The part of a proxy that takes another configuration at once. Clones share it.
#[derive(Clone, Debug)]
pub struct Live {
    pub(super) policy: Arc<ArcSwap<Policy>>,
    pub(super) call_timeout: Arc<ArcSwap<Duration>>,
    view: Arc<View>,
}

// === impl Live ===

impl Live {
    pub(super) fn new(config: &Config, view: Arc<View>) -> Self {
        Self {
            policy: Arc::new(ArcSwap::from_pointee(Policy::new(config))),
            call_timeout: Arc::new(ArcSwap::from_pointee(config.call_timeout)),
            view,
        }
    }

    /// Takes `strict`, `methods`, `call_timeout` and `chain.max_staleness` from the next call on, and
    /// nothing else.
    ///
    /// The globs must have been [checked](super::MethodsConfig::check); those that are none are dropped.
    pub fn apply(&self, config: &Config) {
        self.policy.store(Arc::new(Policy::new(config)));
        self.call_timeout.store(Arc::new(config.call_timeout));
        self.view.set_max_staleness(config.chain.max_staleness);
    }
}

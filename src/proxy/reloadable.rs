//! Settings that a reload changes.

use std::sync::Arc;

use crate::proxy::{config::Config, head::SharedView, layers::deadline::Limit};

/// Settings that a reload changes in a running proxy. Clones share the settings.
#[derive(Clone, Debug)]
pub struct Reloadable {
    pub(super) call_timeout: Limit,
    view: Arc<SharedView>,
}

// === impl Reloadable ===

impl Reloadable {
    pub(super) fn new(config: &Config, view: Arc<SharedView>) -> Self {
        Self { call_timeout: Limit::new(config.call_timeout), view }
    }

    /// Sets whether the upstream is a single node, whose answers do not contradict each other.
    pub fn set_consistent(&self, consistent: bool) {
        self.view.set_consistent(consistent);
    }

    /// Fails all waiting calls with [`CallError::Stopping`](crate::proxy::CallError::Stopping), because the process
    /// is about to exit.
    pub fn end(&self) {
        self.call_timeout.end();
    }

    /// Applies `call_timeout` and `chain.max_staleness` to later calls. Ignores all other settings; the policy, for
    /// example, comes with each [caller](crate::proxy::Caller).
    pub fn apply(&self, config: &Config) {
        self.call_timeout.set(config.call_timeout);
        self.view.set_max_staleness(config.chain.max_staleness);
    }
}

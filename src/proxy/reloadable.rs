//! Settings that a reload changes.

use std::sync::Arc;

use crate::proxy::{config::Config, head::SharedView, layers::deadline::Limit};

/// The part of a proxy that takes another configuration at once. Clones share it.
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

    /// Whether the upstream is one node that does not contradict itself, from now on.
    pub fn set_consistent(&self, consistent: bool) {
        self.view.set_consistent(consistent);
    }

    /// Calls that wait are answered now, with [`CallError::Stopping`](crate::proxy::CallError::Stopping): soon nobody could be.
    pub fn end(&self) {
        self.call_timeout.end();
    }

    /// Takes `call_timeout` and `chain.max_staleness` from the next call on, and nothing else. The policy comes
    /// with each [caller](crate::proxy::Caller).
    pub fn apply(&self, config: &Config) {
        self.call_timeout.set(config.call_timeout);
        self.view.set_max_staleness(config.chain.max_staleness);
    }
}

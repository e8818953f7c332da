//! Sends no spans: this build cannot.

use std::future::{Ready, ready};

use tokio::runtime::Handle;

use super::log::SpanLayer;
use crate::config::{Problem, TracingConfig};

/// Sends nothing.
pub(super) struct Export;

// === impl Export ===

impl Export {
    /// Starts nothing.
    ///
    /// # Errors
    /// If the configuration wants spans to be sent.
    pub(super) fn start(config: &TracingConfig, _: &Handle) -> Result<(Self, Option<SpanLayer>), Problem> {
        config.receiver()?;
        Ok((Self, None))
    }

    /// There is nothing left to send.
    pub(super) fn finish(self) -> Ready<()> {
        ready(())
    }
}

//! Replaces the span export in builds without the feature `otlp`.

use std::future::{Ready, ready};

use tokio::runtime::Handle;

use super::log::SpanLayer;
use crate::config::{Problem, TracingConfig};

/// A replacement for the span export that sends nothing.
pub(super) struct Export;

// === impl Export ===

impl Export {
    /// Checks that no export is configured.
    ///
    /// # Errors
    /// If the configuration names a receiver of spans.
    pub(super) fn start(config: &TracingConfig, _: &Handle) -> Result<(Self, Option<SpanLayer>), Problem> {
        config.receiver()?;
        Ok((Self, None))
    }

    /// Does nothing.
    pub(super) fn finish(self) -> Ready<()> {
        ready(())
    }
}

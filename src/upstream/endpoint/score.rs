//! Whether an endpoint is available for a call, and how well it suits the call.

use std::time::Duration;

use tower::load::peak_ewma;

/// Cost of sending a call to an endpoint; the lowest is best. Compares known disadvantages first, then load.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::upstream) struct Score {
    /// The endpoint has shown that it does not have the requested block.
    pub(super) lacks_block: bool,
    /// The endpoint's chain identity is unconfirmed.
    pub(super) is_unconfirmed: bool,
    pub(super) failures: u32,
    pub(super) load: peak_ewma::Cost,
}

/// Whether an endpoint is available for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) enum Availability {
    /// Available, at this cost.
    Now(Score),
    /// Available after this wait.
    After(Duration),
    /// Unavailable until the endpoint recovers or serves the right chain.
    Never,
}

// === impl Score ===

impl Score {
    /// Returns whether the chain identity is confirmed and, as far as is known, the endpoint has the requested block.
    pub(in crate::upstream) fn is_fit(self) -> bool {
        !self.lacks_block && !self.is_unconfirmed
    }

    /// Returns whether the chain identity is unconfirmed.
    pub(in crate::upstream) fn is_unconfirmed(self) -> bool {
        self.is_unconfirmed
    }

    /// Returns whether the endpoint has not failed recently.
    pub(in crate::upstream) fn is_healthy(self) -> bool {
        self.failures == 0
    }

    /// Returns whether the endpoint has shown that it does not have the requested block.
    pub(in crate::upstream) fn lacks_block(self) -> bool {
        self.lacks_block
    }
}

//! Whether an endpoint may be asked, and what speaks against it.

use std::time::Duration;

use tower::load::peak_ewma;

/// What asking an endpoint costs: first by what speaks against it, then by its load.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::upstream) struct Score {
    /// It has shown that it does not have what is asked for.
    pub(super) lacks_block: bool,
    /// It is not known who it is.
    pub(super) is_unconfirmed: bool,
    pub(super) failures: u32,
    pub(super) load: peak_ewma::Cost,
}

/// May an endpoint be asked?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) enum Availability {
    /// At this cost.
    Now(Score),
    /// Not before this has passed.
    After(Duration),
    /// Not until it has recovered or been identified.
    Never,
}

// === impl Score ===

impl Score {
    /// Is it known, and has it what is asked for, as far as is known?
    pub(in crate::upstream) fn is_fit(self) -> bool {
        !self.lacks_block && !self.is_unconfirmed
    }

    /// Is it not known who it is?
    pub(in crate::upstream) fn is_unconfirmed(self) -> bool {
        self.is_unconfirmed
    }

    /// Has it not failed of late?
    pub(in crate::upstream) fn is_healthy(self) -> bool {
        self.failures == 0
    }

    /// Returns whether the endpoint has shown that it does not have what is asked for.
    pub(in crate::upstream) fn lacks_block(self) -> bool {
        self.lacks_block
    }
}

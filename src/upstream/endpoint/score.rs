//! Whether an endpoint may be asked, and what speaks against it.

use std::time::Duration;

use tower::load::peak_ewma;

/// What asking an endpoint costs: first by what speaks against it, then by its load.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::upstream) struct Cost {
    /// It has shown that it does not have what is asked for.
    pub(super) lacks: bool,
    /// It is not known who it is.
    pub(super) unsure: bool,
    pub(super) failures: u32,
    pub(super) load: peak_ewma::Cost,
}

/// May an endpoint be asked?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) enum Eligible {
    /// At this cost.
    Yes(Cost),
    /// Not before this has passed.
    After(Duration),
    /// No.
    No,
}

// === impl Cost ===

impl Cost {
    /// Is it known, and has it what is asked for, as far as is known?
    pub(in crate::upstream) fn is_fit(self) -> bool {
        !self.lacks && !self.unsure
    }

    /// Is it not known who it is?
    pub(in crate::upstream) fn is_unsure(self) -> bool {
        self.unsure
    }

    /// Has it not failed of late?
    pub(in crate::upstream) fn is_well(self) -> bool {
        self.failures == 0
    }

    /// Returns whether the endpoint has shown that it does not have what is asked for.
    pub(in crate::upstream) fn lacks(self) -> bool {
        self.lacks
    }
}

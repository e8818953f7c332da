//! Whether an endpoint may be asked, and what speaks against it.

use std::time::Duration;

use tower::load::peak_ewma;

/// What asking an endpoint costs: first by what speaks against it, then by its load.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::upstream) struct Cost {
    pub(super) has: Has,
    /// It is not known who it is.
    pub(super) unsure: bool,
    pub(super) failures: u32,
    pub(super) load: peak_ewma::Cost,
}

/// Has an endpoint what is asked for?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::upstream) enum Has {
    /// As far as is known.
    Yes,
    /// It would have to be shown first.
    Perhaps,
    /// It has shown that it has not.
    No,
}

/// May an endpoint be asked?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) enum Eligible {
    /// At this cost.
    Yes(Cost),
    /// Not before this has passed.
    After(Duration, Has),
    /// No.
    No,
}

// === impl Cost ===

impl Cost {
    /// Is it known, and has it what is asked for?
    pub(in crate::upstream) fn is_fit(self) -> bool {
        self.has == Has::Yes && !self.unsure
    }

    /// Is it not known who it is?
    pub(in crate::upstream) fn is_unsure(self) -> bool {
        self.unsure
    }

    /// The same of one of which this is known, too.
    pub(in crate::upstream) fn with(self, has: Has) -> Self {
        Self { has: self.has.max(has), ..self }
    }

    /// Has it not failed of late?
    pub(in crate::upstream) fn is_well(self) -> bool {
        self.failures == 0
    }

    /// Has it what is asked for?
    pub(in crate::upstream) fn has(self) -> Has {
        self.has
    }
}

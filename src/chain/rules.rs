//! What a chain and its upstream are like.

use std::time::Duration;

/// The rules that hold for a chain and its upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How old knowledge may be when a call arrives.
    pub max_staleness: Duration,
    /// Blocks kept in the window.
    pub window: usize,
    /// A lower head is a rollback after so many observations …
    pub rollback_after: u32,
    /// … over at least this time.
    pub lag_patience: Duration,
    /// The upstream is one node without a balancer: it does not contradict itself.
    pub consistent: bool,
    /// Is anything final here? Not on development chains, which start anew at will.
    pub finality: bool,
    /// Is this known to be a development chain, whose node may be told to be another at any time?
    pub development: bool,
    /// A block this much older than the finalized one is final by any one answer, and so is a number that has been final
    /// for this long. See [`Rules::FINAL_MARGIN`].
    pub final_margin: Duration,
    /// Blocks this deep count as final, where the operator says so.
    pub finality_depth: Option<u64>,
}

// === impl Rules ===

impl Rules {
    /// The margin in use; only models use another.
    ///
    /// One answer by number makes a block final for good, so it must not come from a replica that still has an orphaned
    /// branch. An hour is far longer than any replica lags and any reorganisation is deep.
    pub const FINAL_MARGIN: Duration = Duration::from_secs(3600);
}

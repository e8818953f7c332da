//! Rules for tracking a chain.

use std::time::Duration;

/// Rules for tracking one chain through one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Maximum age of an upstream answer that may serve a call: the time between sending the upstream request and the
    /// arrival of the call.
    pub max_staleness: Duration,
    /// Maximum number of blocks in the window.
    pub window: usize,
    /// Number of observations of a lower head that make a rollback, if they also span `lag_patience`.
    pub rollback_after: u32,
    /// Minimum time between the first and the last of these observations.
    pub lag_patience: Duration,
    /// Whether the upstream is a single node, whose answers do not contradict each other. Replicas behind a load
    /// balancer can contradict each other.
    pub consistent: bool,
    /// Whether the chain has finality. Development chains do not: they can restart at any time.
    pub finality: bool,
    /// Whether this is known to be a development chain, whose node can be reset to another chain at any time.
    pub development: bool,
    /// One answer is enough to make a block final if the block is this much older than the finalized block, or if its
    /// number has been final for this long. See [`Rules::FINAL_MARGIN`].
    pub final_margin: Duration,
    /// Depth below the head from which blocks are final, if the operator configured one.
    pub finality_depth: Option<u64>,
}

// === impl Rules ===

impl Rules {
    /// Value of `final_margin` in production. Only tests use another value.
    ///
    /// One answer by number can make a block final permanently, so that answer must not come from a replica on an
    /// orphaned branch. An hour is far more than the lag of any replica or the depth of any reorg.
    pub const FINAL_MARGIN: Duration = Duration::from_secs(3600);
}

//! Properties of a chain and its upstream.

use std::time::Duration;

/// Rules for tracking one chain through one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Maximum age of an upstream's answer that may serve a call, measured from sending the request to the call's
    /// arrival.
    pub max_staleness: Duration,
    /// Maximum number of blocks in the window.
    pub window: usize,
    /// A lower head is a rollback after this many observations …
    pub rollback_after: u32,
    /// … over at least this time.
    pub lag_patience: Duration,
    /// Whether the upstream is a single node without a load balancer, which does not contradict itself.
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
    /// The margin in production; only model tests use another.
    ///
    /// One answer by number can make a block final permanently, so it must not come from a replica on an orphaned
    /// branch. An hour is far more than the lag of any replica or the depth of any reorg.
    pub const FINAL_MARGIN: Duration = Duration::from_secs(3600);
}

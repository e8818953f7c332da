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
    /// Blocks this deep count as final, where the operator says so.
    pub finality_depth: Option<u64>,
}

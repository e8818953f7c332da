//! The status of a tier.

use crate::cache::tier::{TierKind, Usage};

/// Status of a tier, for operators.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The kind of tier.
    pub kind: TierKind,
    /// Bytes and blocks stored, and evictions.
    pub usage: Usage,
    /// Whether reads succeed. `false` after several consecutive failures, until a read succeeds again.
    pub reads: bool,
    /// Whether writes succeed. `false` after several consecutive failures, until a write succeeds again.
    pub writes: bool,
    /// Whether the tier stores blocks of the chain that the upstreams serve.
    pub stores: bool,
    /// Number of failed reads and writes, and of damaged and wrong values.
    pub errors: u64,
}

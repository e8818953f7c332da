//! The status of a tier.

use crate::cache::tier::{TierKind, Usage};

/// How a tier does, for those who look.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// Which it is.
    pub kind: TierKind,
    /// What it holds.
    pub usage: Usage,
    /// Does it answer? Not from when it keeps failing until it has answered again.
    pub reads: bool,
    /// Can it be written to? The same.
    pub writes: bool,
    /// Whether the upstream has confirmed its number and transaction index.
    pub is_confirmed: bool,
    /// Reads and writes that failed, and values that were damaged or wrong.
    pub errors: u64,
}

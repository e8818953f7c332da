//! Answers of the canonical view.

use crate::eth::BlockHash;

/// The canonical block at a number, as known for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This block is final.
    Final(BlockHash),
    /// This block is on the tracked branch, and canonical if the view is fresh.
    Tracked {
        /// Hash of the block.
        hash: BlockHash,
        /// Whether the view is fresh enough for the call.
        fresh: bool,
    },
    /// A recent answer for this number alone named this block.
    Asked(BlockHash),
    /// The number is above the head, and has no block if the view is fresh.
    Above {
        /// Whether the view is fresh enough for the call.
        fresh: bool,
    },
    /// The view does not know the block at this number.
    Unknown,
}

/// Whether one block is an ancestor of another. The variants are ordered from the worst to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ancestry {
    /// The lower block is not an ancestor, or is not known to be one.
    Apart,
    /// The next refresh of the head decides.
    Unsure,
    /// The lower block is an ancestor.
    Ancestor,
}

// === impl Lookup ===

impl Lookup {
    /// Returns the hash at the number, even if the view is not fresh.
    pub fn hash(self) -> Option<BlockHash> {
        match self {
            Self::Final(hash) | Self::Tracked { hash, .. } | Self::Asked(hash) => Some(hash),
            Self::Above { .. } | Self::Unknown => None,
        }
    }
}

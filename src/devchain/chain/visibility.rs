//! Lag, finality and pruning: how the chain that clients see differs from the truth.

use alloy_primitives::B256;

/// The block that the tag `safe` or `finalized` stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagTarget {
    /// The block at the config's distance from the head, or the genesis while the chain is shorter.
    #[default]
    Trailing,
    /// The block of this number, or the head while the chain is shorter.
    At(u64),
    /// No block: the answer is `null`.
    Null,
    /// No block: the answer is an error, as geth gives before the first finalized block.
    Error,
}

/// How a node answers for history that it has pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// The node answers `null`.
    Null,
    /// The node answers with the error 4444 of EIP-4444. Transactions and receipts by hash are still `null`, because
    /// the node cannot know that they existed.
    Error4444,
}

/// The ways in which a client can name a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::devchain) enum BlockId {
    Hash { hash: B256, canonical_only: bool },
    Number(u64),
    Latest,
    Safe,
    Finalized,
    Earliest,
    Pending,
}

/// How the chain that clients see differs from the truth.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::devchain) struct Visibility {
    pub(in crate::devchain) lag: u64,
    pub(in crate::devchain) safe: TagTarget,
    pub(in crate::devchain) finalized: TagTarget,
    pub(in crate::devchain) pruned: Option<(u64, Pruned)>,
}

// === impl TagTarget ===

impl From<u64> for TagTarget {
    fn from(number: u64) -> Self {
        Self::At(number)
    }
}

impl From<Option<u64>> for TagTarget {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Trailing, Self::At)
    }
}

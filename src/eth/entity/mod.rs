//! Blocks and receipts as the bytes of a node's response, with the byte ranges of their parts.
//!
//! Holdfast does not parse content into values and serialize it again: an answer to a client is one or a few slices of
//! the upstream's bytes. Reading finds the ranges and parses a few members. The module `verify` checks the members.

mod block;
mod block_with_hashes;
mod log;
mod log_index;
mod members;
mod receipts;
mod single;

pub use self::{
    block::Block,
    block_with_hashes::BlockWithHashes,
    log::{Log, MAX_TOPICS},
    log_index::{Disputed, Disputes, IndexedFilter, LogIndex},
    members::ShapeError,
    receipts::Receipts,
    single::{Place, SingleReceipt, SingleTransaction},
};

use super::{BlockHash, BlockNumber};
use alloy_primitives::B256;

/// The members of a block's header that Holdfast uses. Until `verify` has checked them, they are only the node's
/// claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Hash of the block.
    pub hash: BlockHash,
    /// Hash of the parent block.
    pub parent: BlockHash,
    /// Number of the block.
    pub number: BlockNumber,
    /// Root of the transactions trie.
    pub transactions_root: B256,
    /// Length of the list of uncles.
    pub uncles: u32,
    /// Unix timestamp in seconds; `None` if it is missing or not a quantity.
    pub timestamp: Option<u64>,
}

/// Hash and number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// Hash of the block.
    pub block: BlockHash,
    /// Number of the block.
    pub number: BlockNumber,
}

/// Byte range of a value in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Header {
    /// Returns the block's hash and number.
    pub fn home(&self) -> Home {
        Home { block: self.hash, number: self.number }
    }
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns this span of a text that is itself at `outer`.
    fn within(self, outer: Self) -> Self {
        Self { start: outer.start + self.start, end: outer.start + self.end }
    }

    fn len(self) -> usize {
        self.range().len()
    }
}

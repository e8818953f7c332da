//! Blocks and receipts as a node wrote them: bytes, and where in them the parts stand.
//!
//! Nothing here is parsed into values or written anew: an answer is a slice, or a few slices, of the
//! bytes that came. Reading finds the ranges and a few members; it believes nothing of what they
//! say, which is `verify`'s business.

mod block;
mod block_with_hashes;
mod members;
mod receipts;
mod single;

pub use self::{
    block::Block,
    block_with_hashes::BlockWithHashes,
    members::ShapeError,
    receipts::Receipts,
    single::{Place, SingleReceipt, SingleTransaction},
};

use super::{BlockHash, BlockNumber};
use alloy_primitives::B256;

/// What is read of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block's hash, as it says.
    pub hash: BlockHash,
    /// The block before it.
    pub parent: BlockHash,
    /// Its height.
    pub number: BlockNumber,
    /// The root of its transactions.
    pub transactions_root: B256,
    /// How many uncles it names.
    pub uncles: u32,
    /// When it was made, in seconds of Unix time; `None` if the block does not say so in a readable way.
    pub timestamp: Option<u64>,
}

/// A block, by hash and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// Its hash.
    pub block: BlockHash,
    /// Its height.
    pub number: BlockNumber,
}

/// Where a value stands in its bytes.
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

    fn len(self) -> usize {
        self.range().len()
    }
}

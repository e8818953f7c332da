//! Results of the checks of an answer.

use std::sync::Arc;

use alloy_primitives::Bloom;
use bytes::Bytes;

use super::{Content, Failure, Verified};
use crate::{
    eth::{Block, BlockHash, BlockNumber, IndexedFilter, Receipts},
    workers::Overdue,
};

/// Result of the checks of an answer.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The answer may be cached.
    Passed(Content),
    /// The answer passed its checks, and contains nothing that enters the cache: it is a list of logs.
    Checked,
    /// The answer can be neither proved nor refuted: something in it is unknown, a member is missing, or its hashes do
    /// not match on a chain that is not listed as Ethereum's. The answer is not cached. The second field is the
    /// content, if the structure of the answer is right.
    Unproved(Failure, Option<Content>),
    /// The answer has fewer receipts than its canonical block has transactions, because the node does not have all of
    /// them yet.
    Short,
    /// The answer is wrong.
    Wrong(Failure),
    /// The checks did not finish in time.
    Overdue(Overdue),
}

/// Reason why receipts were not proved when their block arrived.
#[derive(Clone, Debug)]
pub enum Unproved {
    /// Proofs of receipts are not demanded on this chain, or the block is not proved.
    NotDemanded,
    /// The proof failed.
    Failed(Failure),
    /// The proof did not finish in time.
    Overdue(Overdue),
}

/// Access to the data that answers are compared with: cached content and canonical hashes.
pub trait Known: Send + Sync {
    /// Returns the cached block with this hash.
    fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>>;

    /// Returns the number and the transaction count of the block with this hash, if it is cached in any form.
    fn listed(&self, hash: BlockHash) -> Option<(BlockNumber, usize)> {
        self.block(hash).map(|block| (block.header().number, block.len()))
    }

    /// Returns the cached receipts of the block with this hash.
    fn receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>>;

    /// Returns the bloom of the block with this hash, if its cached header is proved.
    fn bloom(&self, _: BlockHash) -> Option<Bloom> {
        None
    }

    /// Returns the logs of the block with this hash that match, if the cache has an index of its proved receipts.
    fn indexed_logs(&self, _: BlockHash, _: &IndexedFilter) -> Option<Vec<Bytes>> {
        None
    }

    /// Returns the canonical hash at this number.
    fn at(&self, number: BlockNumber) -> Option<BlockHash>;

    /// Returns whether the last answer for this number named this block, even if that answer is old.
    fn was_at(&self, number: BlockNumber, block: BlockHash) -> bool {
        self.at(number) == Some(block)
    }

    /// Returns whether the canonical block at this number was final when the answer was requested.
    fn was_final(&self, number: BlockNumber) -> bool;
}

/// Known data for tests: the same receipts for every block.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct KnownReceipts(pub(super) Option<Arc<Verified<Receipts>>>);

#[cfg(test)]
impl Known for KnownReceipts {
    fn block(&self, _: BlockHash) -> Option<Arc<Verified<Block>>> {
        None
    }

    fn receipts(&self, _: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.0.clone()
    }

    fn at(&self, _: BlockNumber) -> Option<BlockHash> {
        None
    }

    fn was_final(&self, _: BlockNumber) -> bool {
        false
    }
}

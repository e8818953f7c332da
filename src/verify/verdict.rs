//! Results of the checks of an answer.

use std::sync::Arc;

use super::{Content, Failure, Overdue, Verified};
use crate::eth::{Block, BlockHash, BlockNumber, Receipts};

/// What came of the checks.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may be kept.
    Passed(Content),
    /// It can be neither proved nor found wrong: something in it is unknown, a member is missing, or its chain is not
    /// listed as Ethereum's and it does not come out. It is not kept; where its structure is right, it can
    /// still be read.
    Unproved(Failure, Option<Content>),
    /// Receipts of a canonical block, but fewer than it has transactions: the node does not have them all yet.
    Short,
    /// It is not right.
    Wrong(Failure),
    /// The checks have not ended in time.
    Overdue(Overdue),
}

/// Why receipts were not proved when their block came.
#[derive(Clone, Debug)]
pub enum Unproved {
    /// The rules of the chain are not known, or the block is not proved.
    NotDemanded,
    /// The proof failed.
    Failed(Failure),
    /// The proof has not ended in time.
    Overdue(Overdue),
}

/// What is known already, and answers are held against.
pub trait Known: Send + Sync {
    /// The block with this hash, if it is held.
    fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>>;

    /// The number of the block with this hash, and how many transactions it has, if it is held in whatever form.
    fn listed(&self, hash: BlockHash) -> Option<(BlockNumber, usize)> {
        self.block(hash).map(|block| (block.header().number, block.len()))
    }

    /// The receipts of the block with this hash, if they are held.
    fn receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>>;

    /// The block that is taken to stand at this number.
    fn at(&self, number: BlockNumber) -> Option<BlockHash>;

    /// Was whatever stands at this number final when the answer was asked for?
    fn was_final(&self, number: BlockNumber) -> bool;
}

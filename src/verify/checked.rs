//! Results of the checks of an answer.

use std::sync::Arc;

use super::{Failure, Kind, Level, Origin, Overdue, Verified};
use crate::eth::{Block, BlockHash, BlockNumber, LoneReceipt, LoneTransaction, Receipts, ThinBlock};

/// An answer that passed its checks.
#[derive(Clone, Debug)]
pub enum Checked {
    /// A block with whole transactions.
    Block(Verified<Block>),
    /// A block with hashes of transactions.
    Thin(Verified<ThinBlock>),
    /// The receipts of a block.
    Receipts {
        /// Its hash.
        block: BlockHash,
        /// Its height.
        number: BlockNumber,
        /// They.
        receipts: Verified<Receipts>,
    },
    /// A transaction.
    Transaction(Verified<LoneTransaction>),
    /// A receipt.
    Receipt(Verified<LoneReceipt>),
}

/// What came of the checks.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may be kept.
    Passed(Checked),
    /// It can be neither proved nor found wrong: something in it is unknown, a member is missing, or its chain is not
    /// listed as Ethereum's and it does not come out. It is not kept; where its structure is right, it can
    /// still be read.
    Unproved(Failure, Option<Checked>),
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

// === impl Checked ===

impl Checked {
    /// What kind of content it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Block(_) | Self::Thin(_) | Self::Transaction(_) => Kind::Transactions,
            Self::Receipts { .. } | Self::Receipt(_) => Kind::Receipts,
        }
    }

    /// How far it was checked.
    pub fn level(&self) -> Level {
        match self {
            Self::Block(block) => block.level(),
            Self::Thin(thin) => thin.level(),
            Self::Receipts { receipts, .. } => receipts.level(),
            Self::Transaction(transaction) => transaction.level(),
            Self::Receipt(receipt) => receipt.level(),
        }
    }

    /// The same, and who said it.
    pub(super) fn said_by(self, origin: &Origin) -> Self {
        match self {
            Self::Block(block) => Self::Block(block.said_by(origin)),
            Self::Thin(thin) => Self::Thin(thin.said_by(origin)),
            Self::Receipts { block, number, receipts } => {
                Self::Receipts { block, number, receipts: receipts.said_by(origin) }
            }
            Self::Transaction(transaction) => Self::Transaction(transaction.said_by(origin)),
            Self::Receipt(receipt) => Self::Receipt(receipt.said_by(origin)),
        }
    }
}

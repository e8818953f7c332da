//! Content that passed its checks.

use std::sync::Arc;

use super::{Level, Origin, Verified};
use crate::eth::{Block, BlockWithHashes, Home, Part, Place, Receipts, SingleReceipt, SingleTransaction};

/// Content that passed its checks. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Content {
    /// A block with whole transactions.
    Block(Arc<Verified<Block>>),
    /// A block with the hashes of its transactions.
    BlockWithHashes(Arc<Verified<BlockWithHashes>>),
    /// All receipts of a block.
    Receipts(Arc<Verified<Receipts>>),
    /// A single transaction.
    Transaction(Arc<Verified<SingleTransaction>>),
    /// A single receipt.
    Receipt(Arc<Verified<SingleReceipt>>),
}

/// Does the same with each part.
macro_rules! each {
    ($self:expr, $content:ident => $result:expr) => {
        match $self {
            Content::Block($content) => $result,
            Content::BlockWithHashes($content) => $result,
            Content::Receipts($content) => $result,
            Content::Transaction($content) => $result,
            Content::Receipt($content) => $result,
        }
    };
}

// === impl Content ===

impl Content {
    /// Returns the part of its block that it is.
    pub fn part(&self) -> Part {
        match self {
            Self::Block(_) => Part::Block,
            Self::BlockWithHashes(_) => Part::BlockWithHashes,
            Self::Receipts(_) => Part::Receipts,
            Self::Transaction(_) => Part::Transaction,
            Self::Receipt(_) => Part::Receipt,
        }
    }

    /// Returns its block; `None` for a pending transaction.
    pub fn home(&self) -> Option<Home> {
        match self {
            Self::Block(block) => Some(block.header().home()),
            Self::BlockWithHashes(with_hashes) => Some(with_hashes.header().home()),
            Self::Receipts(receipts) => receipts.home(),
            Self::Transaction(transaction) => transaction.place().map(Place::home),
            Self::Receipt(receipt) => Some(receipt.place().home()),
        }
    }

    /// Returns the block that it names itself: an empty list of receipts names none.
    pub fn named_home(&self) -> Option<Home> {
        match self {
            Self::Receipts(receipts) => receipts.named_home(),
            _ => self.home(),
        }
    }

    /// Returns whether it is a transaction or a receipt that was fetched without its block.
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Transaction(_) | Self::Receipt(_))
    }

    /// Returns how far it was checked.
    pub fn level(&self) -> Level {
        each!(self, content => content.level())
    }

    /// Returns the endpoint or tier that it came from.
    pub fn origin(&self) -> Option<&Origin> {
        each!(self, content => content.origin())
    }

    /// Returns the bytes of memory that it takes.
    pub fn weight(&self) -> usize {
        each!(self, content => content.weight())
    }

    /// Returns the same content with its origin, unless that is known already.
    pub(super) fn said_by(mut self, origin: &Origin) -> Self {
        if self.origin().is_none() {
            each!(&mut self, content => Arc::make_mut(content).said_by(origin));
        }
        self
    }
}

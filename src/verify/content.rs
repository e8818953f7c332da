//! Content that passed its checks.

use std::sync::Arc;

use super::{Level, Origin, Verified};
use crate::eth::{Block, BlockWithHashes, Home, Part, Place, Receipts, SingleReceipt, SingleTransaction};

/// Content that passed its checks. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Content {
    /// A block with full transactions.
    Block(Arc<Verified<Block>>),
    /// A block with transaction hashes.
    BlockWithHashes(Arc<Verified<BlockWithHashes>>),
    /// All receipts of a block.
    Receipts(Arc<Verified<Receipts>>),
    /// A single transaction.
    Transaction(Arc<Verified<SingleTransaction>>),
    /// A single receipt.
    Receipt(Arc<Verified<SingleReceipt>>),
}

/// Evaluates the same expression for each variant.
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
    /// Returns which part of a block the content is.
    pub fn part(&self) -> Part {
        match self {
            Self::Block(_) => Part::Block,
            Self::BlockWithHashes(_) => Part::BlockWithHashes,
            Self::Receipts(_) => Part::Receipts,
            Self::Transaction(_) => Part::Transaction,
            Self::Receipt(_) => Part::Receipt,
        }
    }

    /// Returns the block that the content belongs to; `None` for a pending transaction.
    pub fn home(&self) -> Option<Home> {
        match self {
            Self::Block(block) => Some(block.header().home()),
            Self::BlockWithHashes(with_hashes) => Some(with_hashes.header().home()),
            Self::Receipts(receipts) => receipts.home(),
            Self::Transaction(transaction) => transaction.place().map(Place::home),
            Self::Receipt(receipt) => Some(receipt.place().home()),
        }
    }

    /// Returns the block that the content itself names; `None` for an empty list of receipts.
    pub fn named_home(&self) -> Option<Home> {
        match self {
            Self::Receipts(receipts) => receipts.named_home(),
            _ => self.home(),
        }
    }

    /// Returns whether the content is a transaction or a receipt that was fetched without its block.
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Transaction(_) | Self::Receipt(_))
    }

    /// Returns the level of verification that the content reached.
    pub fn level(&self) -> Level {
        each!(self, content => content.level())
    }

    /// Returns whether the content is proved or its block was final when the answer was requested.
    pub fn lasts(&self) -> bool {
        each!(self, content => content.lasts())
    }

    /// Returns the endpoint or tier that the content came from.
    pub fn origin(&self) -> Option<&Origin> {
        each!(self, content => content.origin())
    }

    /// Returns the content's memory use in bytes.
    pub fn weight(&self) -> usize {
        each!(self, content => content.weight())
    }

    /// Sets the origin, unless the content already has an origin.
    pub(super) fn said_by(mut self, origin: &Origin) -> Self {
        if self.origin().is_none() {
            each!(&mut self, content => Arc::make_mut(content).said_by(origin));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn first_origin_stays() {
        let origin = |name: &str| Origin { endpoint: name.into(), time: SystemTime::UNIX_EPOCH };
        let (receipts, _) = Receipts::read(Bytes::from_static(b"[]")).unwrap();
        let content = Content::Receipts(Verified::structurally(receipts).into());
        let content = content.said_by(&origin("first")).said_by(&origin("second"));
        assert_eq!(content.origin(), Some(&origin("first")));
    }
}

//! What is kept, and what it weighs.

use std::sync::Arc;

use super::{
    deflated::Deflated,
    location::{ENTRY_BYTES, Home, INDEXED_INLINE},
};
use crate::{
    eth::{Block, BlockHash, LoneReceipt, LoneTransaction, Part, Receipts, ThinBlock, TxHash, TxPosition},
    verify::Verified,
};

/// What an entry costs beside its content: the key, moka's nodes and queues, reference counts, who said it.
const OVERHEAD: usize = 352;

/// Names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Block(BlockHash),
    Thin(BlockHash),
    Receipts(BlockHash),
    Transaction(BlockHash, TxPosition),
    Receipt(BlockHash, TxPosition),
    Deflated(BlockHash, Part),
}

/// The kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A block with whole transactions.
    Block,
    /// A block with hashes of transactions.
    Thin,
    /// The receipts of a block.
    Receipts,
    /// A transaction that came alone.
    Transaction,
    /// A receipt that came alone.
    Receipt,
    /// A block or its receipts, deflated.
    Deflated,
}

/// An entry. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) home: Arc<Home>,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Block(Arc<Verified<Block>>),
    Thin(Arc<Verified<ThinBlock>>),
    Receipts(Arc<Verified<Receipts>>),
    Transaction(Arc<Verified<LoneTransaction>>),
    Receipt(Arc<Verified<LoneReceipt>>),
    Deflated(Arc<Deflated>),
}

// === impl Kind ===

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Block, Self::Thin, Self::Receipts, Self::Transaction, Self::Receipt, Self::Deflated];

    /// Its name in logs, metrics and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Thin => "head",
            Self::Receipts => "receipts",
            Self::Transaction => "transaction",
            Self::Receipt => "receipt",
            Self::Deflated => "deflated",
        }
    }
}

// === impl Content ===

impl Content {
    pub(super) fn into_block(self) -> Option<Arc<Verified<Block>>> {
        match self {
            Self::Block(block) => Some(block),
            _ => None,
        }
    }

    pub(super) fn into_thin(self) -> Option<Arc<Verified<ThinBlock>>> {
        match self {
            Self::Thin(thin) => Some(thin),
            _ => None,
        }
    }

    pub(super) fn into_receipts(self) -> Option<Arc<Verified<Receipts>>> {
        match self {
            Self::Receipts(receipts) => Some(receipts),
            _ => None,
        }
    }
}

// === impl Entity ===

impl Entity {
    pub(super) fn kind(&self) -> Kind {
        match self.content {
            Content::Block(_) => Kind::Block,
            Content::Thin(_) => Kind::Thin,
            Content::Receipts(_) => Kind::Receipts,
            Content::Transaction(_) => Kind::Transaction,
            Content::Receipt(_) => Kind::Receipt,
            Content::Deflated(_) => Kind::Deflated,
        }
    }

    /// The memory it takes, its entries in the location index included.
    pub(super) fn weight(&self) -> usize {
        let content = match &self.content {
            Content::Block(block) => block.weight(),
            Content::Thin(thin) => thin.weight(),
            Content::Receipts(receipts) => receipts.weight(),
            Content::Transaction(transaction) => transaction.weight(),
            Content::Receipt(receipt) => receipt.weight(),
            Content::Deflated(deflated) => deflated.weight(),
        };
        OVERHEAD + content + self.located() * ENTRY_BYTES
    }

    /// How many transactions it locates.
    fn located(&self) -> usize {
        match &self.content {
            Content::Block(block) => block.len(),
            Content::Thin(_) | Content::Deflated(_) => 0,
            Content::Receipts(receipts) => receipts.len(),
            Content::Transaction(_) | Content::Receipt(_) => 1,
        }
    }

    /// Is this transaction, or its receipt, at this position of it?
    pub(super) fn holds(&self, transaction: TxHash, index: TxPosition) -> bool {
        match &self.content {
            Content::Block(block) => block.transaction_hash(index) == Some(transaction),
            _ => self.locations().contains(&(transaction, index)),
        }
    }

    /// Returns whether it locates more transactions than a runtime thread indexes.
    pub(super) fn is_long(&self) -> bool {
        let transactions = match &self.content {
            Content::Block(block) => block.len(),
            Content::Receipts(receipts) => receipts.len(),
            Content::Thin(_) | Content::Deflated(_) | Content::Transaction(_) | Content::Receipt(_) => 0,
        };
        transactions > INDEXED_INLINE
    }

    /// The transactions that it locates, with their positions.
    pub(super) fn locations(&self) -> Vec<(TxHash, TxPosition)> {
        let numbered = |hashes: Vec<TxHash>| {
            hashes.into_iter().zip(0..).map(|(hash, index)| (hash, TxPosition(index))).collect()
        };
        match &self.content {
            Content::Block(block) => numbered(block.transaction_hashes().collect()),
            Content::Thin(_) | Content::Deflated(_) => Vec::new(),
            Content::Receipts(receipts) => numbered(receipts.transaction_hashes().collect()),
            Content::Transaction(transaction) => {
                transaction.place().map(|place| (transaction.hash(), place.index)).into_iter().collect()
            }
            Content::Receipt(receipt) => vec![(receipt.hash(), receipt.place().index)],
        }
    }
}

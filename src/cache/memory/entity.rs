//! Cached entries and their weight.

use std::sync::Arc;

use super::{
    deflated::Deflated,
    indexed_logs::IndexedLogs,
    location::{ENTRY_BYTES, INDEXED_INLINE},
};
use crate::{
    eth::{Block, BlockHash, BlockWithHashes, Home, Part, Receipts, TxHash, TxPosition},
    verify::{Content, Verified},
};

/// Bytes of an entry besides its content: the key, moka's nodes and queues, reference counts, the origin.
const OVERHEAD: usize = 352;

/// Key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Block(BlockHash),
    BlockWithHashes(BlockHash),
    Receipts(BlockHash),
    Transaction(TxHash),
    Receipt(TxHash),
    Deflated(BlockHash, Part),
    LogIndex(BlockHash),
}

/// Names of the kinds of entries, for metrics and for lists of entries: the parts in the order of [`Part`], then
/// deflated texts and log indexes.
pub(super) const KINDS: [&str; 7] =
    ["block", "block_hashes", "receipts", "transaction", "receipt", "deflated", "log_index"];
const DEFLATED: usize = Part::Receipt as usize + 1;
const LOG_INDEX: usize = DEFLATED + 1;
const _: () = assert!(LOG_INDEX == KINDS.len() - 1);

/// An entry. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) home: Arc<Home>,
    pub(super) value: Value,
}

/// The value of an entry.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Content(Content),
    Deflated(Arc<Deflated>),
    LogIndex(Arc<IndexedLogs>),
}

// === impl Key ===

impl Key {
    /// Returns the key of content; `None` for a pending transaction.
    pub(super) fn of(content: &Content) -> Option<Self> {
        Some(match content {
            Content::Block(block) => Self::Block(block.hash()),
            Content::BlockWithHashes(with_hashes) => Self::BlockWithHashes(with_hashes.hash()),
            Content::Receipts(receipts) => Self::Receipts(receipts.block()?),
            Content::Transaction(transaction) => {
                transaction.place().map(|_| Self::Transaction(transaction.hash()))?
            }
            Content::Receipt(receipt) => Self::Receipt(receipt.hash()),
        })
    }
}

// === impl Entity ===

impl Entity {
    pub(super) fn into_block(self) -> Option<Arc<Verified<Block>>> {
        match self.value {
            Value::Content(Content::Block(block)) => Some(block),
            _ => None,
        }
    }

    pub(super) fn into_block_with_hashes(self) -> Option<Arc<Verified<BlockWithHashes>>> {
        match self.value {
            Value::Content(Content::BlockWithHashes(with_hashes)) => Some(with_hashes),
            _ => None,
        }
    }

    pub(super) fn into_receipts(self) -> Option<Arc<Verified<Receipts>>> {
        match self.value {
            Value::Content(Content::Receipts(receipts)) => Some(receipts),
            _ => None,
        }
    }

    /// Returns the content; `None` for an entry that was made of content.
    pub(super) fn content(&self) -> Option<&Content> {
        match &self.value {
            Value::Content(content) => Some(content),
            Value::Deflated(_) | Value::LogIndex(_) => None,
        }
    }

    /// Returns the index of the entry's kind in [`KINDS`].
    pub(super) fn kind(&self) -> usize {
        match &self.value {
            Value::Content(content) => content.part() as usize,
            Value::Deflated(_) => DEFLATED,
            Value::LogIndex(_) => LOG_INDEX,
        }
    }

    /// Memory in bytes, including its entries in the location index.
    pub(super) fn weight(&self) -> usize {
        let value = match &self.value {
            Value::Content(content) => content.weight(),
            Value::Deflated(deflated) => deflated.weight(),
            Value::LogIndex(index) => index.weight(),
        };
        OVERHEAD + value + self.located() * ENTRY_BYTES
    }

    /// Number of transactions that the entry adds to the location index. Of a single entry, the key names the transaction.
    fn located(&self) -> usize {
        match self.content() {
            Some(Content::Block(block)) => block.len(),
            Some(Content::Receipts(receipts)) => receipts.len(),
            _ => 0,
        }
    }

    /// Returns the position of this transaction, or of its receipt, if the entry holds it at `index`, or alone.
    pub(super) fn position(&self, transaction: TxHash, index: Option<TxPosition>) -> Option<TxPosition> {
        match self.content()? {
            Content::Block(block) => {
                index.filter(|index| block.transaction_hash(*index) == Some(transaction))
            }
            Content::Receipts(receipts) => {
                index.filter(|index| receipts.transaction_hash(*index) == Some(transaction))
            }
            Content::Transaction(single) => single.place().map(|place| place.index),
            Content::Receipt(single) => Some(single.place().index),
            Content::BlockWithHashes(_) => None,
        }
    }

    /// Returns whether the entry has more transactions than a runtime thread should index.
    pub(super) fn is_long(&self) -> bool {
        self.located() > INDEXED_INLINE
    }

    /// Returns the transactions that the entry adds to the location index, with their positions.
    pub(super) fn locations(&self) -> Vec<(TxHash, TxPosition)> {
        let positions = (0..).map(TxPosition);
        match self.content() {
            Some(Content::Block(block)) => block.transaction_hashes().zip(positions).collect(),
            Some(Content::Receipts(receipts)) => receipts.transaction_hashes().zip(positions).collect(),
            _ => Vec::new(),
        }
    }
}

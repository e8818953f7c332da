//! A block with the hashes of its transactions only.

use bytes::Bytes;

use super::{Header, ShapeError, members};
use crate::eth::{BlockHash, TxHash};

/// A block as a node wrote it, its transactions by hash.
#[derive(Clone, Debug)]
pub struct BlockWithHashes {
    bytes: Bytes,
    header: Header,
    transactions: u32,
}

// === impl BlockWithHashes ===

impl BlockWithHashes {
    /// Reads `bytes`, which are kept as they are.
    ///
    /// # Errors
    /// If the bytes are not a block with hashes of transactions.
    pub fn read(bytes: Bytes) -> Result<Self, ShapeError> {
        let text = members::text(&bytes)?;
        let (header, array) = members::block(text)?;
        let spans = members::elements(text, array, "transactions")?;
        for span in &spans {
            members::hash(text, Some(*span), "a transaction's hash")?;
        }
        Ok(Self { header, transactions: spans.len() as u32, bytes: bytes.clone() })
    }

    /// What its header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The hash of the block.
    pub fn hash(&self) -> BlockHash {
        self.header.hash
    }

    /// The whole of it.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// How many transactions it has.
    pub fn len(&self) -> usize {
        self.transactions as usize
    }

    /// Returns whether it lists this transaction. Reads all of it: for answers that are missing.
    pub fn lists(&self, transaction: TxHash) -> bool {
        let listed = || {
            let text = members::text(&self.bytes).ok()?;
            let (_, array) = members::block(text).ok()?;
            let mut spans = members::elements(text, array, "transactions").ok()?.into_iter();
            spans.find(|span| members::hash(text, Some(*span), "hash") == Ok(transaction.0))
        };
        listed().is_some()
    }

    /// Has it no transactions?
    pub fn is_empty(&self) -> bool {
        self.transactions == 0
    }

    /// The memory that it takes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

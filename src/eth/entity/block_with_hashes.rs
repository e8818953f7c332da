//! A block with transaction hashes only.

use alloy_primitives::Bloom;
use bytes::Bytes;

use super::{
    Header, ShapeError, Span,
    members::{self, BlockMembers},
};
use crate::eth::{BlockHash, TxHash};

/// A block with transaction hashes only, as the bytes of a node's response.
#[derive(Clone, Debug)]
pub struct BlockWithHashes {
    bytes: Bytes,
    header: Header,
    /// Span of the bloom, quotes included.
    bloom: Option<Span>,
    transactions: u32,
}

// === impl BlockWithHashes ===

impl BlockWithHashes {
    /// Reads `bytes` and stores them unchanged.
    ///
    /// # Errors
    /// If the bytes are not a block with transaction hashes.
    pub fn read(bytes: Bytes) -> Result<Self, ShapeError> {
        let text = members::text(&bytes)?;
        let BlockMembers { header, bloom, transactions: array } = members::block(text)?;
        let spans = members::elements(text, array, "transactions")?;
        for span in &spans {
            members::hash(text, Some(*span), "a transaction's hash")?;
        }
        Ok(Self { header, bloom, transactions: spans.len() as u32, bytes: bytes.clone() })
    }

    /// Returns the header members.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the bloom of the logs; `None` if it is missing or malformed.
    pub fn bloom(&self) -> Option<Bloom> {
        members::bloom(&self.bytes, self.bloom)
    }

    /// Returns the hash of the block.
    pub fn hash(&self) -> BlockHash {
        self.header.hash
    }

    /// Returns the JSON bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the number of transactions.
    pub fn len(&self) -> usize {
        self.transactions as usize
    }

    /// Returns whether the block lists `transaction`. This scans the whole block, which is too slow for cache hits.
    pub fn lists(&self, transaction: TxHash) -> bool {
        let listed = || {
            let text = members::text(&self.bytes).ok()?;
            let array = members::block(text).ok()?.transactions;
            let mut spans = members::elements(text, array, "transactions").ok()?.into_iter();
            spans.find(|span| members::hash(text, Some(*span), "hash") == Ok(transaction.0))
        };
        listed().is_some()
    }

    /// Returns whether the block has no transactions.
    pub fn is_empty(&self) -> bool {
        self.transactions == 0
    }

    /// Returns the memory use of the block in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

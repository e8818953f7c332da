//! A block with full transactions.

use alloy_primitives::Bloom;
use bytes::Bytes;

use super::{
    Header, Place, ShapeError, Span,
    members::{self, BlockMembers, Named},
};
use crate::{
    eth::{BlockHash, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// A block with full transactions, as the bytes of a node's response.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    header: Header,
    /// Span of the bloom, quotes included.
    bloom: Option<Span>,
    /// Span of the `transactions` array, brackets included.
    array: Span,
    transactions: Box<[Transaction]>,
}

/// Spans of one transaction.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    whole: Span,
    /// Span of the transaction's hash, quotes included.
    hash: Span,
}

// === impl Block ===

impl Block {
    /// Reads `bytes` and stores them unchanged. Also returns the location that each transaction names, which the caller
    /// must check.
    ///
    /// # Errors
    /// If the bytes are not a block with full transactions.
    pub fn read(bytes: Bytes) -> Result<(Self, Vec<(TxHash, Place)>), ShapeError> {
        let text = members::text(&bytes)?;
        let BlockMembers { header, bloom, transactions: array } = members::block(text)?;
        let spans = members::elements(text, array, "transactions")?;
        let mut transactions = Vec::with_capacity(spans.len());
        let mut places = Vec::with_capacity(spans.len());
        for whole in spans {
            let Named { hash, hash_at, block, number, index } = transaction(text, whole)?;
            transactions.push(Transaction { whole, hash: hash_at });
            places.push((hash, Place::all(block, number, index)?));
        }
        Ok((Self { header, bloom, array, transactions: transactions.into(), bytes: bytes.clone() }, places))
    }

    /// Returns the header members.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the bloom of the logs; `None` if it is missing or malformed.
    pub fn bloom(&self) -> Option<Bloom> {
        members::bloom(&self.bytes, self.bloom)
    }

    /// Returns the number of transactions.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Returns whether the block has no transactions.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Returns the JSON bytes of the full block.
    pub fn full(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the block with transaction hashes only, as three pieces to concatenate.
    pub fn hashes_only(&self) -> [Bytes; 3] {
        let size = 2 + self.transactions.iter().map(|transaction| transaction.hash.len() + 1).sum::<usize>();
        let mut list = Vec::with_capacity(size);
        list.push(b'[');
        for (position, transaction) in self.transactions.iter().enumerate() {
            if position > 0 {
                list.push(b',');
            }
            list.extend_from_slice(&self.bytes[transaction.hash.range()]);
        }
        list.push(b']');
        let array = self.array.range();
        [self.bytes.slice(..array.start), list.into(), self.bytes.slice(array.end..)]
    }

    /// Returns the transaction at `index`; `None` past the end.
    pub fn transaction(&self, index: TxPosition) -> Option<Bytes> {
        let transaction = self.transactions.get(usize::try_from(index.0).ok()?)?;
        Some(self.bytes.slice(transaction.whole.range()))
    }

    /// Returns the hash of the transaction at `index`; `None` past the end.
    pub fn transaction_hash(&self, index: TxPosition) -> Option<TxHash> {
        let transaction = self.transactions.get(usize::try_from(index.0).ok()?)?;
        let quoted = &self.bytes[transaction.hash.range()];
        TxHash::from_ascii(quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()
    }

    /// Returns the hashes of all transactions, in order.
    pub fn transaction_hashes(&self) -> impl Iterator<Item = TxHash> {
        (0..self.transactions.len() as u64).filter_map(|index| self.transaction_hash(TxPosition(index)))
    }

    /// Returns the memory use of the block in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.transactions)
    }

    /// Returns the hash of the block.
    pub fn hash(&self) -> BlockHash {
        self.header.hash
    }
}

fn transaction(text: &str, whole: Span) -> Result<Named, ShapeError> {
    let inner = &text[whole.range()];
    let mut named = members::named(&mut Scanner::new(inner), inner, "a transaction", "hash")?;
    named.hash_at = Span { start: whole.start + named.hash_at.start, end: whole.start + named.hash_at.end };
    Ok(named)
}

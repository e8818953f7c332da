//! A block with whole transactions.

use bytes::Bytes;

use super::{
    Header, Place, ShapeError, Span,
    members::{self, Named},
};
use crate::{
    eth::{BlockHash, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// A block as a node wrote it, its transactions whole.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    header: Header,
    /// The array of transactions, brackets included.
    array: Span,
    transactions: Box<[Transaction]>,
}

/// Where one transaction stands.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    whole: Span,
    /// The text of its hash, quotes included.
    hash: Span,
}

// === impl Block ===

impl Block {
    /// Finds the parts of `bytes`, which are kept as they are; and what each transaction says of
    /// its place, for whoever checks it.
    ///
    /// # Errors
    /// If the bytes are not a block with whole transactions.
    pub fn read(bytes: Bytes) -> Result<(Self, Vec<(TxHash, Place)>), ShapeError> {
        let text = members::text(&bytes)?;
        let (header, array) = members::block(text)?;
        let spans = members::elements(text, array, "transactions")?;
        let mut transactions = Vec::with_capacity(spans.len());
        let mut places = Vec::with_capacity(spans.len());
        for whole in spans {
            let Named { hash, hash_at, block, number, index } = transaction(text, whole)?;
            transactions.push(Transaction { whole, hash: hash_at });
            places.push((hash, Place::all(block, number, index)?));
        }
        Ok((Self { header, array, transactions: transactions.into(), bytes: bytes.clone() }, places))
    }

    /// What its header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many transactions it has.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Has it no transactions?
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The whole block.
    pub fn full(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The block with the hashes of its transactions only, in three pieces.
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

    /// One transaction; `None` past the end.
    pub fn transaction(&self, index: TxPosition) -> Option<Bytes> {
        let transaction = self.transactions.get(usize::try_from(index.0).ok()?)?;
        Some(self.bytes.slice(transaction.whole.range()))
    }

    /// The hash of one transaction; `None` past the end.
    pub fn transaction_hash(&self, index: TxPosition) -> Option<TxHash> {
        let transaction = self.transactions.get(usize::try_from(index.0).ok()?)?;
        let quoted = &self.bytes[transaction.hash.range()];
        TxHash::from_ascii(quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()
    }

    /// The hashes of all transactions, in order.
    pub fn transaction_hashes(&self) -> impl Iterator<Item = TxHash> {
        (0..self.transactions.len() as u64).filter_map(|index| self.transaction_hash(TxPosition(index)))
    }

    /// The memory that it takes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.transactions)
    }

    /// The hash of the block.
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

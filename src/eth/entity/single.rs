//! A transaction or a receipt that was fetched without its block.

use bytes::Bytes;

use super::{Home, ShapeError, members};
use crate::{
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// Location of a transaction in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Hash of the block.
    pub block: BlockHash,
    /// Number of the block.
    pub number: BlockNumber,
    /// Position in the block.
    pub index: TxPosition,
}

/// A transaction that was fetched without its block.
#[derive(Clone, Debug)]
pub struct SingleTransaction {
    bytes: Bytes,
    hash: TxHash,
    place: Option<Place>,
    /// Whether the transaction has a `blockNumber` but no `blockHash`.
    half_placed: bool,
}

/// A receipt that was fetched without its block.
#[derive(Clone, Debug)]
pub struct SingleReceipt {
    bytes: Bytes,
    hash: TxHash,
    place: Place,
}

// === impl Place ===

impl Place {
    /// Returns the hash and number of the block.
    pub fn home(self) -> Home {
        Home { block: self.block, number: self.number }
    }

    pub(super) fn all(
        block: Option<BlockHash>,
        number: Option<BlockNumber>,
        index: Option<TxPosition>,
    ) -> Result<Self, ShapeError> {
        Ok(Self {
            block: block.ok_or(ShapeError::Member("blockHash"))?,
            number: number.ok_or(ShapeError::Member("blockNumber"))?,
            index: index.ok_or(ShapeError::Member("transactionIndex"))?,
        })
    }
}

// === impl SingleTransaction ===

impl SingleTransaction {
    /// Reads `bytes` and stores them unchanged.
    ///
    /// # Errors
    /// If the bytes are not a transaction.
    pub fn read(bytes: Bytes) -> Result<Self, ShapeError> {
        let text = members::text(&bytes)?;
        let mut scanner = Scanner::new(text);
        let named = members::named(&mut scanner, text, "the transaction", "hash")?;
        scanner.end()?;
        let place = match (named.block, named.index) {
            // Some nodes give a pending transaction a `blockNumber` but no `blockHash`.
            (None, None) => None,
            _ => Some(Place::all(named.block, named.number, named.index)?),
        };
        let half_placed = place.is_none() && named.number.is_some();
        Ok(Self { hash: named.hash, place, half_placed, bytes: bytes.clone() })
    }

    /// Returns the hash that the transaction claims to have.
    pub fn hash(&self) -> TxHash {
        self.hash
    }

    /// Returns whether the transaction has a `blockNumber` but no `blockHash`. Such a transaction is pending, and its
    /// number has no meaning.
    pub fn is_half_placed(&self) -> bool {
        self.half_placed
    }

    /// Returns the transaction's location; `None` for a pending transaction.
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the JSON bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the memory use of the transaction in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

// === impl SingleReceipt ===

impl SingleReceipt {
    /// Reads `bytes` and stores them unchanged.
    ///
    /// # Errors
    /// If the bytes are not a receipt.
    pub fn read(bytes: Bytes) -> Result<Self, ShapeError> {
        let text = members::text(&bytes)?;
        let mut scanner = Scanner::new(text);
        let named = members::named(&mut scanner, text, "the receipt", "transactionHash")?;
        scanner.end()?;
        let place = Place::all(named.block, named.number, named.index)?;
        Ok(Self { hash: named.hash, place, bytes: bytes.clone() })
    }

    /// Returns the transaction hash that the receipt names.
    pub fn hash(&self) -> TxHash {
        self.hash
    }

    /// Returns the location of the receipt's transaction.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the JSON bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the memory use of the receipt in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

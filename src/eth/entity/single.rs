//! A transaction or a receipt that came alone.

use bytes::Bytes;

use super::{Home, ShapeError, members};
use crate::{
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The block.
    pub block: BlockHash,
    /// The block's height.
    pub number: BlockNumber,
    /// The position in it.
    pub index: TxPosition,
}

/// A transaction that came alone.
#[derive(Clone, Debug)]
pub struct SingleTransaction {
    bytes: Bytes,
    hash: TxHash,
    place: Option<Place>,
    /// It names a block's number, and no block.
    half_placed: bool,
    /// It was asked for as the transaction at this place of its block.
    of_block: bool,
}

/// A receipt that came alone.
#[derive(Clone, Debug)]
pub struct SingleReceipt {
    bytes: Bytes,
    hash: TxHash,
    place: Place,
}

// === impl Place ===

impl Place {
    /// Returns the block.
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
    /// Reads `bytes`, which are kept as they are.
    ///
    /// # Errors
    /// If the bytes are not a transaction.
    pub fn read(bytes: Bytes) -> Result<Self, ShapeError> {
        let text = members::text(&bytes)?;
        let mut scanner = Scanner::new(text);
        let named = members::named(&mut scanner, text, "the transaction", "hash")?;
        scanner.end()?;
        let place = match (named.block, named.index) {
            // Some nodes name a block's number but no block for what is pending.
            (None, None) => None,
            _ => Some(Place::all(named.block, named.number, named.index)?),
        };
        let half_placed = place.is_none() && named.number.is_some();
        Ok(Self { hash: named.hash, place, half_placed, of_block: false, bytes: bytes.clone() })
    }

    /// Its hash, as it says.
    pub fn hash(&self) -> TxHash {
        self.hash
    }

    /// Does it name a block's number, and no block? Then it is pending, and that number means nothing.
    pub fn is_half_placed(&self) -> bool {
        self.half_placed
    }

    /// The same, as the answer to which transaction is at its place of its block.
    pub fn asked_of_block(self) -> Self {
        Self { of_block: true, ..self }
    }

    /// Returns whether it was asked for as the transaction at its place of its block. Otherwise nothing but its own word
    /// says that it is there.
    pub fn is_asked_of_block(&self) -> bool {
        self.of_block
    }

    /// Where it is; `None` while it is pending.
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// The whole of it.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The memory that it takes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

// === impl SingleReceipt ===

impl SingleReceipt {
    /// Reads `bytes`, which are kept as they are.
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

    /// The transaction that it is of, as it says.
    pub fn hash(&self) -> TxHash {
        self.hash
    }

    /// Where that transaction is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The whole of it.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The memory that it takes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

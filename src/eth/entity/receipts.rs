//! The receipts of a block.

use bytes::Bytes;

use super::{Home, Place, ShapeError, Span, members};
use crate::{
    eth::{BlockHash, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// All receipts of one block, as the bytes of a node's response.
#[derive(Clone, Debug)]
pub struct Receipts {
    bytes: Bytes,
    /// The block of the receipts: the block that the first receipt names or, for an empty list, the block that a check
    /// assigned.
    home: Option<Home>,
    receipts: Box<[Receipt]>,
}

#[derive(Clone, Copy, Debug)]
struct Receipt {
    whole: Span,
    transaction: TxHash,
}

// === impl Receipts ===

impl Receipts {
    /// Reads `bytes` and stores them unchanged. Also returns the location that each receipt names, which the caller
    /// must check.
    ///
    /// # Errors
    /// If the bytes are not an array of receipts.
    pub fn read(bytes: Bytes) -> Result<(Self, Vec<(TxHash, Place)>), ShapeError> {
        let text = members::text(&bytes)?;
        let whole = Span { start: 0, end: text.len() as u32 };
        let spans = members::elements(text, whole, "the receipts")?;
        let mut receipts = Vec::with_capacity(spans.len());
        let mut places = Vec::with_capacity(spans.len());
        for whole in spans {
            let inner = &text[whole.range()];
            let named = members::named(&mut Scanner::new(inner), inner, "a receipt", "transactionHash")?;
            receipts.push(Receipt { whole, transaction: named.hash });
            places.push((named.hash, Place::all(named.block, named.number, named.index)?));
        }
        let home = places.first().map(|(_, place)| place.home());
        Ok((Self { receipts: receipts.into(), home, bytes: bytes.clone() }, places))
    }

    /// Assigns the receipts to the block `home`.
    pub fn of_block(self, home: Home) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Returns the block of the receipts; `None` for an empty list that has no block assigned yet.
    pub fn home(&self) -> Option<Home> {
        self.home
    }

    /// Returns the block that the receipts themselves name; `None` for an empty list.
    pub fn named_home(&self) -> Option<Home> {
        self.home.filter(|_| !self.is_empty())
    }

    /// Returns the hash of the receipts' block.
    pub fn block(&self) -> Option<BlockHash> {
        self.home.map(|home| home.block)
    }

    /// Returns the number of receipts.
    pub fn len(&self) -> usize {
        self.receipts.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.receipts.is_empty()
    }

    /// Returns the JSON bytes of the whole list.
    pub fn all(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the receipt at `index`; `None` past the end.
    pub fn receipt(&self, index: TxPosition) -> Option<Bytes> {
        let receipt = self.receipts.get(usize::try_from(index.0).ok()?)?;
        Some(self.bytes.slice(receipt.whole.range()))
    }

    /// Returns the transaction hash of the receipt at `index`; `None` past the end.
    pub fn transaction_hash(&self, index: TxPosition) -> Option<TxHash> {
        Some(self.receipts.get(usize::try_from(index.0).ok()?)?.transaction)
    }

    /// Returns the transaction hashes of all receipts, in order.
    pub fn transaction_hashes(&self) -> impl Iterator<Item = TxHash> {
        self.receipts.iter().map(|receipt| receipt.transaction)
    }

    /// Returns the place of each receipt in the bytes.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        self.receipts.iter().map(|receipt| receipt.whole)
    }

    /// Returns the memory use of the receipts in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.receipts)
    }
}

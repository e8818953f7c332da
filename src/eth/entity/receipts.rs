//! The receipts of a block.

use bytes::Bytes;

use super::{Place, ShapeError, Span, members};
use crate::{
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
    jsonrpc::Scanner,
};

/// The receipts of one block as a node wrote them, in one array.
#[derive(Clone, Debug)]
pub struct Receipts {
    bytes: Bytes,
    /// The block that the first of them names.
    home: Option<(BlockHash, BlockNumber)>,
    receipts: Box<[Receipt]>,
}

#[derive(Clone, Copy, Debug)]
struct Receipt {
    whole: Span,
    transaction: TxHash,
}

// === impl Receipts ===

impl Receipts {
    /// Finds the receipts in `bytes`, and the place each of them names.
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
        let home = places.first().map(|(_, place)| (place.block, place.number));
        Ok((Self { receipts: receipts.into(), home, bytes: bytes.clone() }, places))
    }

    /// The block that they name and its height; none, if there are none.
    pub fn home(&self) -> Option<(BlockHash, BlockNumber)> {
        self.home
    }

    /// The block that they name; none, if there are none.
    pub fn block(&self) -> Option<BlockHash> {
        self.home.map(|(block, _)| block)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.receipts.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.receipts.is_empty()
    }

    /// All of them.
    pub fn all(&self) -> Bytes {
        self.bytes.clone()
    }

    /// One receipt; `None` past the end.
    pub fn receipt(&self, index: TxPosition) -> Option<Bytes> {
        let receipt = self.receipts.get(usize::try_from(index.0).ok()?)?;
        Some(self.bytes.slice(receipt.whole.range()))
    }

    /// The transaction that a receipt is of; `None` past the end.
    pub fn transaction_hash(&self, index: TxPosition) -> Option<TxHash> {
        Some(self.receipts.get(usize::try_from(index.0).ok()?)?.transaction)
    }

    /// The transactions that they are of, in order.
    pub fn transaction_hashes(&self) -> impl Iterator<Item = TxHash> {
        self.receipts.iter().map(|receipt| receipt.transaction)
    }

    /// The memory that they take.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.receipts)
    }
}

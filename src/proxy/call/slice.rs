//! Cuts the answer to a query out of verified content.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    eth::{Block, Part, Query, TxPosition},
    verify::{Content, Verified},
};

pub(crate) const NULL: Bytes = Bytes::from_static(b"null");
pub(crate) const EMPTY_LIST: Bytes = Bytes::from_static(b"[]");

/// Returns the part of `content` that answers `query`; `None` if the content does not determine the answer.
pub(crate) fn slice(query: Query, content: &Content) -> Option<Bytes> {
    match (content, query.part) {
        (Content::Block(block), Part::Block) => Some(block.full()),
        (Content::Block(block), Part::BlockWithHashes) => Some(hashes_only(block)),
        (Content::Block(block), Part::Transaction) => transaction(block, query.index?),
        (Content::Block(block), Part::TransactionCount) if block.is_proved() => Some(quantity(block.len())),
        // A proved block proves its number of uncles only if that number is zero.
        (Content::Block(block), Part::UncleCount) if block.is_proved() && block.header().uncles == 0 => {
            Some(quantity(0))
        }
        (Content::BlockWithHashes(with_hashes), Part::BlockWithHashes) => Some(with_hashes.bytes()),
        (Content::Receipts(receipts), Part::Receipts) => Some(receipts.all()),
        (Content::Transaction(single), _) => Some(single.bytes()),
        (Content::Receipt(single), _) => Some(single.bytes()),
        _ => None,
    }
}

/// Returns the transaction at `index`. If there is none, returns `null` only for a proved block, because an unproved
/// block may lack transactions.
fn transaction(block: &Verified<Block>, index: TxPosition) -> Option<Bytes> {
    block.transaction(index).or_else(|| block.is_proved().then_some(NULL))
}

/// Returns a count as a JSON-RPC quantity.
pub(crate) fn quantity(count: usize) -> Bytes {
    Bytes::from(format!("\"{count:#x}\""))
}

/// Returns a block with its transactions reduced to their hashes.
pub(crate) fn hashes_only(block: &Block) -> Bytes {
    let pieces = block.hashes_only();
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.put(piece);
    }
    whole.freeze()
}

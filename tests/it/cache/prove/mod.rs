//! What is true is proved, and nothing else.

mod lies;
mod node;
mod other_chains;
mod overload;
mod truth;
mod verdicts;

use bytes::Bytes;
use holdfast::{
    eth::{At, Block, BlockWithHashes, Receipts, SingleTransaction, Tag, TxPosition},
    verify::{self, Failure, Verified, prove},
};

/// A block with whole transactions, all checks passed.
fn block(bytes: &[u8]) -> Result<Verified<Block>, Failure> {
    prove::block(verify::block(bytes, At::Tag(Tag::Latest))?, None)
}

/// A block with the hashes of its transactions, all checks passed.
fn block_with_hashes(bytes: &[u8]) -> Result<Verified<BlockWithHashes>, Failure> {
    prove::block_with_hashes(verify::block_with_hashes(bytes, At::Tag(Tag::Latest))?)
}

/// The receipts of a block, all checks passed.
fn receipts(bytes: &[u8], of: &Verified<Block>) -> Result<Verified<Receipts>, Failure> {
    prove::receipts(verify::receipts(bytes, of.hash(), of.header().number, Some(of))?, of)
}

/// A transaction of a block, alone, all checks passed.
fn single_transaction(of: &Block, index: usize) -> Result<Verified<SingleTransaction>, Failure> {
    let position = TxPosition(index as u64);
    let (bytes, hash) = (of.transaction(position).unwrap(), of.transaction_hash(position).unwrap());
    prove::single_transaction(verify::single_transaction(&bytes, hash)?, None)
}

/// The block cut down to the hashes of its transactions.
fn cut(block: &Block) -> Bytes {
    block.hashes_only().concat().into()
}

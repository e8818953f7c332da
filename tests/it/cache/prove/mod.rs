//! Proofs: true answers pass, and all other answers fail.

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

/// Reads a block with whole transactions and proves it.
fn block(bytes: &[u8]) -> Result<Verified<Block>, Failure> {
    prove::block(verify::block(bytes, At::Tag(Tag::Latest))?, None)
}

/// Reads a block with transaction hashes and proves it.
fn block_with_hashes(bytes: &[u8]) -> Result<Verified<BlockWithHashes>, Failure> {
    prove::block_with_hashes(verify::block_with_hashes(bytes, At::Tag(Tag::Latest))?)
}

/// Reads the receipts of a block and proves them.
fn receipts(bytes: &[u8], of: &Verified<Block>) -> Result<Verified<Receipts>, Failure> {
    prove::receipts(verify::receipts(bytes, of.hash(), of.header().number, Some(of))?, of)
}

/// Cuts a transaction out of a block and proves it by itself.
fn single_transaction(of: &Block, index: usize) -> Result<Verified<SingleTransaction>, Failure> {
    let position = TxPosition(index as u64);
    let (bytes, hash) = (of.transaction(position).unwrap(), of.transaction_hash(position).unwrap());
    prove::single_transaction(verify::single_transaction(&bytes, hash)?, None)
}

/// Cuts the block down to its transaction hashes.
fn cut(block: &Block) -> Bytes {
    block.hashes_only().concat().into()
}

//! Proves content outright: for those who take nothing less, and have to say why something is not taken.

use super::{Anchor, AskedBlock, Failure, Verified, prove, structural};
use crate::eth::{Block, BlockNumber, Receipts};

/// A block of this chain, proved by Ethereum's rules; block 0 must be the chain's own. Takes some 50 µs a transaction.
///
/// # Errors
/// Says what does not come out. On a chain with rules of its own, that is every block.
pub fn prove_block(text: &[u8], asked: AskedBlock, chain: Anchor) -> Result<Verified<Block>, Failure> {
    let block = structural::block(text, asked)?;
    if let (BlockNumber(0), Some(genesis)) = (block.header().number, chain.genesis) {
        structural::hash(genesis, block.hash())?;
    }
    prove::block(block, Some(chain.chain_id))
}

/// The receipts of a block that is proved.
///
/// # Errors
/// Says what does not come out.
pub fn prove_receipts(text: &[u8], block: &Verified<Block>) -> Result<Verified<Receipts>, Failure> {
    let header = block.header();
    let receipts = structural::receipts(text, header.hash, header.number, Some(block))?;
    prove::receipts(receipts, block)
}

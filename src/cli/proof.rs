//! Proves a block that goes from one place to another.

use crate::{
    cache::tier::ChainKey,
    eth::{Block, BlockHash},
    verify::{Anchor, AskedBlock, Verified, prove_block, prove_receipts},
};

/// Proves a block of this chain, and its receipts if they come with it, by Ethereum's rules; the error says what cannot be.
pub(super) fn prove(
    chain: ChainKey,
    asked: AskedBlock,
    block: &[u8],
    receipts: Option<&[u8]>,
) -> Result<Verified<Block>, String> {
    let anchor = Anchor { chain_id: chain.id, genesis: Some(BlockHash(chain.genesis)) };
    let unproved = |what, failure| format!("{what} cannot be proved by Ethereum's rules: {failure}");
    let block = prove_block(block, asked, anchor).map_err(|failure| unproved("it", failure))?;
    if let Some(receipts) = receipts {
        prove_receipts(receipts, &block).map_err(|failure| unproved("its receipts", failure))?;
    }
    Ok(block)
}

//! A finalized block up to which entries may be written.

use super::trust::Generation;
use crate::{
    cache::tier::ChainKey,
    eth::{BlockHash, BlockNumber},
};

/// The finalized block of a chain. Tiers note this block. Later, the upstream confirms a tier by confirming the block
/// noted in it.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    /// The chain.
    pub chain: ChainKey,
    /// Number and hash of the block.
    pub block: (BlockNumber, BlockHash),
    /// The generation of the tiers, read before the check that the block is final.
    pub generation: Generation,
}

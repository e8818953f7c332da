//! Events of the canonical view, for components that keep an index of canonicity themselves.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{
    eth::{BlockHash, BlockNumber},
    upstream::ChainIdentity,
};

/// Receives changes of canonicity.
pub(crate) trait CanonicityListener: fmt::Debug + Send + Sync {
    /// The view adopts this chain. Returns whether answers of another chain may be cached: the listener loaded entries before
    /// any upstream had shown its chain.
    fn chain_adopted(&self, chain: &ChainIdentity) -> bool;

    /// Canonicity is about to be forgotten, or was: an entry that is being loaded must not count.
    fn canonicity_doubted(&self);

    /// The view has forgotten all canonicity, and so must the listener.
    fn canonicity_forgotten(&self);

    /// Entries left the final index, because a later answer contradicts them.
    fn entries_contradicted(&self, entries: &[(BlockNumber, BlockHash)]);

    /// Blocks entered the final index.
    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]);

    /// FinalityTracker is about to advance to this block, unless the answer does not `count`. Resolves to whether the answer is still
    /// to be trusted: after an alarm the finalized block must be fetched again.
    fn finality_advances(&self, block: (BlockNumber, BlockHash), counts: bool) -> BoxFuture<'_, bool>;

    /// Returns a number that changes with each doubt.
    fn epoch(&self) -> u64;

    /// FinalityTracker advanced from `previous` to this block. The listener ignores it after a doubt that is younger than `epoch`.
    fn finality_advanced(&self, previous: Option<BlockNumber>, block: (BlockNumber, BlockHash), epoch: u64);
}

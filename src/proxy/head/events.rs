//! Events of the canonical view, for components with their own index of canonical blocks.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{
    eth::{BlockHash, BlockNumber},
    upstream::ChainIdentity,
};

/// Receives changes of canonicity.
pub(crate) trait CanonicityListener: fmt::Debug + Send + Sync {
    /// Called when the view adopts this chain. Returns whether the cache may hold answers of another chain, because
    /// the listener loaded entries before any upstream had shown its chain.
    fn chain_adopted(&self, chain: &ChainIdentity) -> bool;

    /// Called before and after a reset of canonicity: the listener must ignore entries that it is loading.
    fn canonicity_doubted(&self);

    /// Called after the view has forgotten all canonicity; the listener must do the same.
    fn canonicity_forgotten(&self);

    /// Called when entries leave the final index, because a later answer contradicts them.
    fn entries_contradicted(&self, entries: &[(BlockNumber, BlockHash)]);

    /// Called when blocks enter the final index.
    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]);

    /// Called before finality advances to this block, or, if `counts` is false, when an answer that does not count
    /// names it. Resolves to whether to trust the answer still: after an alarm the caller must fetch the finalized
    /// block again.
    fn finality_advances(&self, block: (BlockNumber, BlockHash), counts: bool) -> BoxFuture<'_, bool>;

    /// Returns a number that changes with each [`canonicity_doubted`](Self::canonicity_doubted).
    fn epoch(&self) -> u64;

    /// Called after finality advanced from `previous` to this block. The listener ignores it if a doubt came after
    /// `epoch`.
    fn finality_advanced(&self, previous: Option<BlockNumber>, block: (BlockNumber, BlockHash), epoch: u64);
}

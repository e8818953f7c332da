//! Events of the canonical view, for components with their own index of canonical blocks.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::{
    eth::{BlockHash, BlockNumber},
    upstream::ChainIdentity,
};

/// Receives changes of the canonical view.
pub(crate) trait CanonicityListener: fmt::Debug + Send + Sync {
    /// Called when the view adopts this chain. Returns whether the cache may hold entries of another chain, because
    /// entries were loaded from tiers before any upstream had shown its chain.
    fn chain_adopted(&self, chain: &ChainIdentity) -> bool;

    /// Called before the view forgets all canonicity because of a write that can reset the chain, or because an
    /// endpoint serves another chain. In the case of a write, called again afterwards. From then on, the listener's
    /// index of canonical blocks counts as unconfirmed.
    fn canonicity_doubted(&self);

    /// Called after the view has forgotten all canonicity because of an alarm, or because an endpoint serves another
    /// chain. The listener must then forget its index.
    fn canonicity_forgotten(&self);

    /// Called when blocks leave the view's index of final blocks, because a later answer contradicts or denies them.
    fn entries_contradicted(&self, entries: &[(BlockNumber, BlockHash)]);

    /// Called when blocks enter the view's index of final blocks. [`finality_advanced`](Self::finality_advanced)
    /// reports a new finalized block and the blocks that become final with it.
    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]);

    /// Called before finality advances to `block`, which an answer named as the finalized block. If `counts` is
    /// `false`, the tracker will ignore that answer, and finality will not advance. Resolves to `false` if the
    /// [`epoch`](Self::epoch) changed meanwhile: the answer may be wrong, so the caller must fetch the finalized block
    /// again.
    fn finality_advances(&self, block: (BlockNumber, BlockHash), counts: bool) -> BoxFuture<'_, bool>;

    /// Returns a number that changes whenever the listener's index becomes unconfirmed, for example in
    /// [`canonicity_doubted`](Self::canonicity_doubted).
    fn epoch(&self) -> u64;

    /// Called after finality advanced from `previous` to this block. The listener ignores the event if its
    /// [`epoch`](Self::epoch) is no longer the given one.
    fn finality_advanced(&self, previous: Option<BlockNumber>, block: (BlockNumber, BlockHash), epoch: u64);
}

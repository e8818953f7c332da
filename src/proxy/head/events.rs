//! Events of the canonical view, for components that store final blocks.

use std::fmt;

use crate::{
    eth::{BlockHash, BlockNumber},
    upstream::ChainIdentity,
};

/// Receives changes of the canonical view.
pub(crate) trait CanonicityListener: fmt::Debug + Send + Sync {
    /// Called when the view adopts this chain. Returns whether the cache may hold entries of another chain, because
    /// entries were loaded from tiers before any upstream had shown its chain.
    fn chain_adopted(&self, chain: &ChainIdentity) -> bool;

    /// Called when blocks leave the view's index of final blocks: a later answer contradicts or denies them.
    fn entries_dropped(&self, entries: &[(BlockNumber, BlockHash)]);

    /// Called when blocks become final.
    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]);
}

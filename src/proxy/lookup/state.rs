//! The stores that lookups read and misses write.

use moka::policy::EvictionPolicy;

use super::{absence::Absences, derive::Derivations, node_support::NodeSupport, uncacheable::Uncacheable};
use crate::{
    cache::Cache,
    eth::{BlockHash, Part, TxHash},
};

/// Number of blocks whose first single transaction or receipt is remembered. A forgotten block starts over, which costs one
/// call.
const BLOCKS: u64 = 1 << 13;

/// Cached entries, and the knowledge about absent, uncacheable and unsupported data.
#[derive(Debug)]
pub(crate) struct CacheState {
    pub(crate) cache: Cache,
    pub(crate) absences: Absences,
    pub(crate) uncacheable: Uncacheable,
    pub(crate) derivations: Derivations,
    pub(crate) node: NodeSupport,
    /// The first transaction (or receipt) of a block that was fetched alone, by its transaction's hash.
    firsts: moka::sync::Cache<(Part, BlockHash), TxHash>,
}

// === impl CacheState ===

impl CacheState {
    pub(crate) fn new(cache: Cache) -> Self {
        Self {
            cache,
            absences: Absences::new(),
            uncacheable: Uncacheable::default(),
            derivations: Derivations::default(),
            node: NodeSupport::default(),
            firsts: moka::sync::Cache::builder()
                .max_capacity(BLOCKS)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }

    /// Records that this transaction, or its receipt, was fetched without its block. Returns whether it is the second of the
    /// block: then calls for the rest are likely to follow, so that fetching the whole block (or all its receipts) costs at
    /// most about twice the calls of the best plan.
    pub(crate) fn is_second(&self, part: Part, block: BlockHash, transaction: TxHash) -> bool {
        self.firsts.get_with((part, block), || transaction) != transaction
    }
}

//! The stores that lookups read and misses write.

use super::{absence::Absences, derive::Derivations, node_support::NodeSupport, uncacheable::Uncacheable};
use crate::cache::Cache;

/// Cached entries, and the knowledge about absent, uncacheable and unsupported data.
#[derive(Debug)]
pub(crate) struct CacheState {
    pub(crate) cache: Cache,
    pub(crate) absences: Absences,
    pub(crate) uncacheable: Uncacheable,
    pub(crate) derivations: Derivations,
    pub(crate) node: NodeSupport,
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
        }
    }
}

//! The negative cache: fetches that are known to be useless.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::Query;

/// Time after which a fetch whose answer could not be stored is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Time for which a failed fetch of known data is not repeated.
const LACKING: Duration = Duration::from_secs(1);

/// Queries that are remembered of each kind.
const CAPACITY: u64 = 1 << 12;

/// Fetches that are known to be useless. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Uncacheable {
    /// Fetches whose answer could not be stored, or that were made once more already.
    queries: moka::sync::Cache<Query, ()>,
    /// Data that the upstream lacks although it exists, and when it was last requested.
    lacking: moka::sync::Cache<Query, Instant>,
}

// === impl Uncacheable ===

impl Default for Uncacheable {
    fn default() -> Self {
        Self {
            queries: moka::sync::Cache::builder().max_capacity(CAPACITY).time_to_live(RETRY_AFTER).build(),
            lacking: moka::sync::Cache::new(CAPACITY),
        }
    }
}

impl Uncacheable {
    /// Notes that the answer to this fetch cannot be stored.
    pub(crate) fn note(&self, query: Query) {
        self.queries.insert(query, ());
    }

    /// Returns whether the answer to this fetch could not be stored a while ago.
    pub(crate) fn contains(&self, query: Query) -> bool {
        self.queries.contains_key(&query)
    }

    /// Lets these fetches be tried again.
    pub(crate) fn forget(&self, queries: &[Query]) {
        for query in queries {
            self.queries.invalidate(query);
        }
    }

    /// Notes that the upstream lacks known data.
    pub(crate) fn note_lacking(&self, query: Query) {
        self.lacking.insert(query, Instant::now());
    }

    /// Returns whether the upstream lacked this data a moment ago.
    pub(crate) fn is_lacking(&self, query: Query) -> bool {
        self.lacking.get(&query).is_some_and(|since| since.elapsed() < LACKING)
    }
}

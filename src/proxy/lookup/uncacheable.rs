//! The negative cache: fetches whose answers cannot be cached.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::Query;

/// Time after which to retry a fetch whose answer could not be stored.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Time before the proxy repeats a fetch for data that exists but that the upstream lacked.
const LACKING: Duration = Duration::from_secs(1);

/// Maximum number of queries in each of the two caches.
const CAPACITY: u64 = 1 << 12;

/// Fetches that are useless for now. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Uncacheable {
    /// Fetches whose answer could not be stored, or that renewed an entry.
    queries: moka::sync::Cache<Query, ()>,
    /// Data that exists but that the upstream lacks, with the time of the last request.
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
    /// Records that the answer to this fetch cannot be stored.
    pub(crate) fn note(&self, query: Query) {
        self.queries.insert(query, ());
    }

    /// Returns whether the answer to this fetch could not be stored lately.
    pub(crate) fn contains(&self, query: Query) -> bool {
        self.queries.contains_key(&query)
    }

    /// Allows these fetches again.
    pub(crate) fn forget(&self, queries: &[Query]) {
        for query in queries {
            self.queries.invalidate(query);
        }
    }

    /// Records that the upstream lacks known data.
    pub(crate) fn note_lacking(&self, query: Query) {
        self.lacking.insert(query, Instant::now());
    }

    /// Returns whether the upstream lacked this data a moment ago.
    pub(crate) fn is_lacking(&self, query: Query) -> bool {
        self.lacking.get(&query).is_some_and(|since| since.elapsed() < LACKING)
    }
}

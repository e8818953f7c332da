//! The negative cache: fetches whose answers cannot be cached.

use std::time::Duration;

use moka::policy::EvictionPolicy;
use tokio::time::Instant;

use crate::{
    eth::{BlockHash, Part, Query},
    verify::Content,
};

/// Time after which to retry a fetch whose answer could not be stored.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Time before the proxy repeats a fetch for data that exists but that the upstream lacked.
const LACKING: Duration = Duration::from_secs(1);

/// Maximum number of queries in each of the two caches of useless fetches.
const CAPACITY: u64 = 1 << 12;

/// Maximum number of entries about content that was shown: a few megabytes. If one is dropped, a client may get the
/// `null` of a node that has pruned the content since.
const SHOWN: u64 = 1 << 14;

/// Fetches that are useless for now. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Uncacheable {
    /// Fetches whose answer could not be stored, or that renewed an entry.
    queries: moka::sync::Cache<Query, ()>,
    /// Data that exists but that the upstream lacks, with the time of the last request, and the block of the data if no
    /// endpoint is likely to have it again.
    lacking: moka::sync::Cache<Query, (Instant, Option<BlockHash>)>,
    /// Blocks of which an endpoint has shown transactions (as a query for the block) or receipts.
    shown: moka::sync::Cache<Query, ()>,
}

// === impl Uncacheable ===

impl Default for Uncacheable {
    fn default() -> Self {
        Self {
            queries: moka::sync::Cache::builder().max_capacity(CAPACITY).time_to_live(RETRY_AFTER).build(),
            lacking: moka::sync::Cache::new(CAPACITY),
            shown: moka::sync::Cache::builder()
                .max_capacity(SHOWN)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
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

    /// Records that the upstream lacks known data. `gone` is the block of the data if that is likely to last.
    pub(crate) fn note_lacking(&self, query: Query, gone: Option<BlockHash>) {
        self.lacking.insert(query, (Instant::now(), gone));
    }

    /// Returns whether the upstream lacked this data a moment ago, and may have it soon.
    pub(crate) fn is_lacking(&self, query: Query) -> bool {
        self.lacking.get(&query).is_some_and(|(since, gone)| gone.is_none() && since.elapsed() < LACKING)
    }

    /// Returns the block of data that the upstream lacked in the last minute and is not likely to have again, for a call
    /// that asks for this part of the block.
    pub(crate) fn gone_from(&self, query: Query, part: Part) -> Option<BlockHash> {
        let (_, gone) = self.lacking.get(&query).filter(|(since, _)| since.elapsed() < RETRY_AFTER)?;
        gone.filter(|block| !self.was_shown(part, *block))
    }

    /// Records that an endpoint has shown this content.
    pub(crate) fn note_shown(&self, content: &Content) {
        // The hashes of transactions are not the transactions.
        if let Some(home) = content.named_home().filter(|_| content.part() != Part::BlockWithHashes) {
            self.shown.insert(Query::new(content.part().whole(), home.block), ());
        }
    }

    /// Returns whether an endpoint has shown the block itself, one of its transactions or one of its receipts since the
    /// start; `part` says which. A known block counts as shown. This is all that the proxy knows: logs, forwarded answers
    /// and content that failed a check do not count, and the proxy forgets the content that was shown first.
    pub(crate) fn was_shown(&self, part: Part, block: BlockHash) -> bool {
        let is_part = matches!(part, Part::Transaction | Part::Receipt | Part::Receipts);
        !is_part || self.shown.contains_key(&Query::new(part.whole(), block))
    }
}

//! The result of a lookup: a hit, or the plan for a miss.

use bytes::Bytes;

use crate::{
    cache::Whole,
    eth::{BlockNumber, Part, Query, Tag},
    proxy::call::{outcome::Source, packet::PacketContext},
};

/// Size below which compression gains nothing: such a text fits into about one network packet anyway.
pub(crate) const WORTHWHILE: usize = 1024;

/// A hit, or the next step of a miss.
#[derive(Clone, Debug)]
pub(crate) enum LookupPlan {
    /// Answer with this cached entry.
    Hit(CachedAnswer),
    /// Refresh this tag: with a fresh view the cache can answer.
    Refresh(Tag),
    /// Resolve the call's tag to a block.
    ResolveTag,
    /// Fetch a first head: the view is empty.
    FetchHead,
    /// Fetch this content.
    Fetch(Query),
    /// Fetch the whole that contains the answer, because more of it is likely to be read. If that fails, fetch the
    /// second query.
    Prefetch(Query, Query),
    /// Fetch the block at the number of a cached entry, to see whether the entry is canonical. If that fails, fetch
    /// the second query.
    Confirm(Query, Query),
    /// Fetch an unproved entry again, because it has become final since. If that fails, answer with this entry.
    Renew(Query, CachedAnswer),
    /// Forward the call: no cached entry can answer it.
    Forward,
}

/// An answer sliced out of a cached entry.
#[derive(Clone, Debug)]
pub(crate) struct CachedAnswer {
    pub(crate) bytes: Bytes,
    pub(crate) source: Source,
    /// The text whose compressed form serves clients that accept gzip.
    pub(crate) whole: Option<Whole>,
    /// Query to fetch the entry again, if that is due.
    pub(super) renew: Option<Query>,
}

// === impl CachedAnswer ===

impl CachedAnswer {
    /// Returns an answer out of a cached entry of this part.
    pub(super) fn cached(part: Part, bytes: Bytes, renew: Option<Query>) -> Self {
        Self { bytes, source: Source::Cached(part), whole: None, renew }
    }

    /// Returns a block number as an answer.
    pub(crate) fn of_number(number: BlockNumber) -> Self {
        Self::of_view(format!("\"{number}\"").into())
    }

    pub(super) fn of_view(bytes: Bytes) -> Self {
        Self { bytes, source: Source::View, whole: None, renew: None }
    }

    /// Adds the text to compress, if the client accepts gzip and the answer is long enough.
    pub(super) fn of_whole(self, packet: &PacketContext, whole: impl FnOnce() -> Option<Whole>) -> Self {
        if !packet.caller().gzip || self.bytes.len() < WORTHWHILE {
            return self;
        }
        Self { whole: whole(), ..self }
    }

    /// Returns the plan for this answer: a hit, or a renewal if one is due.
    pub(super) fn into_plan(self) -> LookupPlan {
        match self.renew {
            Some(fetch) => LookupPlan::Renew(fetch, self),
            None => LookupPlan::Hit(self),
        }
    }
}

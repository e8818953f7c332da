//! The result of a lookup: a hit, or the plan for a miss.

use bytes::Bytes;

use crate::{
    cache::Whole,
    eth::{BlockNumber, Part, Query, Tag},
    proxy::call::{outcome::Source, packet::PacketContext},
};

/// Below this a text fits into one packet of the network or little more, deflated or not.
const WORTHWHILE: usize = 1024;

/// A hit, or what a miss needs.
#[derive(Clone, Debug)]
pub(crate) enum LookupPlan {
    /// The answer.
    Hit(CachedAnswer),
    /// A fresh view: with it the cache could answer.
    Refresh(Tag),
    /// The block that the call's tag means.
    ResolveTag,
    /// A first head: nothing is known of the chain yet.
    FetchHead,
    /// This content.
    Fetch(Query),
    /// The whole that the answer is part of, since more of it is likely to be read. If it does not come, the second query.
    Prefetch(Query, Query),
    /// The block at the number of a cached entry that nothing proves to be canonical. If it does not come, the second query.
    Confirm(Query, Query),
    /// The entry once more: it is unproved, and has become final since. If it does not come, this answer.
    Renew(Query, CachedAnswer),
    /// The node's answer: no cached entry could serve.
    Forward,
}

/// An answer, sliced out of a cached entry.
#[derive(Clone, Debug)]
pub(crate) struct CachedAnswer {
    pub(crate) bytes: Bytes,
    pub(crate) source: Source,
    /// The text whose deflated form serves a client that accepts gzip.
    pub(crate) whole: Option<Whole>,
    /// The query that fetches the entry once more, if that is due.
    pub(super) renew: Option<Query>,
}

// === impl CachedAnswer ===

impl CachedAnswer {
    /// An answer out of the cached entry with this part.
    pub(super) fn cached(part: Part, bytes: Bytes, renew: Option<Query>) -> Self {
        Self { bytes, source: Source::Cached(part), whole: None, renew }
    }

    /// A height.
    pub(crate) fn of_number(number: BlockNumber) -> Self {
        Self::of_view(format!("\"{number}\"").into())
    }

    pub(super) fn of_view(bytes: Bytes) -> Self {
        Self { bytes, source: Source::View, whole: None, renew: None }
    }

    /// The same, for whoever asks in `packet`: a whole text, unless it is too short to gain anything.
    pub(super) fn of_whole(self, packet: &PacketContext, whole: impl FnOnce() -> Option<Whole>) -> Self {
        if !packet.caller().gzip || self.bytes.len() < WORTHWHILE {
            return self;
        }
        Self { whole: whole(), ..self }
    }

    /// Returns this answer as a hit, or as content to be renewed.
    pub(super) fn into_plan(self) -> LookupPlan {
        match self.renew {
            Some(fetch) => LookupPlan::Renew(fetch, self),
            None => LookupPlan::Hit(self),
        }
    }
}

//! The result of a lookup: a hit, or the next step of a miss.

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
    /// Refresh the block of this tag: the view does not know it, or is stale.
    Refresh(Tag),
    /// Fetch the content of a known block by its hash, the block at an unknown number, or a transaction or receipt at an
    /// unknown place. If that fails, answer with this entry, which would better be fetched again.
    Fetch(Query, Option<Box<CachedAnswer>>),
    /// Forward the call: no cached entry can answer it.
    Forward,
}

/// An answer sliced out of a cached entry; or an answer of the view, such as the head's number.
#[derive(Clone, Debug)]
pub(crate) struct CachedAnswer {
    pub(crate) bytes: Bytes,
    pub(crate) source: Source,
    /// The text whose compressed form serves clients that accept gzip.
    pub(crate) whole: Option<Whole>,
    /// Query to fetch the entry again, if that is due. Boxed, because it rarely is, and every hit moves this answer.
    pub(crate) renew: Option<Box<Query>>,
}

// === impl LookupPlan ===

impl LookupPlan {
    pub(super) fn fetch(query: Query) -> Self {
        Self::Fetch(query, None)
    }

    /// Returns the answer of a hit, or the entry to answer with if it cannot be fetched again.
    pub(crate) fn answer(self) -> Option<CachedAnswer> {
        match self {
            Self::Hit(answer) => Some(answer),
            Self::Fetch(_, answer) => answer.map(|answer| *answer),
            Self::Refresh(_) | Self::Forward => None,
        }
    }
}

impl From<CachedAnswer> for LookupPlan {
    fn from(answer: CachedAnswer) -> Self {
        match &answer.renew {
            Some(fetch) => Self::Fetch(**fetch, Some(Box::new(answer))),
            None => Self::Hit(answer),
        }
    }
}

// === impl CachedAnswer ===

impl CachedAnswer {
    /// Returns an answer out of a cached entry of this part.
    pub(super) fn cached(part: Part, bytes: Bytes, renew: Option<Query>) -> Self {
        Self { bytes, source: Source::Cached(part), whole: None, renew: renew.map(Box::new) }
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
}

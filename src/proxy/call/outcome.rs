//! The answer to a call, and where it came from.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    cache::{Deflated, tier::TierKind},
    eth::{Part, Query},
    jsonrpc::Answer,
};

/// An answer and where it came from.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Goes to the client.
    pub answer: Answer,
    /// Goes to the log, the counters and the `cache-status` header.
    pub outcome: Outcome,
    /// The same answer deflated, for a caller who takes gzip, where there is such a form.
    pub deflated: Option<Arc<Deflated>>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// From memory.
    Hit(Source),
    /// From memory, cut out of something larger than what was asked for.
    Derived(Source),
    /// From a tier behind memory.
    Restored(TierKind),
    /// The upstream was asked, and what it said is kept.
    Stored,
    /// The upstream was asked, and what it said is not kept.
    Miss,
    /// Somebody else had asked already.
    Joined,
    /// Not for the cache: forwarded as it is.
    Bypass,
}

/// What in memory gave the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A cached entry with this part of a block.
    Cached(Part),
    /// What is known of the chain: a height, or that there is nothing.
    View,
    /// Who the upstream is.
    Identity,
}

// === impl Answered ===

impl Answered {
    /// An answer in its plain form.
    pub fn new(answer: Answer, outcome: Outcome) -> Self {
        Self { answer, outcome, deflated: None }
    }

    /// A result out of memory.
    pub(crate) fn hit(result: Bytes, source: Source) -> Self {
        Self::new(Answer::Result(result), Outcome::Hit(source))
    }
}

// === impl Outcome ===

impl Outcome {
    /// Returns the outcome of a query that this source answered.
    pub(crate) fn of_hit(query: Query, source: Source) -> Self {
        match source {
            Source::Cached(part) if part != query.part => Self::Derived(source),
            source => Self::Hit(source),
        }
    }

    /// What clients are told; whether it had to be cut is of no use to them.
    pub const NAMES: [&str; 5] = ["hit", "stored", "miss", "joined", "bypass"];

    /// Its place among the names.
    pub fn index(self) -> usize {
        match self {
            Self::Hit(_) | Self::Derived(_) | Self::Restored(_) => 0,
            Self::Stored => 1,
            Self::Miss => 2,
            Self::Joined => 3,
            Self::Bypass => 4,
        }
    }

    /// The `cache-status` (RFC 9211) of a response that holds this answer alone.
    pub fn cache_status(self) -> &'static str {
        match self {
            Self::Hit(source) | Self::Derived(source) => source.cache_status(),
            Self::Restored(TierKind::Disk) => "holdfast; hit; detail=disk",
            Self::Restored(TierKind::Redis) => "holdfast; hit; detail=redis",
            Self::Stored => "holdfast; fwd=miss; stored",
            Self::Miss => "holdfast; fwd=miss",
            Self::Joined => "holdfast; fwd=miss; collapsed",
            Self::Bypass => "holdfast; fwd=bypass",
        }
    }
}

// === impl Source ===

impl Source {
    fn cache_status(self) -> &'static str {
        match self {
            Self::Cached(Part::Block) => "holdfast; hit; detail=block",
            Self::Cached(Part::BlockWithHashes) => "holdfast; hit; detail=block_hashes",
            Self::Cached(Part::Receipts) => "holdfast; hit; detail=receipts",
            Self::Cached(Part::Transaction) => "holdfast; hit; detail=transaction",
            Self::Cached(Part::Receipt) => "holdfast; hit; detail=receipt",
            // No entry is a number.
            Self::View | Self::Cached(Part::TransactionCount | Part::UncleCount | Part::Number) => {
                "holdfast; hit; detail=view"
            }
            Self::Identity => "holdfast; hit; detail=identity",
        }
    }
}

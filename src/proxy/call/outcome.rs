//! The answer to a call, and its source.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    cache::{Deflated, tier::TierKind},
    eth::{Part, Query},
    jsonrpc::Answer,
};

/// An answer and its source.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Answer for the client.
    pub answer: Answer,
    /// Source of the answer, for the log, the metrics and the `cache-status` header.
    pub outcome: Outcome,
    /// The answer in compressed form, if there is one and the client accepts gzip.
    pub deflated: Option<Arc<Deflated>>,
}

/// Source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Cached entry, served whole.
    Hit(Source),
    /// Sliced out of a larger cached entry.
    Derived(Source),
    /// Loaded from a cache tier.
    Restored(TierKind),
    /// From memory or a tier, but the call waited for a refresh of the view.
    Stale {
        /// Whether another call had started the refresh.
        joined: bool,
        /// Source and proof, if the answer is that of a call for logs.
        logs: Option<(LogSource, LogProof)>,
    },
    /// Fetched from the upstream and cached.
    Stored,
    /// Fetched from the upstream and not cached.
    Miss,
    /// Joined a fetch that another call had started.
    Joined,
    /// The call is not cacheable; the proxy forwarded it unchanged.
    Bypass,
    /// Logs: the most expensive source of a block's logs, and the weakest proof that all of them are there.
    Logs(LogSource, LogProof),
}

/// Source of the logs of a block, from the cheapest to the most expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LogSource {
    /// The header of the block shows that no log matches.
    Bloom,
    /// Cached receipts.
    Receipts,
    /// Receipts that were fetched for this call.
    Fetched,
    /// The upstream's own answer.
    Forwarded,
}

/// Proof that the logs of a block are true and complete, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LogProof {
    /// None: the upstream searched.
    None,
    /// Holdfast searched receipts that passed structural checks.
    Structural,
    /// Holdfast searched receipts, or a bloom, under a proved block hash.
    Proved,
}

/// Data in memory that a hit was answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A cached entry with this part of a block.
    Cached(Part),
    /// The canonical view, which answers with a block number or `null`.
    View,
    /// Chain identity of the upstream.
    Identity,
}

// === impl Answered ===

impl Answered {
    /// Returns an answer without a compressed form.
    pub fn new(answer: Answer, outcome: Outcome) -> Self {
        Self { answer, outcome, deflated: None }
    }

    /// Returns an answer from memory.
    pub(crate) fn hit(result: Bytes, source: Source) -> Self {
        Self::new(Answer::Result(result), Outcome::Hit(source))
    }
}

// === impl Outcome ===

impl Outcome {
    /// Returns the outcome of a query answered from `source`.
    pub(crate) fn of_hit(query: Query, source: Source) -> Self {
        match source {
            Source::Cached(part) if part != query.part => Self::Derived(source),
            source => Self::Hit(source),
        }
    }

    /// Returns the outcome of an answer that waited for a fetch, which another call had started if `joined`. `cached` says
    /// whether the cache has the fetched content now.
    pub(crate) fn of_fetch(joined: bool, cached: bool) -> Self {
        match (joined, cached) {
            (true, _) => Self::Joined,
            (false, true) => Self::Stored,
            (false, false) => Self::Miss,
        }
    }

    /// Returns the outcome of an answer that waited for a refresh of the view, which another call had started if
    /// `joined`.
    pub(crate) fn after_refresh(self, joined: bool) -> Self {
        match self {
            Self::Hit(_) | Self::Derived(_) | Self::Restored(_) => Self::Stale { joined, logs: None },
            Self::Logs(source @ (LogSource::Bloom | LogSource::Receipts), proof) => {
                Self::Stale { joined, logs: Some((source, proof)) }
            }
            outcome => outcome,
        }
    }

    /// Outcome names that clients see. Slices and entries from tiers are hits like any other.
    pub const NAMES: [&str; 6] = ["hit", "stored", "miss", "joined", "bypass", "stale"];

    /// Returns the index of this outcome in [`NAMES`](Self::NAMES).
    pub fn index(self) -> usize {
        match self {
            Self::Hit(_) | Self::Derived(_) | Self::Restored(_) => 0,
            Self::Logs(LogSource::Bloom | LogSource::Receipts, _) => 0,
            Self::Stored | Self::Logs(LogSource::Fetched, _) => 1,
            Self::Miss | Self::Logs(LogSource::Forwarded, _) => 2,
            Self::Joined | Self::Stale { joined: true, .. } => 3,
            Self::Bypass => 4,
            Self::Stale { joined: false, .. } => 5,
        }
    }

    /// Returns whether the answer came from memory.
    pub(crate) fn is_from_memory(self) -> bool {
        matches!(
            self,
            Self::Hit(_) | Self::Derived(_) | Self::Logs(LogSource::Bloom | LogSource::Receipts, _)
        )
    }

    /// Returns the `cache-status` header (RFC 9211) of a response with only this answer.
    pub fn cache_status(self) -> &'static str {
        match self {
            Self::Hit(source) | Self::Derived(source) => source.cache_status(),
            Self::Restored(TierKind::Disk) => "holdfast; hit; detail=disk",
            Self::Restored(TierKind::Redis) => "holdfast; hit; detail=redis",
            Self::Stale { joined, logs } => match (joined, logs.map(|(_, proof)| proof)) {
                (false, None) => "holdfast; fwd=stale",
                (true, None) => "holdfast; fwd=stale; collapsed",
                (false, Some(LogProof::Proved)) => "holdfast; fwd=stale; proof=proved",
                (true, Some(LogProof::Proved)) => "holdfast; fwd=stale; collapsed; proof=proved",
                (false, Some(_)) => "holdfast; fwd=stale; proof=structural",
                (true, Some(_)) => "holdfast; fwd=stale; collapsed; proof=structural",
            },
            Self::Stored => "holdfast; fwd=miss; stored",
            Self::Miss => "holdfast; fwd=miss",
            Self::Joined => "holdfast; fwd=miss; collapsed",
            Self::Bypass => "holdfast; fwd=bypass",
            Self::Logs(source, proof) => match (source, proof) {
                (LogSource::Bloom, _) => "holdfast; hit; detail=bloom; proof=proved",
                (LogSource::Receipts, LogProof::Proved) => "holdfast; hit; detail=receipts; proof=proved",
                (LogSource::Receipts, _) => "holdfast; hit; detail=receipts; proof=structural",
                (LogSource::Fetched, LogProof::Proved) => {
                    "holdfast; fwd=miss; stored; detail=receipts; proof=proved"
                }
                (LogSource::Fetched, _) => "holdfast; fwd=miss; stored; detail=receipts; proof=structural",
                (LogSource::Forwarded, _) => "holdfast; fwd=miss; detail=logs; proof=none",
            },
        }
    }
}

// === impl LogSource ===

impl LogSource {
    /// Returns all sources, each with the proofs that its logs can have.
    pub(crate) fn pairs() -> impl Iterator<Item = (Self, LogProof)> {
        [
            (Self::Bloom, LogProof::Proved),
            (Self::Receipts, LogProof::Proved),
            (Self::Receipts, LogProof::Structural),
            (Self::Fetched, LogProof::Proved),
            (Self::Fetched, LogProof::Structural),
            (Self::Forwarded, LogProof::None),
        ]
        .into_iter()
    }

    /// Returns the source's name in metrics and the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl LogProof ===

impl LogProof {
    /// Returns the proof's name in metrics and the status.
    pub fn as_str(self) -> &'static str {
        self.into()
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
            // No cached entry consists of one of these parts.
            Self::View | Self::Cached(Part::TransactionCount | Part::UncleCount | Part::Number) => {
                "holdfast; hit; detail=view"
            }
            Self::Identity => "holdfast; hit; detail=identity",
        }
    }
}

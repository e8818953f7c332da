//! The canonical blocks of a range.

use super::tools::LogTools;
use crate::{
    chain::{Link, Lookup, Stamp},
    eth::{BlockHash, BlockNumber, Tag},
    proxy::{call::packet::PacketContext, error::CallError},
};

/// Blocks of a range, as the view knows them.
#[derive(Debug)]
pub(super) struct CanonicalRange {
    pub(super) first: BlockNumber,
    pub(super) blocks: Vec<RangeBlock>,
    /// Time at which the view was read.
    pub(super) since: Stamp,
}

/// The block at a number of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeBlock {
    /// The canonical hash, if the view knows it.
    pub(super) hash: Option<BlockHash>,
    /// The parent, if only an answer for this number shows the block there: its neighbours may be of another branch.
    pub(super) asked_parent: Option<BlockHash>,
}

/// A bound of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) number: BlockNumber,
    /// The tag that named the bound, and the block that it stands for.
    pub(super) tagged: Option<(Tag, Link)>,
}

/// Reading of a range from the view.
enum Read {
    Blocks(Vec<RangeBlock>),
    /// The head must be refreshed.
    Stale,
    /// The node must answer.
    Unknown,
}

// === impl Bound ===

impl Bound {
    /// Returns a bound that a call names by its number.
    pub(super) fn of_number(number: BlockNumber) -> Self {
        Self { number, tagged: None }
    }
}

// === impl CanonicalRange ===

impl CanonicalRange {
    /// Reads the canonical blocks of a range; `None` if the node must answer. Refreshes the head if necessary.
    ///
    /// # Errors
    /// If a refresh fails.
    pub(super) async fn read(
        tools: &LogTools,
        packet: &PacketContext,
        first: BlockNumber,
        last: BlockNumber,
    ) -> Result<Option<Self>, CallError> {
        let view = tools.view();
        let arrival = packet.arrival(view.clock());
        for is_last in [false, true] {
            let since = view.clock().now();
            match Read::new(tools, first, last, arrival, is_last) {
                Read::Blocks(blocks) => return Ok(Some(Self { first, blocks, since })),
                Read::Unknown => return Ok(None),
                Read::Stale => tools.refresh(arrival).await?,
            }
        }
        Ok(None)
    }

    /// Puts the block of a tag into the range. Returns false if another block is canonical there.
    pub(super) fn has(&mut self, bound: Bound) -> bool {
        let Some((_, link)) = bound.tagged else { return true };
        let at = bound.number.0.checked_sub(self.first.0).and_then(|at| usize::try_from(at).ok());
        let block = at.and_then(|at| self.blocks.get_mut(at));
        block.is_none_or(|block| *block.hash.get_or_insert(link.hash) == link.hash)
    }
}

// === impl Read ===

impl Read {
    /// Reads a range. If the head was refreshed just now and is still not fresh, the blocks that depend on it are
    /// unknown.
    fn new(
        tools: &LogTools,
        first: BlockNumber,
        last: BlockNumber,
        arrival: Stamp,
        was_refreshed: bool,
    ) -> Self {
        let tracker = tools.view().tracker();
        if tracker.is_suspended() {
            return Self::Unknown;
        }
        if tracker.head().is_none() {
            return if was_refreshed { Self::Unknown } else { Self::Stale };
        }
        let mut blocks = Vec::with_capacity(usize::try_from(last.0 - first.0).map_or(0, |count| count + 1));
        for number in first.0..=last.0 {
            let known = tracker.lookup(BlockNumber(number), arrival);
            // While the upstream lags, a lookup above the tracked head returns `Unknown`, not `Above`.
            let is_above = tracker.is_above_head(BlockNumber(number));
            let hash = match known {
                Lookup::Final(hash) | Lookup::Tracked { hash, fresh: true } | Lookup::Asked(hash) => {
                    Some(hash)
                }
                Lookup::Tracked { fresh: false, .. } | Lookup::Above { fresh: false } if !was_refreshed => {
                    return Self::Stale;
                }
                // Only a head that the view knows can be proved; the client may have seen it elsewhere.
                Lookup::Above { .. } | Lookup::Unknown
                    if is_above && !was_refreshed && tools.must_prove() =>
                {
                    return Self::Stale;
                }
                // Nodes differ about ranges that end above the head.
                Lookup::Above { .. } => return Self::Unknown,
                Lookup::Unknown if is_above => return Self::Unknown,
                Lookup::Tracked { fresh: false, .. } | Lookup::Unknown => None,
            };
            let asked = match known {
                Lookup::Asked(_) => tracker.hint_at(BlockNumber(number)),
                _ => None,
            };
            blocks.push(RangeBlock { hash, asked_parent: asked.map(|link| link.parent) });
        }
        Self::Blocks(blocks)
    }
}

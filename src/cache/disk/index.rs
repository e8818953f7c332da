//! In-memory index of a chain's segments. It takes about 110 bytes for each part of a block, and ten bits for each
//! transaction in a sealed segment.

use std::collections::{BTreeMap, HashMap};

use super::{
    record::{Head, Kind},
    segment::Segment,
};
use crate::{
    cache::tier::Part,
    eth::{BlockHash, BlockNumber},
};

/// Index of a chain's records.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The segments by id, oldest first. Only the last segment may accept more records.
    segments: BTreeMap<u32, Segment>,
    blocks: HashMap<BlockHash, [Option<At>; Part::ALL.len()]>,
    /// The newest header at each number.
    numbers: HashMap<BlockNumber, At>,
}

/// Position of a record: the id of the segment, and the index of the record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) segment: u32,
    pub(super) nth: u32,
}

// === impl Index ===

impl Index {
    /// Adds a segment and indexes its records. The segment must be newer than all others.
    pub(super) fn push(&mut self, segment: Segment) {
        let (id, heads) = (segment.id, segment.heads.clone());
        self.segments.insert(id, segment);
        for (nth, head) in (0..).zip(&heads) {
            self.note(At { segment: id, nth }, head);
        }
    }

    /// Indexes a record that was added to its segment.
    pub(super) fn note(&mut self, at: At, head: &Head) {
        match head.kind {
            Kind::Kept(part) => {
                self.blocks.entry(head.hash).or_default()[part as usize] = Some(at);
                if part == Part::Header {
                    self.numbers.insert(head.number, at);
                }
            }
            Kind::Removed(part) => {
                self.forget(part, head.hash);
            }
        }
    }

    /// Removes a part from the index; with the header, also the number. Returns the number, if the index had the part.
    pub(super) fn forget(&mut self, part: Part, hash: BlockHash) -> Option<BlockNumber> {
        let parts = self.blocks.get_mut(&hash)?;
        let at = parts[part as usize].take()?;
        if parts.iter().all(Option::is_none) {
            self.blocks.remove(&hash);
        }
        let number = self.head(at)?.number;
        if self.numbers.get(&number) == Some(&at) {
            self.numbers.remove(&number);
        }
        Some(number)
    }

    /// Removes a segment. Returns the number of blocks of which no part is left.
    pub(super) fn drop_segment(&mut self, id: u32) -> u64 {
        let Some(segment) = self.segments.remove(&id) else { return 0 };
        let mut gone = 0;
        for (nth, head) in (0..).zip(&segment.heads) {
            let at = At { segment: id, nth };
            if self.numbers.get(&head.number) == Some(&at) {
                self.numbers.remove(&head.number);
            }
            // Keep a part that a newer segment has stored again.
            let Some(parts) = self.blocks.get_mut(&head.hash) else { continue };
            for part in parts.iter_mut().filter(|part| **part == Some(at)) {
                *part = None;
            }
            if parts.iter().all(Option::is_none) {
                self.blocks.remove(&head.hash);
                gone += 1;
            }
        }
        gone
    }

    /// Returns the position and the head of the record that stores a part.
    pub(super) fn find(&self, part: Part, hash: BlockHash) -> Option<(At, Head)> {
        let at = self.blocks.get(&hash)?[part as usize]?;
        Some((at, self.head(at)?))
    }

    /// Returns whether the index has a part, so that it need not be written again. A header must be the hint for its
    /// number, too.
    pub(super) fn has(&self, part: Part, hash: BlockHash) -> bool {
        let is_hint = |at, head: Head| part != Part::Header || self.numbers.get(&head.number) == Some(&at);
        self.find(part, hash).is_some_and(|(at, head)| is_hint(at, head))
    }

    /// Returns the hash of the newest header at this number.
    pub(super) fn hint(&self, number: BlockNumber) -> Option<BlockHash> {
        self.head(*self.numbers.get(&number)?).map(|head| head.hash)
    }

    /// Returns the head of the record at this position, unless its block was removed or written again later.
    pub(super) fn block_at(&self, at: At) -> Option<Head> {
        let head = self.head(at)?;
        self.find(Part::Block, head.hash).filter(|(newest, _)| *newest == at).map(|(_, head)| head)
    }

    /// Returns the segments, newest first.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().rev()
    }

    /// Returns the segment that accepts records.
    pub(super) fn open_segment(&self) -> Option<&Segment> {
        self.segments.values().next_back().filter(|segment| !segment.is_closed())
    }

    pub(super) fn open_segment_mut(&mut self) -> Option<&mut Segment> {
        self.segments.values_mut().next_back().filter(|segment| !segment.is_closed())
    }

    /// Returns the id of the oldest segment, if that segment is closed.
    pub(super) fn oldest_closed(&self) -> Option<u32> {
        self.segments.values().next().filter(|segment| segment.is_closed()).map(|segment| segment.id)
    }

    /// Returns the id of the next segment, above all existing ones.
    pub(super) fn next_segment(&self) -> u32 {
        self.segments.keys().next_back().map_or(0, |last| last.saturating_add(1))
    }

    /// Size on disk in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(Segment::bytes).sum()
    }

    /// Number of blocks with at least one part.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn head(&self, at: At) -> Option<Head> {
        self.segments.get(&at.segment)?.heads.get(at.nth as usize).copied()
    }
}

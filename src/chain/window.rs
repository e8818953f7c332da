//! The newest blocks of one branch, each linked by its parent hash to the next lower block.

use std::collections::BTreeMap;

use crate::eth::{BlockHash, BlockNumber, Header};

/// A block and the hash of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of the block.
    pub number: BlockNumber,
    /// Hash of the block.
    pub hash: BlockHash,
    /// Hash of the parent, whose number may be lower by more than one.
    pub parent: BlockHash,
    /// Timestamp of the block in seconds, if known.
    pub timestamp: Option<u64>,
}

/// Looks up a cached block by its hash.
pub type Find<'a> = &'a dyn Fn(BlockHash) -> Option<Link>;

/// Blocks of one branch without gaps: the parent of each block is the next lower block.
#[derive(Clone, Debug)]
pub(super) struct Window {
    links: BTreeMap<BlockNumber, Link>,
    cap: usize,
}

/// Reason why the tracker refuses an answer about a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contrary {
    /// The tracked branch has another block or no block at this number, or the window moved past the number before the
    /// answer came.
    #[error("another block is tracked at this number")]
    Tracked,
    /// Another block is final at this number.
    #[error("another block is final at this number")]
    Final,
}

// === impl Link ===

impl Link {
    /// Returns whether `child` names this block as its parent.
    pub(super) fn is_parent_of(self, child: Self) -> bool {
        self.number < child.number && self.hash == child.parent
    }
}

impl From<&Header> for Link {
    fn from(header: &Header) -> Self {
        let Header { number, hash, parent, timestamp, .. } = *header;
        Self { number, hash, parent, timestamp }
    }
}

// === impl Window ===

impl Window {
    pub(super) fn new(cap: usize) -> Self {
        Self { links: BTreeMap::new(), cap: cap.max(1) }
    }

    pub(super) fn top(&self) -> Option<Link> {
        self.links.last_key_value().map(|(_, link)| *link)
    }

    pub(super) fn bottom(&self) -> Option<Link> {
        self.links.first_key_value().map(|(_, link)| *link)
    }

    pub(super) fn get(&self, number: BlockNumber) -> Option<Link> {
        self.links.get(&number).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    pub(super) fn clear(&mut self) {
        self.links.clear();
    }

    /// Returns all blocks up to `number`, in ascending order.
    pub(super) fn up_to(&self, number: BlockNumber) -> impl Iterator<Item = Link> {
        self.links.range(..=number).map(|(_, link)| *link)
    }

    /// Returns whether the window contains this block.
    pub(super) fn holds(&self, link: Link) -> bool {
        self.get(link.number).is_some_and(|known| known.hash == link.hash)
    }

    /// Returns whether this branch has no block at a number between two of its blocks.
    pub(super) fn skips(&self, number: BlockNumber) -> bool {
        let (bottom, top) = (self.bottom().map(|link| link.number), self.top().map(|link| link.number));
        bottom < Some(number) && Some(number) < top && self.get(number).is_none()
    }

    /// Returns whether a block with this number and hash cannot be on this branch.
    pub(super) fn excludes(&self, number: BlockNumber, hash: BlockHash) -> bool {
        let Some(bottom) = self.bottom() else { return false };
        match self.get(number) {
            Some(known) => known.hash != hash,
            None if number > bottom.number => self.skips(number),
            // The only block that can be right below the lowest block is its parent. A test double may not know it.
            None => number.0 + 1 == bottom.number.0 && bottom.parent != hash && !bottom.parent.0.is_zero(),
        }
    }

    /// Returns the parent of `link`, if the window contains that parent. On a chain that skips numbers, the parent's
    /// number may be lower by more than one.
    pub(super) fn parent_of(&self, link: Link) -> Option<Link> {
        let mut below = self.links.range(..link.number).rev().map(|(_, below)| *below);
        below.find(|below| below.hash == link.parent)
    }

    /// Drops all blocks above `number`, and returns how many there were.
    pub(super) fn cut_above(&mut self, number: BlockNumber) -> usize {
        let above: Vec<_> = self.links.range(number..).map(|(at, _)| *at).filter(|at| *at > number).collect();
        for at in &above {
            self.links.remove(at);
        }
        above.len()
    }

    /// Adds blocks on top, and drops the lowest blocks if the window is over its capacity.
    pub(super) fn push(&mut self, lineage: &[Link]) {
        self.links.extend(lineage.iter().map(|link| (link.number, *link)));
        while self.links.len() > self.cap {
            self.links.pop_first();
        }
    }

    /// Adds `link` at the bottom if it is the parent of the lowest block and the window has room. Returns whether it
    /// was added.
    pub(super) fn push_below(&mut self, link: Link) -> bool {
        let fits = self.links.len() < self.cap
            && self.bottom().is_some_and(|bottom| bottom.parent == link.hash && link.number < bottom.number);
        if fits {
            self.links.insert(link.number, link);
        }
        fits
    }
}

//! The newest blocks of one branch, each linked to the one below it.

use std::collections::BTreeMap;

use crate::eth::{BlockHash, BlockNumber, Header};

/// A block and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The block's height.
    pub number: BlockNumber,
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block before it. Its number need not be one lower.
    pub parent: BlockHash,
    /// The block's timestamp in seconds, where it is known.
    pub timestamp: Option<u64>,
}

/// Finds a block that is cached under a hash.
pub type Find<'a> = &'a dyn Fn(BlockHash) -> Option<Link>;

/// Blocks of one branch without a gap between them: the parent of each is the one below it.
#[derive(Clone, Debug)]
pub(super) struct Window {
    links: BTreeMap<BlockNumber, Link>,
    cap: usize,
}

/// An answer names another block than the one that is known at its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contrary {
    /// The tracked branch has another block there.
    #[error("another block is tracked at this number")]
    Tracked,
    /// Another block is final there, and linked to the finalized block.
    #[error("another block is final at this number")]
    Final,
}

// === impl Link ===

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

    /// All blocks up to `number`, from below.
    pub(super) fn up_to(&self, number: BlockNumber) -> impl Iterator<Item = Link> {
        self.links.range(..=number).map(|(_, link)| *link)
    }

    /// All blocks up to `number`, from above.
    pub(super) fn down_from(&self, number: BlockNumber) -> impl Iterator<Item = Link> {
        self.links.range(..=number).rev().map(|(_, link)| *link)
    }

    /// Does this block stand here?
    pub(super) fn holds(&self, link: Link) -> bool {
        self.get(link.number).is_some_and(|known| known.hash == link.hash)
    }

    /// Can no block with this number and hash be on this branch?
    pub(super) fn excludes(&self, number: BlockNumber, hash: BlockHash) -> bool {
        let (Some(bottom), Some(top)) = (self.bottom(), self.top()) else { return false };
        match self.get(number) {
            Some(known) => known.hash != hash,
            // A number that the branch leaves out.
            None if number > bottom.number => number < top.number,
            // Right below the lowest there is its parent or nothing.
            None => number.0 + 1 == bottom.number.0 && bottom.parent != hash,
        }
    }

    /// The block here that `link` stands on. Mostly it is the next one below its number; where numbers
    /// are left out, it may be any that is lower.
    pub(super) fn parent_of(&self, link: Link) -> Option<Link> {
        let mut below = self.links.range(..link.number).rev().map(|(_, below)| *below);
        below.find(|below| below.hash == link.parent)
    }

    /// Drops all blocks above `number`, and tells how many those were.
    pub(super) fn cut_above(&mut self, number: BlockNumber) -> usize {
        let above: Vec<_> = self.links.range(number..).map(|(at, _)| *at).filter(|at| *at > number).collect();
        for at in &above {
            self.links.remove(at);
        }
        above.len()
    }

    /// Puts a lineage, from its newest block down, on top.
    pub(super) fn push(&mut self, lineage: &[Link]) {
        self.links.extend(lineage.iter().map(|link| (link.number, *link)));
        while self.links.len() > self.cap {
            self.links.pop_first();
        }
    }

    /// Takes a block in at the bottom, if the lowest one names it as its parent and there is room.
    pub(super) fn push_below(&mut self, link: Link) -> bool {
        let fits = self.links.len() < self.cap
            && self.bottom().is_some_and(|bottom| bottom.parent == link.hash && link.number < bottom.number);
        if fits {
            self.links.insert(link.number, link);
        }
        fits
    }
}

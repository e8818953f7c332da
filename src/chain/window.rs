//! The newest blocks of one branch, each linked to the one below it.

use std::collections::BTreeMap;

use crate::eth::{BlockHash, BlockNumber};

/// A block and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The block's height.
    pub number: BlockNumber,
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block before it. Its number need not be one lower.
    pub parent: BlockHash,
}

/// Blocks of one branch without a gap between them: the parent of each is the one below it.
#[derive(Clone, Debug)]
pub(super) struct Window {
    links: BTreeMap<BlockNumber, Link>,
    cap: usize,
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

    /// Does `parent` stand here, as the next block below `number`?
    pub(super) fn parent_below(&self, number: BlockNumber, parent: BlockHash) -> Option<Link> {
        let (_, below) = self.links.range(..number).next_back()?;
        (below.hash == parent).then_some(*below)
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

//! Single numbers that the upstream was asked for, which the window does not reach.

use std::collections::BTreeMap;

use super::{
    Stamp,
    window::{Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// A number that was asked for by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredNumber {
    pub(super) link: Link,
    pub(super) sent: Stamp,
    /// It was at or below the head: so it stays true while heads link, if the upstream is consistent.
    pub(super) below_head: bool,
}

/// Numbers asked for by themselves that are remembered; enough for what clients ask within a second or two.
const CAP: usize = 4096;

/// What stands at each number that was asked for by itself: the newest answer alone.
#[derive(Clone, Debug, Default)]
pub(super) struct AnsweredNumbers(BTreeMap<BlockNumber, AnsweredNumber>);

// === impl AnsweredNumbers ===

impl AnsweredNumbers {
    pub(super) fn get(&self, number: BlockNumber) -> Option<&AnsweredNumber> {
        self.0.get(&number)
    }

    /// Where a hash was said to stand; looks at all entries.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.0.iter().find(|(_, asked)| asked.link.hash == hash).map(|(number, _)| *number)
    }

    /// Notes an answer, unless a newer one is there.
    pub(super) fn insert(&mut self, asked: AnsweredNumber) {
        let number = asked.link.number;
        if self.get(number).is_none_or(|known| known.sent.is_before(asked.sent)) {
            self.0.insert(number, asked);
        }
        while self.0.len() > CAP {
            let oldest = self.0.iter().min_by_key(|(_, asked)| asked.sent.order).map(|(number, _)| *number);
            oldest.map(|number| self.0.remove(&number));
        }
    }

    /// Forgets that this block stands there.
    pub(super) fn remove(&mut self, number: BlockNumber, hash: BlockHash) {
        if self.get(number).is_some_and(|asked| asked.link.hash == hash) {
            self.0.remove(&number);
        }
    }

    /// Keeps the numbers of which this holds.
    pub(super) fn retain(&mut self, keep: impl Fn(BlockNumber) -> bool) {
        self.0.retain(|number, _| keep(*number));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Moves what links to the window into it.
    pub(super) fn move_into(&mut self, window: &mut Window) {
        while let Some(bottom) = window.bottom() {
            let Some((_, AnsweredNumber { link, .. })) = self.0.range(..bottom.number).next_back() else {
                break;
            };
            let link = *link;
            if !window.push_below(link) {
                break;
            }
            self.0.remove(&link.number);
        }
        // What the window knows now, it knows better.
        self.retain(|number| window.get(number).is_none());
    }
}

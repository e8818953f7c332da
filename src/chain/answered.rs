//! Answers for single numbers outside the window.

use std::collections::BTreeMap;

use super::{
    Stamp,
    window::{Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// An answer to a request for the block at one number.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredNumber {
    pub(super) link: Link,
    pub(super) sent: Stamp,
    /// Whether the number was at or below the tracked head when the answer arrived. If so, and if the upstream is
    /// consistent, the answer stays valid as long as each new head links to the previous head.
    pub(super) below_head: bool,
    /// Whether a newer answer for a neighbour is of another branch. Such an answer serves no call, but still contradicts
    /// the tiers.
    pub(super) is_refuted: bool,
}

/// Maximum number of stored answers: enough for the numbers that clients request within a second or two.
const CAP: usize = 4096;

/// The newest answer for each number.
#[derive(Clone, Debug, Default)]
pub(super) struct AnsweredNumbers(BTreeMap<BlockNumber, AnsweredNumber>);

// === impl AnsweredNumbers ===

impl AnsweredNumbers {
    pub(super) fn get(&self, number: BlockNumber) -> Option<&AnsweredNumber> {
        self.0.get(&number)
    }

    /// Returns the number whose answer names `hash`. Scans all entries.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.0.iter().find(|(_, asked)| asked.link.hash == hash).map(|(number, _)| *number)
    }

    /// Stores an answer, unless the stored answer for the same number was requested later. If the answers for two
    /// neighbours are not of one chain, only the newer one serves.
    pub(super) fn insert(&mut self, mut asked: AnsweredNumber) {
        let number = asked.link.number;
        if self.get(number).is_some_and(|known| !known.sent.is_before(asked.sent)) {
            return;
        }
        let neighbours = [number.0.checked_sub(1), number.0.checked_add(1)].into_iter().flatten();
        for neighbour in neighbours.map(BlockNumber) {
            let Some(known) = self.0.get_mut(&neighbour) else { continue };
            if !known.link.is_parent_of(asked.link) && !asked.link.is_parent_of(known.link) {
                let older = if known.sent.is_before(asked.sent) { known } else { &mut asked };
                older.is_refuted = true;
            }
        }
        self.0.insert(number, asked);
        while self.0.len() > CAP {
            let oldest = self.0.iter().min_by_key(|(_, asked)| asked.sent.order).map(|(number, _)| *number);
            oldest.map(|number| self.0.remove(&number));
        }
    }

    /// Removes the answer for `number` if it names `hash`.
    pub(super) fn remove(&mut self, number: BlockNumber, hash: BlockHash) {
        if self.get(number).is_some_and(|asked| asked.link.hash == hash) {
            self.0.remove(&number);
        }
    }

    /// Removes the answer for `number` if it names another block, and was requested before `sent`.
    pub(super) fn remove_other(&mut self, number: BlockNumber, hash: BlockHash, sent: Stamp) {
        if self.get(number).is_some_and(|asked| asked.link.hash != hash && asked.sent.is_before(sent)) {
            self.0.remove(&number);
        }
    }

    /// Keeps only the answers whose number passes `keep`.
    pub(super) fn retain(&mut self, keep: impl Fn(BlockNumber) -> bool) {
        self.0.retain(|number, _| keep(*number));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Moves the answers that link to the window's lowest block into the window.
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
        // The window is the better source for the numbers that it contains.
        self.retain(|number| window.get(number).is_none());
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::chain::Clock;

    /// Answers from before and after a reorg: the older one of two neighbours no longer serves, in whichever order they
    /// arrive.
    #[tokio::test(start_paused = true)]
    async fn newest_of_answers_that_do_not_link_serves() {
        let hash = |byte| BlockHash(B256::repeat_byte(byte));
        let (clock, link) = (Clock::default(), |number, byte, parent| Link {
            number: BlockNumber(number),
            hash: hash(byte),
            parent: hash(parent),
            timestamp: None,
        });
        let (old, other) = ([link(5, 5, 4), link(6, 6, 5), link(7, 7, 6)], link(6, 66, 55));
        let stamps: Vec<_> = (0..4).map(|_| clock.now()).collect();
        let asked = |link: Link, at: usize| AnsweredNumber {
            link,
            sent: stamps[at],
            below_head: true,
            is_refuted: false,
        };
        let served = |answers: &AnsweredNumbers| -> Vec<_> {
            answers.0.values().filter(|asked| !asked.is_refuted).map(|asked| asked.link.hash).collect()
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut answers = AnsweredNumbers::default();
            order.into_iter().for_each(|at| answers.insert(asked(old[at], at)));
            assert_eq!(served(&answers), [hash(5), hash(6), hash(7)], "{order:?}");
            answers.insert(asked(other, 3));
            assert_eq!(served(&answers), [hash(66)], "{order:?}");
            answers.insert(asked(old[2], 2));
            assert_eq!(served(&answers), [hash(66)], "{order:?}: an answer to an older request arrives late");
        }
    }
}

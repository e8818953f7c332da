//! Blocks above the head that clients were told of.

use std::{collections::VecDeque, time::Duration};

use super::Stamp;
use crate::eth::{BlockHash, BlockNumber};

/// A block above the head that an answer to a client named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldBlock {
    /// Number of the block.
    pub number: BlockNumber,
    /// Hash of the block.
    pub hash: BlockHash,
    told: Stamp,
}

/// The last told blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldBlocks {
    /// The highest block that the head has not reached yet.
    open: Option<ToldBlock>,
    /// Blocks that counted already, oldest first.
    past: VecDeque<ToldBlock>,
}

/// Maximum length of `past`. More blocks above the head than this come only from a wrong node.
const MOST: usize = 16;

/// Shortest time between two told blocks with one number.
const AGAIN: Duration = Duration::from_secs(1);

// === impl ToldBlocks ===

impl ToldBlocks {
    /// Records that a client was told of a block. Each block counts once, and each number once a second, so that a wrong
    /// node causes few requests.
    pub(super) fn note(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        let is_recent = |past: &ToldBlock| now.time.saturating_duration_since(past.told.time) < AGAIN;
        if self.past.iter().any(|past| past.number == number && (past.hash == hash || is_recent(past))) {
            return;
        }
        let told = ToldBlock { number, hash, told: now };
        if self.past.len() == MOST {
            self.past.pop_front();
        }
        self.past.push_back(told);
        if self.open.is_none_or(|open| open.number <= number) {
            self.open = Some(told);
        }
    }

    /// Returns whether an answer named a higher block after the request for a head was sent, at `sent`, and before a call
    /// arrived.
    pub(super) fn outdate(&self, sent: Stamp, arrival: Stamp) -> bool {
        self.open.is_some_and(|open| sent.is_before(open.told) && open.told.is_before(arrival))
    }

    /// Returns the block that the answer to a request sent at `sent` should show.
    pub(super) fn due(&self, sent: Stamp) -> Option<ToldBlock> {
        self.open.filter(|open| open.told.is_before(sent))
    }

    /// Forgets the told block up to this number.
    pub(super) fn close(&mut self, number: BlockNumber) {
        self.open = self.open.filter(|open| open.number > number);
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;
    use tokio::time;

    use super::*;
    use crate::chain::Clock;

    #[tokio::test(start_paused = true)]
    async fn each_block_counts_once_and_each_number_once_a_second() {
        let (clock, mut told) = (Clock::default(), ToldBlocks::default());
        let hash = |byte| BlockHash(B256::repeat_byte(byte));
        let mut counts = |number, byte| {
            let before = clock.now();
            told.note(BlockNumber(number), hash(byte), clock.now());
            let after = clock.now();
            let counts = told.outdate(before, after);
            assert!(!told.outdate(after, clock.now()) && !told.outdate(before, before));
            assert_eq!(told.due(after).is_some(), counts);
            told.close(BlockNumber(number));
            assert_eq!(told.due(after), None);
            counts
        };
        assert!(counts(5, 1));
        assert!(!counts(5, 1) && !counts(5, 2));
        assert!(counts(6, 1));
        time::advance(AGAIN).await;
        assert!(!counts(5, 1));
        assert!(counts(5, 2) && !counts(5, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn highest_block_stays_open() {
        let (clock, mut told) = (Clock::default(), ToldBlocks::default());
        let hash = BlockHash(B256::repeat_byte(1));
        for number in [7, 9, 8] {
            told.note(BlockNumber(number), hash, clock.now());
        }
        told.close(BlockNumber(8));
        assert_eq!(told.due(clock.now()).map(|told| told.number), Some(BlockNumber(9)));
        told.close(BlockNumber(9));
        assert_eq!(told.due(clock.now()), None);
    }
}

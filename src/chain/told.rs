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
    /// Whether no head since has reached the block.
    is_open: bool,
}

/// The last told blocks, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldBlocks(VecDeque<ToldBlock>);

/// Maximum number of told blocks. More blocks above the head than this come only from a wrong node.
const MOST: usize = 16;

/// Shortest time between two told blocks with one number.
const AGAIN: Duration = Duration::from_secs(1);

// === impl ToldBlocks ===

impl ToldBlocks {
    /// Records that a client was told of a block. Each block counts once, and each number once a second, so that a wrong
    /// node causes few requests.
    pub(super) fn note(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        let is_recent = |past: &ToldBlock| now.time.saturating_duration_since(past.told.time) < AGAIN;
        if self.0.iter().any(|past| past.number == number && (past.hash == hash || is_recent(past))) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(ToldBlock { number, hash, told: now, is_open: true });
    }

    /// Returns whether an answer named a higher block after the request for a head was sent, at `sent`, and before a call
    /// arrived.
    pub(super) fn outdate(&self, sent: Stamp, arrival: Stamp) -> bool {
        self.0.iter().any(|it| it.is_open && sent.is_before(it.told) && it.told.is_before(arrival))
    }

    /// Returns the highest block that the answer to a request sent at `sent` should show.
    pub(super) fn due(&self, sent: Stamp) -> Option<ToldBlock> {
        let due = self.0.iter().filter(|it| it.is_open && it.told.is_before(sent));
        due.max_by_key(|it| it.number).copied()
    }

    /// Forgets the told blocks for which `is_reached` is true.
    pub(super) fn close(&mut self, is_reached: impl Fn(&ToldBlock) -> bool) {
        self.0.iter_mut().filter(|it| is_reached(it)).for_each(|it| it.is_open = false);
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
            told.close(|it| it.number.0 <= number);
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
    async fn each_block_stays_open_until_a_head_reaches_it() {
        let (clock, mut told) = (Clock::default(), ToldBlocks::default());
        let hash = BlockHash(B256::repeat_byte(1));
        let stamps = [7, 9, 8].map(|number| {
            let before = clock.now();
            told.note(BlockNumber(number), hash, clock.now());
            (before, clock.now())
        });
        let highest = |told: &ToldBlocks| told.due(clock.now()).map(|told| told.number.0);
        // A later block hides no earlier one from a call that arrived in between.
        assert!(stamps.iter().all(|(before, after)| told.outdate(*before, *after)));
        assert_eq!(told.due(stamps[0].1).map(|told| told.number), Some(BlockNumber(7)));
        told.close(|it| it.number.0 <= 7);
        assert!(!told.outdate(stamps[0].0, stamps[0].1) && told.outdate(stamps[0].0, stamps[1].1));
        assert_eq!(highest(&told), Some(9));
        told.close(|it| it.number.0 == 9);
        assert_eq!(highest(&told), Some(8));
        told.close(|it| it.number.0 <= 8);
        assert_eq!(highest(&told), None);
    }
}

//! The block that a tag resolves to.

use super::{stamp::Stamp, window::Link};

/// The block that `safe` or `finalized` resolves to.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaggedBlock {
    pub(super) link: Link,
    /// When the last request that returned this block was sent.
    pub(super) sent: Stamp,
    pub(super) first_seen: Stamp,
}

// === impl TaggedBlock ===

impl TaggedBlock {
    /// Returns the tagged block for the new answer `link`. If the block is the same as `before`, `first_seen` stays.
    pub(super) fn again(before: Option<Self>, link: Link, sent: Stamp, now: Stamp) -> Self {
        let first_seen = before.filter(|before| before.link == link).map_or(now, |before| before.first_seen);
        Self { link, sent, first_seen }
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::{
        chain::Clock,
        eth::{BlockHash, BlockNumber},
    };

    #[tokio::test(start_paused = true)]
    async fn first_sight_belongs_to_the_block() {
        let (clock, hash) = (Clock::default(), BlockHash(B256::ZERO));
        let block = |number| Link { number: BlockNumber(number), hash, parent: hash, timestamp: None };
        let (first, second, third) = (clock.now(), clock.now(), clock.now());
        let seen = TaggedBlock::again(None, block(1), first, first);
        let again = TaggedBlock::again(Some(seen), block(1), second, second);
        let other = TaggedBlock::again(Some(again), block(2), third, third);
        assert_eq!([seen, again, other].map(|tagged| tagged.first_seen), [first, first, third]);
    }
}

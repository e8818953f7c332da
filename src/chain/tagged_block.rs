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

//! The block that a tag means.

use super::{stamp::Stamp, window::Link};

/// The block that `safe` or `finalized` means.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaggedBlock {
    pub(super) link: Link,
    /// When it was asked for last.
    pub(super) sent: Stamp,
    pub(super) first_seen: Stamp,
}

// === impl TaggedBlock ===

impl TaggedBlock {
    /// The block that a tag means now, after it meant what it meant before.
    pub(super) fn again(before: Option<Self>, link: Link, sent: Stamp, now: Stamp) -> Self {
        let first_seen = before.filter(|before| before.link == link).map_or(now, |before| before.first_seen);
        Self { link, sent, first_seen }
    }
}

//! Decides whether a refresh fetches the next head in full, although its call asks for less.
//!
//! Many clients poll the head in a short form, and then read the full block of each new head. A refresh that fetches
//! the new head in full saves the second call.

/// Number of heads that are expected to be read in full, after a call has fetched the full block of a head by itself.
/// While the refreshes fetch full heads, clients read these from the cache, and nothing shows whether they still do.
/// The constant limits the waste after they stop.
const HEADS: u32 = 16;

/// Number of refreshes that try to fetch a new head in full. They begin shortly before the block is due, and there is
/// usually one refresh per second. If the block comes later than the last of them, its slot probably had none.
const TRIES: u32 = 3;

/// The full heads that are expected to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullHeads {
    heads: u32,
    tries: u32,
}

// === impl FullHeads ===

impl FullHeads {
    /// Records that a call fetched the full block of a head by itself.
    pub(super) fn expect(&mut self) {
        *self = Self { heads: HEADS, tries: TRIES };
    }

    /// Records a new head.
    pub(super) fn record_head(&mut self) {
        *self = Self { heads: self.heads.saturating_sub(1), tries: TRIES };
    }

    /// Returns whether the next refresh fetches the head in full. The caller then does so.
    pub(super) fn try_once(&mut self) -> bool {
        let is_expected = self.heads > 0 && self.tries > 0;
        self.tries -= u32::from(is_expected);
        is_expected
    }
}

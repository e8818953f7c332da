//! Decides whether a refresh fetches the next head in full, although its call asks for less.
//!
//! Many clients poll the head in a short form, and then read the full block of each new head. A refresh that fetches
//! the new head in full saves the second call. This module reads no clock; callers pass the time.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::{eth::Block, verify::Verified};

/// Number of heads that are expected to be read in full, after a call has fetched the full block of a head by itself.
/// While the refreshes fetch full heads, clients read these from the cache, and nothing shows whether they still do.
/// The constant limits the waste after they stop.
const HEADS: u32 = 16;

/// Number of refreshes that try to fetch a new head in full. They begin shortly before the block is due. If the block
/// comes later than the last of them, its slot probably had none.
const TRIES: u32 = 2;

/// Shortest time between two tries.
const SPACING: Duration = Duration::from_secs(1);

/// The full heads that are expected to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullHeads {
    heads: u32,
    /// Number of tries for the next head, and the time of the last.
    tries: u32,
    tried_at: Option<Instant>,
}

/// Stores the heads that refreshes fetch in full.
pub(crate) trait StoreHead: Send + Sync {
    /// Stores the full block of a head.
    fn store_head(self: Arc<Self>, block: Arc<Verified<Block>>) -> BoxFuture<'static, ()>;
}

// === impl FullHeads ===

impl FullHeads {
    /// Records that a call fetched the full block of a head by itself.
    pub(super) fn expect(&mut self) {
        self.heads = HEADS;
    }

    /// Records a new head.
    pub(super) fn record_head(&mut self) {
        *self = Self { heads: self.heads.saturating_sub(1), tries: 0, tried_at: None };
    }

    /// Returns whether a refresh now fetches the head in full. The caller then does so.
    pub(super) fn try_once(&mut self, now: Instant) -> bool {
        let is_due = self.tried_at.is_none_or(|tried_at| now.duration_since(tried_at) >= SPACING);
        if self.heads == 0 || self.tries == TRIES || !is_due {
            return false;
        }
        (self.tries, self.tried_at) = (self.tries + 1, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_sixteen_heads_gets_two_tries_a_second_apart() {
        let mut now = Instant::now();
        let mut full_heads = FullHeads::default();
        assert!(!full_heads.try_once(now), "no full head was read");
        full_heads.expect();
        let mut tries = Vec::new();
        for _ in 0..20 {
            let mut of_head = Vec::new();
            for tenth in 0..60 {
                if full_heads.try_once(now + Duration::from_millis(100) * tenth) {
                    of_head.push(tenth);
                }
            }
            tries.push(of_head);
            now += Duration::from_secs(12);
            full_heads.record_head();
        }
        assert_eq!(tries[..16], vec![vec![0, 10]; 16]);
        assert!(tries[16..].iter().all(Vec::is_empty));
    }
}

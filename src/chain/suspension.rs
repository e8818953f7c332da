//! Canonicity while the upstream denies the finalized block.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::BlockNumber;

/// The finalized block is asked for again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// An endpoint whose head is high enough is taken to have left the finalized block after so many denials in a row …
const DENIALS: u32 = 3;
/// … over at least this time. A balanced URL may reach a replica that is behind.
const PATIENCE: Duration = Duration::from_secs(15);

/// A node whose head stays below the finalized block for this long has gone back for good. After an unclean stop geth
/// rewinds by about 128 blocks, and needs minutes to catch up.
const CATCHING_UP: Duration = Duration::from_secs(600);

/// What follows from a denial of the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nothing that is known of canonicity is used until the block is shown again.
    Suspended,
    /// The block is not final any more. Everything known of canonicity has been forgotten.
    Alarm,
}

/// The upstream denies the finalized block: nothing that is known of canonicity is used meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspension {
    /// When the block was last asked for.
    asked: Instant,
    /// Denials in a row by an endpoint whose head is high enough, and the first of them.
    denials: Option<(u32, Instant)>,
    /// Since when the head is below the finalized block.
    below: Option<Instant>,
}

// === impl Suspension ===

impl Suspension {
    pub(super) fn new(now: Instant) -> Self {
        Self { asked: now, denials: None, below: None }
    }

    /// Returns whether the finalized block may be asked for again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.asked) >= AGAIN
    }

    /// The finalized block is asked for.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Notes that an endpoint with this head has no finalized block at `finalized`.
    pub(super) fn deny(&mut self, head: BlockNumber, finalized: BlockNumber, now: Instant) -> Denied {
        self.asked = now;
        let is_alarm = if head < finalized {
            self.denials = None;
            let since = *self.below.get_or_insert(now);
            now.duration_since(since) >= CATCHING_UP
        } else {
            self.below = None;
            let (denials, since) = self.denials.map_or((1, now), |(denials, since)| (denials + 1, since));
            self.denials = Some((denials, since));
            denials >= DENIALS && now.duration_since(since) >= PATIENCE
        };
        if is_alarm { Denied::Alarm } else { Denied::Suspended }
    }
}

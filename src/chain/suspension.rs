//! Canonicity while the upstream denies the finalized block.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::BlockNumber;

/// Interval between requests for a denied finalized block.
const AGAIN: Duration = Duration::from_secs(1);

/// An endpoint whose head is high enough has left the finalized block after this many denials in a row …
const DENIALS: u32 = 3;
/// … over at least this time. A load-balanced URL may reach a lagging replica.
const PATIENCE: Duration = Duration::from_secs(15);

/// A node whose head stays below the finalized block for this long has rolled back permanently. After an unclean stop,
/// geth rewinds by about 128 blocks and needs minutes to catch up.
const CATCHING_UP: Duration = Duration::from_secs(600);

/// Consequence of a denial of the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Every lookup is unknown until an endpoint shows the block again.
    Suspended,
    /// The block is no longer final. The tracker has forgotten all canonicity.
    Alarm,
}

/// State while the upstream denies the finalized block: every lookup is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspension {
    /// When the block was last requested.
    asked: Instant,
    /// Number of denials in a row by an endpoint whose head is high enough, and the time of the first.
    denials: Option<(u32, Instant)>,
    /// Since when the upstream's head is below the finalized block.
    below: Option<Instant>,
}

// === impl Suspension ===

impl Suspension {
    pub(super) fn new(now: Instant) -> Self {
        Self { asked: now, denials: None, below: None }
    }

    /// Returns whether the finalized block may be requested again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.asked) >= AGAIN
    }

    /// Records that the finalized block is requested at `now`.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Records that an endpoint with this head does not have the finalized block, whose number is `finalized`.
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

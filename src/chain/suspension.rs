//! State while the upstream denies the finalized block, which means that it does not return that block on request.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::BlockNumber;

/// Minimum interval between requests for a finalized block that the upstream denies.
const AGAIN: Duration = Duration::from_secs(1);

/// Number of consecutive denials that raise the [alarm](Denied::Alarm), if they also span [`PATIENCE`].
/// Only denials by an endpoint whose head is at or above the finalized block are counted.
const DENIALS: u32 = 3;
/// Minimum time between the first and the last of these denials, because a load-balanced URL may reach a lagging
/// replica.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time for which a node's head must stay below the finalized block to raise the [alarm](Denied::Alarm). After an
/// unclean stop, geth rewinds by about 128 blocks and needs minutes to catch up.
const CATCHING_UP: Duration = Duration::from_secs(600);

/// Consequence of a denial of the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Every lookup returns [`Lookup::Unknown`](super::Lookup::Unknown) until an endpoint shows the block again.
    Suspended,
    /// The block is no longer final. The tracker has forgotten all canonicity.
    Alarm,
}

/// Record of the denials since the upstream last showed the finalized block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspension {
    /// When the block was last requested.
    asked: Instant,
    /// Number of consecutive denials with a head at or above the finalized block, and the time of the first.
    denials: Option<(u32, Instant)>,
    /// Time since which the upstream's head has been below the finalized block.
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

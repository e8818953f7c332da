//! State while the upstream contradicts the finalized block: it shows another block there, or denies the block, which means
//! that it does not return that block on request.

use std::time::Duration;

use tokio::time::Instant;

use crate::eth::BlockNumber;

/// Minimum interval between requests for a finalized block that the upstream denies.
const AGAIN: Duration = Duration::from_secs(1);

/// Number of consecutive contradictions that count, if they also span [`PATIENCE`].
const CONTRADICTIONS: u32 = 3;
/// Minimum time between the first and the last of these contradictions, because a load-balanced URL may reach a lagging
/// replica.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time for which a node's head must stay below the finalized block to raise the [alarm](Denied::Alarm). After an
/// unclean stop, geth rewinds by about 128 blocks and needs minutes to catch up.
const CATCHING_UP: Duration = Duration::from_secs(600);

/// Consequence of a denial of the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nothing yet: a replica behind the upstream's URL may lag.
    Doubted,
    /// Every lookup returns [`Lookup::Unknown`](super::Lookup::Unknown) until an endpoint shows the block again.
    Suspended,
    /// The block is no longer final. The tracker has forgotten all canonicity.
    Alarm,
}

/// Consecutive answers that contradict the finalized block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contradictions {
    count: u32,
    since: Instant,
}

/// Record of the denials since the upstream last showed the finalized block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspension {
    /// When the block was last requested.
    asked: Instant,
    /// Denials with a head at or above the finalized block.
    denials: Option<Contradictions>,
    /// Time since which the upstream's head has been below the finalized block.
    below: Option<Instant>,
}

// === impl Contradictions ===

impl Contradictions {
    /// Returns these contradictions and one more, at `now`.
    pub(super) fn and_one(before: Option<Self>, now: Instant) -> Self {
        let Self { count, since } = before.unwrap_or(Self { count: 0, since: now });
        Self { count: count + 1, since }
    }

    /// Returns whether they count: there are too many, over too long a time, for a lagging replica.
    pub(super) fn count(self, now: Instant) -> bool {
        self.count >= CONTRADICTIONS && now.duration_since(self.since) >= PATIENCE
    }
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
            self.denials.insert(Contradictions::and_one(self.denials, now)).count(now)
        };
        if is_alarm { Denied::Alarm } else { Denied::Suspended }
    }
}

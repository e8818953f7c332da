//! The branch that is tracked, and what each head says of it.

use super::{
    Rules, Stamp,
    window::{Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// Numbers that must be asked for before a head can be judged; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The lowest.
    pub from: BlockNumber,
    /// The highest.
    pub to: BlockNumber,
}

/// What a head meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadChange {
    /// Asked for before what is known now, or under way when a branch was left: it tells nothing.
    Outdated,
    /// The first head of all.
    First,
    /// The head is what it was.
    Same,
    /// The chain grew by so many blocks.
    Extended(usize),
    /// So many blocks left the chain.
    Reorg(usize),
    /// The upstream is behind the head that it showed before, or its head contradicts what is final. The head stays.
    Lag,
    /// It has been behind for so long that it has gone back, by so many blocks.
    Rollback(usize),
    /// The head is too far ahead to link to what was known.
    Restarted,
    /// The head does not link to the tracked chain above the finalized block, and the endpoint has not shown that block.
    /// Nothing changed.
    Unlinked,
}

/// How a head relates to the tracked branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// There is no branch yet.
    First,
    /// It is the head, or in the window below it, or is shown to be an ancestor of the window's lowest block.
    Within,
    /// It descends from this block of the window.
    Above(Link),
    /// Neither.
    Detached,
}

/// The upstream showed a lower head than before.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// The newest such head.
    head: BlockNumber,
    observations: u32,
    since: Stamp,
}

/// The newest blocks of the upstream's branch, and whether it still shows all of them.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) window: Window,
    lag: Option<Lag>,
}

// === impl Branch ===

impl Branch {
    /// A gap up to this is closed by one batch; a larger one is not worth it.
    pub(super) const MAX_GAP: u64 = 64;

    /// Knows nothing, and has room for so many blocks.
    pub(super) fn new(window: usize) -> Self {
        Self { window: Window::new(window), lag: None }
    }

    /// Is the upstream behind the head that it showed, and has not been for long enough to believe it?
    pub(super) fn lags(&self) -> bool {
        self.lag.is_some()
    }

    /// The number of the head that the upstream showed last: under a lag nothing above it is settled. Nothing above the
    /// tracked head is, either: a head that was refused may be higher.
    pub(super) fn shown(&self) -> Option<BlockNumber> {
        let lagging = self.lag.map(|lag| lag.head);
        lagging.into_iter().chain(self.window.top().map(|top| top.number)).min()
    }

    /// The numbers that must be asked for before `head` can be judged.
    pub(super) fn gap(&self, head: Link) -> Option<Gap> {
        let (top, bottom) = (self.window.top()?, self.window.bottom()?);
        if self.window.holds(head) {
            return None;
        }
        let (low, high) = if head.number > top.number {
            if self.window.parent_of(head).is_some() {
                return None;
            }
            (top.number.0, head.number.0)
        } else if head.number < bottom.number {
            if bottom.parent == head.hash {
                return None;
            }
            (head.number.0, bottom.number.0)
        } else {
            return None;
        };
        let missing = high - low - 1;
        (1..=Self::MAX_GAP)
            .contains(&missing)
            .then_some(Gap { from: BlockNumber(low + 1), to: BlockNumber(high - 1) })
    }

    /// The parent that must be asked for by its hash to see whether `head` leaves the tracked branch within the window, or is
    /// an ancestor of its lowest block; `None` where that would not help.
    pub(super) fn missing_parent(&self, head: Link, between: &[Link]) -> Option<BlockHash> {
        let (top, bottom) = (self.window.top()?, self.window.bottom()?);
        if self.relation(head, between) != Relation::Detached {
            return None;
        }
        let is_near = head.number.0 <= top.number.0.saturating_add(Self::MAX_GAP + 1)
            && bottom.number.0 <= head.number.0.saturating_add(Self::MAX_GAP + 1);
        // From the higher of the two down.
        let (from, to) = if head.number > bottom.number { (head, bottom) } else { (bottom, head) };
        let lowest = *lineage(from, between).last().unwrap_or(&from);
        (is_near && lowest.number > to.number).then_some(lowest.parent)
    }

    /// How `head`, with blocks between it and the window, relates to what is tracked.
    pub(super) fn relation(&self, head: Link, between: &[Link]) -> Relation {
        let Some(bottom) = self.window.bottom() else { return Relation::First };
        if self.window.holds(head) || ancestors(bottom, &[between, &[head]].concat()).contains(&head) {
            return Relation::Within;
        }
        let lineage = lineage(head, between);
        let held = lineage.iter().find(|link| self.window.holds(**link)).copied();
        let parent = || self.window.parent_of(lineage[lineage.len() - 1]);
        held.or_else(parent).map_or(Relation::Detached, Relation::Above)
    }

    /// Returns whether one more observation of this head, which is [within](Relation::Within) the branch, makes a rollback.
    pub(super) fn would_roll_back(&self, rules: &Rules, now: Stamp) -> bool {
        let (observations, since) = self.lag.map_or((0, now), |lag| (lag.observations, lag.since));
        let patience = now.time.duration_since(since.time);
        observations + 1 >= rules.rollback_after && patience >= rules.lag_patience
    }

    /// Takes in a head, with blocks between it and the window in any order.
    pub(super) fn observe_head(
        &mut self,
        head: Link,
        between: &[Link],
        rules: &Rules,
        now: Stamp,
    ) -> HeadChange {
        let change = self.judge(head, between, rules, now);
        if change != HeadChange::Lag {
            self.lag = None;
        }
        change
    }

    /// Takes in a lower head that stands on this branch, though the window does not show it.
    pub(super) fn observe_lower_head(&mut self, head: Link, rules: &Rules, now: Stamp) -> HeadChange {
        let change = self.observe_lag(head, rules, now);
        if change != HeadChange::Lag {
            self.lag = None;
        }
        change
    }

    /// Takes in a head that cannot be right: the branch stays, and nothing above that head is settled. It makes no
    /// rollback, however often it is shown.
    pub(super) fn refuse_head(&mut self, head: Link, now: Stamp) -> HeadChange {
        let lag = self.lag.get_or_insert(Lag { head: head.number, observations: 0, since: now });
        lag.head = head.number;
        HeadChange::Lag
    }

    fn judge(&mut self, head: Link, gap: &[Link], rules: &Rules, now: Stamp) -> HeadChange {
        let (Some(top), Some(bottom)) = (self.window.top(), self.window.bottom()) else {
            self.window.push(&[head]);
            return HeadChange::First;
        };
        // ## Stands in the window
        if self.window.holds(head) {
            return if head.hash == top.hash { HeadChange::Same } else { self.observe_lag(head, rules, now) };
        }
        // ## Links to the window from above or from within
        let mut lineage = lineage(head, gap);
        // Another refresh may have closed a part of this gap meanwhile.
        if let Some(known) = lineage.iter().position(|link| self.window.holds(*link)) {
            lineage.truncate(known);
        }
        if let Some(parent) = self.window.parent_of(lineage[lineage.len() - 1]) {
            let left = self.window.cut_above(parent.number);
            self.window.push(&lineage);
            return if left == 0 { HeadChange::Extended(lineage.len()) } else { HeadChange::Reorg(left) };
        }
        // ## Links to the window from below
        if head.number < bottom.number {
            let ancestors = ancestors(bottom, &[gap, &[head]].concat());
            if ancestors.contains(&head) {
                for link in ancestors {
                    self.window.push_below(link);
                }
                return self.observe_lag(head, rules, now);
            }
        }
        // ## Neither: only what it is shown to descend from stays
        let left = self.window.len();
        let too_far = head.number.0.saturating_sub(top.number.0) > Self::MAX_GAP + 1;
        self.window.clear();
        self.window.push(&lineage);
        if too_far { HeadChange::Restarted } else { HeadChange::Reorg(left) }
    }

    fn observe_lag(&mut self, head: Link, rules: &Rules, now: Stamp) -> HeadChange {
        let lag = self.lag.get_or_insert(Lag { head: head.number, observations: 0, since: now });
        lag.observations += 1;
        lag.head = head.number;
        let patience = now.time.duration_since(lag.since.time);
        if lag.observations < rules.rollback_after || patience < rules.lag_patience {
            return HeadChange::Lag;
        }
        let left = self.window.cut_above(head.number);
        // There was no room for it below a full window.
        if self.window.top().is_none() {
            self.window.push(&[head]);
        }
        HeadChange::Rollback(left)
    }
}

/// A head and those of `links` that lead down from it, the newest first.
pub(super) fn lineage(head: Link, links: &[Link]) -> Vec<Link> {
    let mut lineage = vec![head];
    lineage.extend(ancestors(head, links));
    lineage
}

/// Those of `links` that lead down from a block, the newest first.
fn ancestors(mut from: Link, links: &[Link]) -> Vec<Link> {
    let mut found = Vec::new();
    // Numbers fall along a lineage; a ring of hashes that claims otherwise ends here.
    while let Some(link) = links.iter().find(|link| link.hash == from.parent && link.number < from.number) {
        found.push(*link);
        from = *link;
    }
    found
}

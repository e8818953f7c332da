//! The tracked branch, and how each new head changes it.

use super::{
    Rules, Stamp,
    window::{Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// Range of numbers to request in order to relate a head to the tracked branch. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Lowest number.
    pub from: BlockNumber,
    /// Highest number.
    pub to: BlockNumber,
}

/// Effect of a head on the tracked branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadChange {
    /// No effect: the head was requested before the last accepted head, or before the last event that invalidates
    /// earlier answers, such as a reorg, a rollback or a write.
    Outdated,
    /// This is the first head.
    First,
    /// The head has not changed.
    Same,
    /// The chain grew by this many blocks.
    Extended(usize),
    /// This many tracked blocks left the chain. A head that links to no tracked block counts as a reorg of all of them,
    /// unless it is too far ahead.
    Reorg(usize),
    /// The upstream shows a lower head than before, or a head that contradicts a final block. The tracked head stays.
    Lag,
    /// The upstream has shown a lower head for so long that it has rolled back, by this many blocks.
    Rollback(usize),
    /// The head is too far ahead to link to the tracked branch. Tracking starts again from this head.
    Restarted,
    /// No effect: the head does not link to the tracked branch above the finalized block, and the endpoint has not
    /// shown that block.
    Unlinked,
}

/// Relation of a head to the tracked branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// Nothing is tracked yet.
    First,
    /// The head is in the window, or known to be an ancestor of the window's lowest block.
    Within,
    /// The head descends from this block of the window.
    Above(Link),
    /// No link to the window is known.
    Detached,
}

/// A period in which the upstream shows a lower head than before, or a head that contradicts a final block.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// Number of the head that the upstream showed last.
    head: BlockNumber,
    observations: u32,
    since: Stamp,
}

/// The newest blocks of the upstream's branch, and whether the upstream lags behind them.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) window: Window,
    lag: Option<Lag>,
}

// === impl Branch ===

impl Branch {
    /// Maximum number of missing blocks between a head and the window that Holdfast requests, all in one batch. A
    /// larger gap is not worth the requests.
    pub(super) const MAX_GAP: u64 = 64;

    /// Returns an empty branch with room for `window` blocks.
    pub(super) fn new(window: usize) -> Self {
        Self { window: Window::new(window), lag: None }
    }

    /// Returns whether the upstream shows a head that contradicts a final block, or a lower head than before, but not
    /// for long enough to count as a rollback.
    pub(super) fn lags(&self) -> bool {
        self.lag.is_some()
    }

    /// Returns the number of the head that the upstream showed last. If that head was refused and is higher than the
    /// tracked head, returns the number of the tracked head. During a lag, lookups of higher numbers are unknown.
    pub(super) fn shown(&self) -> Option<BlockNumber> {
        let lagging = self.lag.map(|lag| lag.head);
        lagging.into_iter().chain(self.window.top().map(|top| top.number)).min()
    }

    /// Returns the numbers to request in order to relate `head` to the branch; `None` if there are none or too many.
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

    /// Returns the parent to request by hash to find out whether `head` forks off inside the window, or is an ancestor
    /// of its lowest block; `None` if the relation is known, or if that parent cannot show it.
    pub(super) fn missing_parent(&self, head: Link, between: &[Link]) -> Option<BlockHash> {
        let (top, bottom) = (self.window.top()?, self.window.bottom()?);
        if self.relation(head, between) != Relation::Detached {
            return None;
        }
        let is_near = head.number.0 <= top.number.0.saturating_add(Self::MAX_GAP + 1)
            && bottom.number.0 <= head.number.0.saturating_add(Self::MAX_GAP + 1);
        // Walks down from the head or from the window's lowest block, whichever is higher.
        let (from, to) = if head.number > bottom.number { (head, bottom) } else { (bottom, head) };
        let lowest = *lineage(from, between).last().unwrap_or(&from);
        (is_near && lowest.number > to.number).then_some(lowest.parent)
    }

    /// Returns the relation of `head` to the branch, given known blocks between the head and the window.
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

    /// Returns whether one more observation of a lower head [within](Relation::Within) the branch makes a rollback.
    pub(super) fn would_roll_back(&self, rules: &Rules, now: Stamp) -> bool {
        let (observations, since) = self.lag.map_or((0, now), |lag| (lag.observations, lag.since));
        let patience = now.time.duration_since(since.time);
        observations + 1 >= rules.rollback_after && patience >= rules.lag_patience
    }

    /// Takes in a head. `between` contains blocks between the head and the window, in any order.
    pub(super) fn observe_head(
        &mut self,
        head: Link,
        between: &[Link],
        rules: &Rules,
        now: Stamp,
    ) -> HeadChange {
        let change = self.judge(head, between, rules, now);
        self.lag = self.lag.filter(|_| change == HeadChange::Lag);
        change
    }

    /// Takes in a lower head that is on this branch, although the window may not contain it.
    pub(super) fn observe_lower_head(&mut self, head: Link, rules: &Rules, now: Stamp) -> HeadChange {
        let change = self.observe_lag(head, rules, now);
        self.lag = self.lag.filter(|_| change == HeadChange::Lag);
        change
    }

    /// Takes in a head that contradicts finality. The branch stays, and lookups of numbers above `head` become unknown.
    /// Such a head never makes a rollback, however often the upstream shows it.
    pub(super) fn refuse_head(&mut self, head: BlockNumber, now: Stamp) -> HeadChange {
        self.lag.get_or_insert(Lag { head, observations: 0, since: now }).head = head;
        HeadChange::Lag
    }

    fn judge(&mut self, head: Link, gap: &[Link], rules: &Rules, now: Stamp) -> HeadChange {
        let (Some(top), Some(bottom)) = (self.window.top(), self.window.bottom()) else {
            self.window.push(&[head]);
            return HeadChange::First;
        };
        // ## The head is in the window
        if self.window.holds(head) {
            return if head.hash == top.hash { HeadChange::Same } else { self.observe_lag(head, rules, now) };
        }
        // ## The head descends from a block in the window
        let mut lineage = lineage(head, gap);
        // A concurrent refresh may have added some of these blocks to the window.
        if let Some(known) = lineage.iter().position(|link| self.window.holds(*link)) {
            lineage.truncate(known);
        }
        if let Some(parent) = self.window.parent_of(lineage[lineage.len() - 1]) {
            let left = self.window.cut_above(parent.number);
            self.window.push(&lineage);
            return if left == 0 { HeadChange::Extended(lineage.len()) } else { HeadChange::Reorg(left) };
        }
        // ## The head is an ancestor of the window
        if head.number < bottom.number {
            let ancestors = ancestors(bottom, &[gap, &[head]].concat());
            if ancestors.contains(&head) {
                for link in ancestors {
                    self.window.push_below(link);
                }
                return self.observe_lag(head, rules, now);
            }
        }
        // ## No link is known: the window restarts with the head and its known ancestors
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
        // The window is empty now if the head was below it: either a final block, or an ancestor that the full window
        // had no room for.
        if self.window.top().is_none() {
            self.window.push(&[head]);
        }
        HeadChange::Rollback(left)
    }
}

/// Returns `head` and its ancestors among `links`, newest first, down to the first gap.
pub(super) fn lineage(head: Link, links: &[Link]) -> Vec<Link> {
    let mut lineage = vec![head];
    lineage.extend(ancestors(head, links));
    lineage
}

/// Returns the ancestors of `from` among `links`, newest first, down to the first gap.
fn ancestors(mut from: Link, links: &[Link]) -> Vec<Link> {
    let mut found = Vec::new();
    // Numbers must decrease along a lineage, so that the loop ends even if forged links form a cycle.
    while let Some(link) = links.iter().find(|link| link.hash == from.parent && link.number < from.number) {
        found.push(*link);
        from = *link;
    }
    found
}

//! Follows one upstream's chain by what it is told.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Stamp,
    final_index::FinalIndex,
    window::{Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// The rules that hold for a chain and its upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How old knowledge may be when a call arrives.
    pub max_staleness: Duration,
    /// Blocks kept in the window.
    pub window: usize,
    /// A lower head is a rollback after so many observations …
    pub rollback_after: u32,
    /// … over at least this time.
    pub lag_patience: Duration,
    /// The upstream is one node without a balancer: it does not contradict itself.
    pub consistent: bool,
    /// Is anything final here? Not on development chains, which start anew at will.
    pub finality: bool,
    /// Blocks this deep count as final, where the operator says so.
    pub finality_depth: Option<u64>,
}

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
    /// The upstream is behind the head that it showed before.
    Lag,
    /// It has been behind for so long that it has gone back, by so many blocks.
    Rollback(usize),
    /// The head is too far ahead to link to what was known.
    Restarted,
}

/// What came of an answer about `finalized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// It is as it was, or lower, or nothing, or not to be counted yet.
    Unchanged,
    /// It rose. What was final before should be asked again.
    Advanced {
        /// What was final before.
        previous: Option<(BlockNumber, BlockHash)>,
    },
    /// It names another block than the branch that is tracked: one of them is out of date.
    Contrary,
    /// What was final is not. Everything known of canonicity has been forgotten.
    Alarm,
}

/// What is known of a number at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This hash, for good.
    Final(BlockHash),
    /// This hash, on the tracked branch; to be believed if the view is fresh.
    Tracked {
        /// The hash.
        hash: BlockHash,
        /// Is the view fresh?
        fresh: bool,
    },
    /// This hash, as the upstream said a moment ago.
    Asked(BlockHash),
    /// No block yet; to be believed if the view is fresh.
    Above {
        /// Is the view fresh?
        fresh: bool,
    },
    /// Nothing.
    Unknown,
}

/// A number that was asked for by itself.
#[derive(Clone, Copy, Debug)]
struct Asked {
    hash: BlockHash,
    /// Known where the whole block was seen: then it can link to the window.
    parent: Option<BlockHash>,
    sent: Stamp,
    /// It was at or below the head: so it stays true while heads link, if the upstream is consistent.
    below_head: bool,
}

/// The upstream showed a lower head than before.
#[derive(Clone, Copy, Debug)]
struct Lag {
    /// The newest such head.
    head: BlockNumber,
    observations: u32,
    since: Stamp,
}

/// Numbers asked for by themselves that are remembered; enough for what clients ask within a second or two.
const ASKED_CAP: usize = 4096;

/// What is known of a chain.
#[derive(Clone, Debug)]
pub struct Tracker {
    rules: Rules,
    window: Window,
    /// When the refresh behind the head was sent; `None` if the head may have changed since.
    fresh: Option<Stamp>,
    /// When the newest head was taken in.
    seen: Option<Stamp>,
    /// Nothing sent before this counts any more …
    not_before: Option<Stamp>,
    /// … except for what is final, unless all was forgotten since.
    forgotten: Option<Stamp>,
    lag: Option<Lag>,
    asked: BTreeMap<BlockNumber, Asked>,
    safe: Option<(Link, Stamp)>,
    finalized_tag: Option<(Link, Stamp)>,
    finalized: Option<(BlockNumber, BlockHash)>,
    /// When the newest finality became known.
    finalized_since: Option<Stamp>,
    final_index: FinalIndex,
}

// === impl Tracker ===

impl Tracker {
    /// A gap up to this is closed by one batch; a larger one is not worth it.
    pub const MAX_GAP: u64 = 64;

    /// Knows nothing.
    pub fn new(rules: Rules) -> Self {
        Self {
            window: Window::new(rules.window),
            rules,
            fresh: None,
            seen: None,
            not_before: None,
            forgotten: None,
            lag: None,
            asked: BTreeMap::new(),
            safe: None,
            finalized_tag: None,
            finalized: None,
            finalized_since: None,
            final_index: FinalIndex::default(),
        }
    }

    /// From here on the upstream is one node that does not contradict itself, or is not.
    pub fn set_consistent(&mut self, consistent: bool) {
        self.rules.consistent = consistent;
    }

    /// Changes how old knowledge may be, that which is there already too.
    pub fn set_max_staleness(&mut self, max_staleness: Duration) {
        self.rules.max_staleness = max_staleness;
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The head of the tracked branch, fresh or not.
    pub fn head(&self) -> Option<Link> {
        self.window.top()
    }

    /// What is final, by the upstream's word or by depth.
    pub fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.finalized
    }

    /// How many blocks the window holds, and the final index.
    pub fn sizes(&self) -> (usize, usize) {
        (self.window.len(), self.final_index.len())
    }

    /// When the refresh behind the view was sent.
    pub fn refreshed(&self) -> Option<Stamp> {
        self.fresh
    }

    /// Does the view serve a call that arrived then?
    pub fn is_fresh(&self, arrival: Stamp) -> bool {
        self.fresh.is_some_and(|sent| sent.serves(arrival, self.rules.max_staleness))
    }

    /// Does what was sent then still tell what is? Not if a reorg, a write or an alarm came since.
    pub fn counts(&self, sent: Stamp) -> bool {
        !self.not_before.is_some_and(|since| sent.is_before(since))
    }

    /// Is the upstream behind the head that it showed, and has not been for long enough to believe it?
    pub fn lags(&self) -> bool {
        self.lag.is_some()
    }

    /// The window, from below.
    #[cfg(test)]
    pub(super) fn links(&self) -> Vec<Link> {
        self.window.up_to(BlockNumber(u64::MAX)).collect()
    }

    // ## Heads

    /// The numbers that must be asked for before `head` can be judged.
    pub fn gap(&self, head: Link) -> Option<Gap> {
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

    /// Has `head`, with the blocks of its [`gap`](Self::gap), nothing to do with what is tracked? Then
    /// it may be the head of another chain.
    pub fn is_detached(&self, head: Link, gap: &[Link]) -> bool {
        let Some(bottom) = self.window.bottom() else { return false };
        let mut lineage = vec![head];
        lineage.extend(ancestors(head, gap));
        let linked = lineage.iter().any(|link| self.window.holds(*link))
            || self.window.parent_of(lineage[lineage.len() - 1]).is_some()
            || ancestors(bottom, &[gap, &[head]].concat()).contains(&head);
        !linked
    }

    /// Takes in a head, with the blocks of its [`gap`](Self::gap) in any order.
    pub fn observe_head(&mut self, head: Link, gap: &[Link], sent: Stamp, now: Stamp) -> HeadChange {
        let outdated = |since: Option<Stamp>| since.is_some_and(|since| sent.is_before(since));
        if outdated(self.fresh) || outdated(self.not_before) {
            return HeadChange::Outdated;
        }
        let before = self.window.top();
        let change = self.judge(head, gap, now);
        self.fresh = Some(sent);
        self.seen = Some(now);
        if change != HeadChange::Lag {
            self.lag = None;
        }
        if let HeadChange::First | HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted =
            change
        {
            // What was asked for by itself may stand on what has just been left; before the first head
            // nobody saw what was left. So may whatever is still under way, even if it was sent after
            // this head: a node need not answer in order.
            self.unbelieve(now);
        }
        if let (HeadChange::Extended(_), Some(before)) = (change, before) {
            // Between the two heads the chain has been shown, whether the window had room for it or not.
            self.asked.retain(|number, _| *number <= before.number || *number > head.number);
        }
        self.absorb_asked();
        self.finalize_by_depth(now);
        change
    }

    fn judge(&mut self, head: Link, gap: &[Link], now: Stamp) -> HeadChange {
        let (Some(top), Some(bottom)) = (self.window.top(), self.window.bottom()) else {
            self.window.push(&[head]);
            return HeadChange::First;
        };
        // ## Stands in the window
        if self.window.holds(head) {
            return if head.hash == top.hash { HeadChange::Same } else { self.observe_lag(head, now) };
        }
        // ## Links to the window from above or from within
        let mut lineage = vec![head];
        lineage.extend(ancestors(head, gap));
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
                return self.observe_lag(head, now);
            }
        }
        // ## Neither: only what it is shown to descend from stays
        let left = self.window.len();
        let too_far = head.number.0.saturating_sub(top.number.0) > Self::MAX_GAP + 1;
        self.window.clear();
        self.window.push(&lineage);
        if too_far { HeadChange::Restarted } else { HeadChange::Reorg(left) }
    }

    fn observe_lag(&mut self, head: Link, now: Stamp) -> HeadChange {
        let lag = self.lag.get_or_insert(Lag { head: head.number, observations: 0, since: now });
        lag.observations += 1;
        lag.head = head.number;
        let patience = now.time.duration_since(lag.since.time);
        if lag.observations < self.rules.rollback_after || patience < self.rules.lag_patience {
            return HeadChange::Lag;
        }
        let left = self.window.cut_above(head.number);
        // There was no room for it below a full window.
        if self.window.top().is_none() {
            self.window.push(&[head]);
        }
        HeadChange::Rollback(left)
    }

    // ## Single numbers

    /// Takes in that `hash` stands at `number`, as an answer said that was sent then.
    ///
    /// `parent` is known where the whole block was seen.
    ///
    /// # Errors
    /// If another block is tracked there.
    pub fn observe_number(
        &mut self,
        number: BlockNumber,
        hash: BlockHash,
        parent: Option<BlockHash>,
        sent: Stamp,
    ) -> Result<(), Contrary> {
        if self.not_before.is_some_and(|since| sent.is_before(since)) {
            return Ok(());
        }
        if self.rules.finality
            && let Some((finalized, _)) = self.finalized
            && number <= finalized
        {
            return match self.final_index.get(number) {
                Some(known) if known == hash => Ok(()),
                Some(_) => Err(Contrary),
                None if self.window.excludes(number, hash) => Err(Contrary),
                None => {
                    // Sent before that was known, it may be from a branch that was left since.
                    if self.finalized_since.is_some_and(|since| !sent.is_before(since)) {
                        let _ = self.final_index.insert(number, hash);
                    }
                    Ok(())
                }
            };
        }
        if self.window.excludes(number, hash) {
            return Err(Contrary);
        }
        if self.window.get(number).is_some() {
            return Ok(());
        }
        let below_head = self.window.top().is_some_and(|top| number <= top.number);
        if self.asked.get(&number).is_none_or(|known| known.sent.is_before(sent)) {
            self.asked.insert(number, Asked { hash, parent, sent, below_head });
        }
        while self.asked.len() > ASKED_CAP {
            let oldest =
                self.asked.iter().min_by_key(|(_, asked)| asked.sent.order).map(|(number, _)| *number);
            oldest.map(|number| self.asked.remove(&number));
        }
        self.absorb_asked();
        Ok(())
    }

    /// Takes in a block, however it was asked for: if the window's lowest block names it as its
    /// parent, it is canonical as long as that one is.
    pub fn observe_block(&mut self, link: Link) -> bool {
        let linked = self.window.push_below(link);
        if linked {
            self.absorb_asked();
        }
        linked
    }

    /// Moves what links to the window into it.
    fn absorb_asked(&mut self) {
        while let Some(bottom) = self.window.bottom() {
            let Some((number, asked)) = self.asked.range(..bottom.number).next_back() else { break };
            let Some(parent) = asked.parent else { break };
            let link = Link { number: *number, hash: asked.hash, parent };
            if !self.window.push_below(link) {
                break;
            }
            self.asked.remove(&link.number);
        }
        // What the window knows now, it knows better.
        let window = &self.window;
        self.asked.retain(|number, _| window.get(*number).is_none());
    }

    /// What is known of `number` for a call that arrived then.
    pub fn lookup(&self, number: BlockNumber, arrival: Stamp) -> Lookup {
        if let Some(hash) = self.final_index.get(number) {
            return Lookup::Final(hash);
        }
        let fresh = self.is_fresh(arrival);
        // Under a lag nothing above the lower head is settled.
        let shown = self.lag.map(|lag| lag.head).or(self.window.top().map(|top| top.number));
        let above = shown.is_some_and(|shown| number > shown);
        if let Some(link) = self.window.get(number).filter(|_| !above) {
            return Lookup::Tracked { hash: link.hash, fresh };
        }
        match self.asked.get(&number) {
            Some(asked) if asked.sent.serves(arrival, self.rules.max_staleness) => {
                // A lower head was shown since. It may be the older of the two, or on another branch.
                let doubtful = above && self.seen.is_some_and(|seen| asked.sent.is_before(seen));
                if doubtful { Lookup::Unknown } else { Lookup::Asked(asked.hash) }
            }
            // What is final is there, however low a head has been shown since.
            _ if above && self.lag.is_none() && !self.is_final(number) => Lookup::Above { fresh },
            Some(asked) if self.rules.consistent && asked.below_head && !above => {
                Lookup::Tracked { hash: asked.hash, fresh }
            }
            _ => Lookup::Unknown,
        }
    }

    /// This block is known not to have this number, whoever said so: that it stands there is forgotten.
    pub fn disown(&mut self, number: BlockNumber, hash: BlockHash) {
        if self.final_index.get(number) == Some(hash) {
            self.final_index.remove(number);
        }
        if self.asked.get(&number).is_some_and(|asked| asked.hash == hash) {
            self.asked.remove(&number);
        }
    }

    /// Is whatever stands at this number final? A block with this number is then final, or an orphan for good.
    pub fn is_final(&self, number: BlockNumber) -> bool {
        self.finalized().is_some_and(|(finalized, _)| number <= finalized)
    }

    /// Can no block with this number and hash be on the tracked branch?
    pub fn excludes(&self, number: BlockNumber, hash: BlockHash) -> bool {
        self.window.excludes(number, hash)
    }

    // ## Safe and finalized

    /// Takes in what `safe` means.
    pub fn observe_safe(&mut self, safe: Link, sent: Stamp) {
        if !self.is_outdated(sent, self.safe) {
            self.safe = Some((safe, sent));
        }
    }

    /// Takes in what `finalized` means; `None` for an answer that names no block.
    pub fn observe_finalized(&mut self, finalized: Option<Link>, sent: Stamp, now: Stamp) -> Finalized {
        let Some(link) = finalized else { return Finalized::Unchanged };
        if !self.is_outdated(sent, self.finalized_tag) {
            self.finalized_tag = Some((link, sent));
        }
        // What was final before a reorg or a write is so after it.
        if !self.rules.finality || self.forgotten.is_some_and(|since| sent.is_before(since)) {
            return Finalized::Unchanged;
        }
        self.finalize(link.number, link.hash, now)
    }

    /// Takes in what stands at a number that was final before.
    pub fn confirm_final(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) -> Finalized {
        match self.final_index.get(number) {
            Some(known) if known != hash => self.alarm(now),
            _ => Finalized::Unchanged,
        }
    }

    /// The block that `safe` means, for a call that arrived then.
    pub fn safe(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.safe, arrival)
    }

    /// The block that `finalized` means, for a call that arrived then.
    pub fn finalized_tag(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.finalized_tag, arrival)
    }

    fn tag(&self, tag: Option<(Link, Stamp)>, arrival: Stamp) -> Option<Link> {
        tag.filter(|(_, sent)| sent.serves(arrival, self.rules.max_staleness)).map(|(link, _)| link)
    }

    fn is_outdated(&self, sent: Stamp, known: Option<(Link, Stamp)>) -> bool {
        known.is_some_and(|(_, known)| sent.is_before(known))
            || self.not_before.is_some_and(|since| sent.is_before(since))
    }

    fn finalize(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) -> Finalized {
        if self.final_index.get(number).is_some_and(|known| known != hash) {
            return self.alarm(now);
        }
        if self.finalized.is_some_and(|(known, _)| known >= number)
            || self.window.top().is_none_or(|top| top.number < number)
        {
            return Finalized::Unchanged;
        }
        if self.window.excludes(number, hash) {
            return Finalized::Contrary;
        }
        // The window is one branch: what stands in it below a final block is final too.
        let passed: Vec<_> = self.window.up_to(number).map(|link| (link.number, link.hash)).collect();
        let passed = passed.into_iter().chain([(number, hash)]);
        for (number, hash) in passed {
            if self.final_index.insert(number, hash).is_err() {
                return self.alarm(now);
            }
        }
        let previous = self.finalized.replace((number, hash));
        self.finalized_since = Some(now);
        // Hints from before: a proxy that slept through a reorg must not wake up believing them.
        self.asked.retain(|asked, _| *asked > number);
        Finalized::Advanced { previous }
    }

    fn finalize_by_depth(&mut self, now: Stamp) {
        let Some(depth) = self.rules.finality_depth.filter(|_| self.rules.finality) else { return };
        let number = self.window.top().and_then(|top| top.number.0.checked_sub(depth));
        if let Some(link) = number.and_then(|number| self.window.get(BlockNumber(number))) {
            self.finalize(link.number, link.hash, now);
        }
    }

    /// What was final is not: nothing that was known of canonicity can be.
    fn alarm(&mut self, now: Stamp) -> Finalized {
        self.forget(now);
        Finalized::Alarm
    }

    // ## Writes

    /// Something was sent, or answered, that can change what reads see: nothing sent before this
    /// moment tells what is.
    pub fn unsettle(&mut self, now: Stamp) {
        self.fresh = None;
        self.unbelieve(now);
    }

    /// The node was told to be another one: forgets all canonicity, and takes the next head as it is.
    pub fn forget(&mut self, now: Stamp) {
        *self = Self::new(self.rules.clone());
        self.not_before = Some(now);
        self.forgotten = Some(now);
    }

    /// Drops what was told beside the window, and what may still be told of before this moment.
    fn unbelieve(&mut self, now: Stamp) {
        self.not_before = Some(now);
        self.asked.clear();
        self.safe = None;
        self.finalized_tag = None;
    }
}

/// An answer names another block than the tracked one at its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another block is tracked at this number")]
pub struct Contrary;

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

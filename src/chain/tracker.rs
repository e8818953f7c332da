//! Follows one upstream's chain by what it is told.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Contrary, Finalized, Gap, HeadChange, Rules, Stamp,
    asked::{Asked, AskedNumbers},
    branch::Branch,
    finality::Finality,
    window::Link,
};
use crate::eth::{BlockHash, BlockNumber};

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

/// What is known of a chain.
#[derive(Clone, Debug)]
pub struct Tracker {
    rules: Rules,
    branch: Branch,
    /// When the refresh behind the head was sent; `None` if the head may have changed since.
    fresh: Option<Stamp>,
    /// When the newest head was taken in.
    seen: Option<Stamp>,
    /// Nothing sent before this counts any more, except for what is final.
    not_before: Option<Stamp>,
    asked: AskedNumbers,
    safe: Option<(Link, Stamp)>,
    finalized_tag: Option<(Link, Stamp)>,
    finality: Finality,
}

// === impl Tracker ===

impl Tracker {
    /// A gap up to this is closed by one batch; a larger one is not worth it.
    pub const MAX_GAP: u64 = Branch::MAX_GAP;

    /// Knows nothing.
    pub fn new(rules: Rules) -> Self {
        Self {
            branch: Branch::new(rules.window),
            rules,
            fresh: None,
            seen: None,
            not_before: None,
            asked: AskedNumbers::default(),
            safe: None,
            finalized_tag: None,
            finality: Finality::default(),
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
        self.branch.window.top()
    }

    /// What is final, by the upstream's word or by depth.
    pub fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.finality.highest()
    }

    /// What is final above one number, up to and with another, as far as its hash is known.
    pub fn final_blocks(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> Vec<(BlockNumber, BlockHash)> {
        self.finality.between(above, up_to).collect()
    }

    /// Takes in what was final before a restart, for as long as nobody can be asked. Whether anything is final on this chain
    /// is for whoever says so: the rules are those of a chain that is not known yet.
    pub fn restore_finality(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        self.finality.restore(number, hash, now);
    }

    /// How many blocks the window holds, and the final index.
    pub fn sizes(&self) -> (usize, usize) {
        (self.branch.window.len(), self.finality.len())
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
        self.branch.lags()
    }

    /// The window, from below.
    #[cfg(test)]
    pub(super) fn links(&self) -> Vec<Link> {
        self.branch.window.up_to(BlockNumber(u64::MAX)).collect()
    }

    // ## Heads

    /// The numbers that must be asked for before `head` can be judged.
    pub fn gap(&self, head: Link) -> Option<Gap> {
        self.branch.gap(head)
    }

    /// Has `head`, with the blocks of its [`gap`](Self::gap), nothing to do with what is tracked? Then
    /// it may be the head of another chain.
    pub fn is_detached(&self, head: Link, gap: &[Link]) -> bool {
        self.branch.is_detached(head, gap)
    }

    /// Takes in a head, with the blocks of its [`gap`](Self::gap) in any order.
    pub fn observe_head(&mut self, head: Link, gap: &[Link], sent: Stamp, now: Stamp) -> HeadChange {
        if self.fresh.is_some_and(|since| sent.is_before(since)) || !self.counts(sent) {
            return HeadChange::Outdated;
        }
        let before = self.head();
        let change = self.branch.observe_head(head, gap, &self.rules, now);
        self.fresh = Some(sent);
        self.seen = Some(now);
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
            self.asked.retain(|number| number <= before.number || number > head.number);
        }
        self.asked.move_into(&mut self.branch.window);
        self.finalize_by_depth(now);
        change
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
        if !self.counts(sent) {
            return Ok(());
        }
        if self.is_final(number) {
            return self.finality.observe_number(number, hash, &self.branch.window, sent);
        }
        if self.excludes(number, hash) {
            return Err(Contrary);
        }
        if self.branch.window.get(number).is_some() {
            return Ok(());
        }
        let below_head = self.head().is_some_and(|head| number <= head.number);
        self.asked.insert(number, Asked { hash, parent, sent, below_head });
        self.asked.move_into(&mut self.branch.window);
        Ok(())
    }

    /// Takes in a block, however it was asked for: if the window's lowest block names it as its
    /// parent, it is canonical as long as that one is.
    pub fn observe_block(&mut self, link: Link) -> bool {
        let linked = self.branch.window.push_below(link);
        if linked {
            self.asked.move_into(&mut self.branch.window);
        }
        linked
    }

    /// What is known of `number` for a call that arrived then.
    pub fn lookup(&self, number: BlockNumber, arrival: Stamp) -> Lookup {
        if let Some(hash) = self.finality.get(number) {
            return Lookup::Final(hash);
        }
        let fresh = self.is_fresh(arrival);
        let above = self.branch.shown().is_some_and(|shown| number > shown);
        if let Some(link) = self.branch.window.get(number).filter(|_| !above) {
            return Lookup::Tracked { hash: link.hash, fresh };
        }
        match self.asked.get(number) {
            Some(asked) if asked.sent.serves(arrival, self.rules.max_staleness) => {
                // A lower head was shown since. It may be the older of the two, or on another branch.
                let doubtful = above && self.seen.is_some_and(|seen| asked.sent.is_before(seen));
                if doubtful { Lookup::Unknown } else { Lookup::Asked(asked.hash) }
            }
            // What is final is there, however low a head has been shown since.
            _ if above && !self.lags() && !self.is_final(number) => Lookup::Above { fresh },
            Some(asked) if self.rules.consistent && asked.below_head && !above => {
                Lookup::Tracked { hash: asked.hash, fresh }
            }
            _ => Lookup::Unknown,
        }
    }

    /// The number at which this block is taken to stand. Looks at all that is known: for people, not for calls.
    pub fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        let tracked = self.branch.window.up_to(BlockNumber(u64::MAX)).find(|link| link.hash == hash);
        let tracked = tracked.map(|link| link.number);
        tracked.or_else(|| self.finality.number_of(hash)).or_else(|| self.asked.number_of(hash))
    }

    /// This block is known not to have this number, whoever said so: that it stands there is forgotten.
    pub fn disown(&mut self, number: BlockNumber, hash: BlockHash) {
        self.finality.disown(number, hash);
        self.asked.disown(number, hash);
    }

    /// Is whatever stands at this number final? A block with this number is then final, or an orphan for good.
    pub fn is_final(&self, number: BlockNumber) -> bool {
        self.finality.covers(number)
    }

    /// Can no block with this number and hash be on the tracked branch?
    pub fn excludes(&self, number: BlockNumber, hash: BlockHash) -> bool {
        self.branch.window.excludes(number, hash)
    }

    // ## Safe and finalized

    /// Takes in what `safe` means.
    pub fn observe_safe(&mut self, safe: Link, sent: Stamp) {
        if !self.is_outdated(sent, self.safe) {
            self.safe = Some((safe, sent));
        }
    }

    /// Takes in what `finalized` means, and nothing of what is final.
    pub fn observe_finalized_tag(&mut self, finalized: Link, sent: Stamp) {
        if !self.is_outdated(sent, self.finalized_tag) {
            self.finalized_tag = Some((finalized, sent));
        }
    }

    /// Takes in what `finalized` means, and that it is final; `None` for an answer that names no block.
    pub fn observe_finalized(&mut self, finalized: Option<Link>, sent: Stamp, now: Stamp) -> Finalized {
        let Some(link) = finalized else { return Finalized::Unchanged };
        self.observe_finalized_tag(link, sent);
        if !self.hears_of_finality(sent) {
            return Finalized::Unchanged;
        }
        self.finalize(link.number, link.hash, now)
    }

    /// Does what was asked for then tell what is final? What was final before a reorg or a write is so after it.
    pub fn hears_of_finality(&self, sent: Stamp) -> bool {
        self.rules.finality && self.finality.counts(sent)
    }

    /// Takes in what stands at a number that was final before.
    pub fn confirm_final(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) -> Finalized {
        let outcome = self.finality.confirm(number, hash);
        self.settle(outcome, now)
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
        known.is_some_and(|(_, known)| sent.is_before(known)) || !self.counts(sent)
    }

    fn finalize(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) -> Finalized {
        let outcome = self.finality.advance(number, hash, &self.branch.window, now);
        self.settle(outcome, now)
    }

    fn finalize_by_depth(&mut self, now: Stamp) {
        let Some(depth) = self.rules.finality_depth.filter(|_| self.rules.finality) else { return };
        let number = self.head().and_then(|head| head.number.0.checked_sub(depth));
        if let Some(link) = number.and_then(|number| self.branch.window.get(BlockNumber(number))) {
            self.finalize(link.number, link.hash, now);
        }
    }

    /// Draws the consequences for all else that is known.
    fn settle(&mut self, outcome: Finalized, now: Stamp) -> Finalized {
        match outcome {
            Finalized::Unchanged | Finalized::Contrary => {}
            // Hints from before: a proxy that slept through a reorg must not wake up believing them.
            Finalized::Advanced { .. } => self.asked.retain(|number| !self.finality.covers(number)),
            // What was final is not: nothing that was known of canonicity can be.
            Finalized::Alarm => self.forget(now),
        }
        outcome
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
        self.finality = Finality::forgotten(now);
    }

    /// Somebody who answered since then turned out a stranger: forgets what may be of its making, be it final. The window
    /// is not: what links to it is of this chain.
    pub fn disbelieve(&mut self, since: Instant, now: Stamp) {
        self.finality.unhear(since, now.time);
        self.unsettle(now);
    }

    /// Drops what was told beside the window, and what may still be told of before this moment.
    fn unbelieve(&mut self, now: Stamp) {
        self.not_before = Some(now);
        self.asked.clear();
        self.safe = None;
        self.finalized_tag = None;
    }
}

//! Which blocks are canonical, as far as the upstream has shown.
//!
//! The [`Tracker`](super::Tracker) changes this view as heads and answers arrive; calls read it.

use std::collections::VecDeque;

use super::{
    answered::AnsweredNumbers,
    branch::{Branch, Gap, Relation, lineage as ancestry},
    finality::Finality,
    placed::PlacedTransactions,
    rules::Rules,
    stamp::Stamp,
    suspension::Suspension,
    tagged_block::TaggedBlock,
    window::{Contrary, Link},
};
use crate::eth::{BlockHash, BlockNumber, TxHash};

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

/// Whether one block is an ancestor of another. The worse comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ancestry {
    /// It is not, or nothing shows it.
    Apart,
    /// Another look at the head will tell.
    Unsure,
    /// It is.
    Ancestor,
}

/// The state of a [`Tracker`](super::Tracker): which blocks are canonical, as far as the upstream has shown.
#[derive(Clone, Debug)]
pub struct CanonicalView {
    pub(super) rules: Rules,
    pub(super) branch: Branch,
    /// When the refresh behind the head was sent; `None` if the head may have changed since.
    pub(super) fresh: Option<Stamp>,
    /// Nothing sent before this counts any more, except for what is final.
    pub(super) not_before: Option<Stamp>,
    /// When blocks last left the chain, or may have.
    pub(super) left: Option<Stamp>,
    /// When the lowest tracked block rose, and its number before.
    pub(super) outgrown: VecDeque<(Stamp, BlockNumber)>,
    pub(super) answered: AnsweredNumbers,
    pub(super) placed: PlacedTransactions,
    pub(super) safe: Option<TaggedBlock>,
    pub(super) finalized_tag: Option<TaggedBlock>,
    pub(super) finality: Finality,
    /// The upstream denies the finalized block.
    pub(super) suspension: Option<Suspension>,
}

// === impl Lookup ===

impl Lookup {
    /// The hash at the number, fresh or not.
    pub fn hash(self) -> Option<BlockHash> {
        match self {
            Self::Final(hash) | Self::Tracked { hash, .. } | Self::Asked(hash) => Some(hash),
            Self::Above { .. } | Self::Unknown => None,
        }
    }
}

// === impl CanonicalView ===

impl CanonicalView {
    /// Knows nothing.
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            branch: Branch::new(rules.window),
            rules,
            fresh: None,
            not_before: None,
            left: None,
            outgrown: VecDeque::new(),
            answered: AnsweredNumbers::default(),
            placed: PlacedTransactions::default(),
            safe: None,
            finalized_tag: None,
            finality: Finality::default(),
            suspension: None,
        }
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

    /// Returns whether the upstream shows a lower head than before, but not for long enough to count as a rollback.
    pub fn lags(&self) -> bool {
        self.branch.lags()
    }

    /// The window, from below.
    #[cfg(test)]
    pub(super) fn links(&self) -> Vec<Link> {
        self.branch.window.up_to(BlockNumber(u64::MAX)).collect()
    }

    // ## Heads

    /// The numbers that must be asked for before `head` can be judged. None for a head that is known to be final: it is
    /// only lower than the last.
    pub fn gap(&self, head: Link) -> Option<Gap> {
        if self.is_final_block(head) { None } else { self.branch.gap(head) }
    }

    /// The parent that must be asked for by its hash before `head` can be judged, given the blocks between them that
    /// are known. Only where something is final: elsewhere a head is judged by its numbers.
    pub fn missing_parent(&self, head: Link, between: &[Link]) -> Option<BlockHash> {
        let is_worth_it = self.finality.highest().is_some() && !self.is_final_block(head);
        self.branch.missing_parent(head, between).filter(|_| is_worth_it)
    }

    /// Returns whether `head`, with the blocks between, has nothing to do with what is tracked: it may be the head of
    /// another chain.
    pub fn is_detached(&self, head: Link, between: &[Link]) -> bool {
        !self.is_final_block(head) && self.branch.relation(head, between) == Relation::Detached
    }

    /// Returns the finalized block if the endpoint that showed `head` must also show that block: the head is not known to
    /// descend from it, or would end the tracked chain below it.
    pub fn must_show(&self, head: Link, between: &[Link], now: Stamp) -> Option<(BlockNumber, BlockHash)> {
        let finalized = self.finality.highest()?;
        if self.suspension.is_some() {
            return Some(finalized);
        }
        let is_linked = match self.branch.relation(head, between) {
            Relation::First => true,
            // What one answer alone made final shows nothing: the upstream may have gone back below the finalized block
            // before it gave that answer.
            _ if self.is_final_block(head) && self.finality.is_unlinked(head.number) => false,
            _ if self.is_final_block(head) => !self.rolls_back_to(head, now),
            Relation::Within => head.number >= finalized.0 || !self.rolls_back_to(head, now),
            Relation::Above(parent) => parent.number >= finalized.0,
            Relation::Detached => false,
        };
        (!is_linked).then_some(finalized)
    }

    /// Returns whether this block is known to be final.
    pub(super) fn is_final_block(&self, link: Link) -> bool {
        self.finality.get(link.number) == Some(link.hash)
    }

    /// Returns whether this head, which is lower than the last, is a rollback if it is shown once more.
    pub(super) fn rolls_back_to(&self, head: Link, now: Stamp) -> bool {
        self.head() != Some(head) && self.branch.would_roll_back(&self.rules, now)
    }

    /// Returns whether a head contradicts the finalized block, or any that is final below it.
    pub(super) fn contradicts_final(&self, head: Link, between: &[Link]) -> bool {
        let Some((finalized, hash)) = self.finality.highest() else { return false };
        let lineage = ancestry(head, between);
        let leaves_below = match self.branch.relation(head, between) {
            Relation::Above(parent) => {
                let descends = lineage.iter().any(|link| link.hash == hash);
                parent.number < finalized && head.number >= finalized && !descends
            }
            // The known ancestors of the finalized block may end above this head, with another parent.
            Relation::Detached => {
                let mut known = between.to_vec();
                known.extend(self.branch.window.up_to(finalized));
                let ancestors =
                    known.iter().find(|link| link.hash == hash).map(|link| ancestry(*link, &known));
                let is_above = |link: &Link| link.number.0.checked_sub(1) == Some(head.number.0);
                let above = ancestors.iter().flatten().find(|link| is_above(link));
                above.is_some_and(|above| above.parent != head.hash)
            }
            Relation::First | Relation::Within => false,
        };
        leaves_below || self.finality.contradicts(&lineage)
    }

    // ## A finalized block that is denied

    /// Returns whether the upstream denies the finalized block: then nothing that is known of canonicity counts.
    pub fn is_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Returns whether a refresh would tell more: not while the finalized block is denied, and was asked for just now.
    pub fn may_refresh(&self, now: Stamp) -> bool {
        self.suspension.is_none_or(|suspension| suspension.is_due(now.time))
    }

    // ## Single numbers

    /// Checks that this block may be at this number, by all that is known for more than a moment.
    ///
    /// # Errors
    /// If another block is tracked there, or final.
    pub fn agrees(&self, number: BlockNumber, hash: BlockHash) -> Result<(), Contrary> {
        if self.suspension.is_some() {
            return Ok(());
        }
        match self.finality.get(number) {
            Some(known) if known != hash => Err(Contrary::Final),
            None if self.excludes(number, hash) => Err(Contrary::Tracked),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether this block, as an answer says that was sent then, may have left the chain since: another one is
    /// tracked or final at its number, or blocks left the chain and it is not known to be among those that stayed.
    pub fn may_have_left(&self, number: BlockNumber, hash: BlockHash, sent: Stamp) -> bool {
        let stays = || self.finality.get(number) == Some(hash) || self.branch.window.get(number).is_some();
        self.agrees(number, hash).is_err()
            || (self.has_left(sent) && !stays())
            || self.has_outgrown(number, sent)
    }

    /// Returns whether a number was not below the tracked blocks when a call was sent, and is now. Then nothing tells any
    /// more which block was there, unless it is final.
    pub(super) fn has_outgrown(&self, number: BlockNumber, sent: Stamp) -> bool {
        let is_below = self.branch.window.bottom().is_some_and(|bottom| number < bottom.number);
        let mut outgrown = self.outgrown.iter().filter(|(at, _)| sent.is_before(*at));
        is_below && self.finality.get(number).is_none() && outgrown.any(|(_, lowest)| *lowest <= number)
    }

    /// Returns whether this answer, sent then, can still be held against what is tracked.
    ///
    /// # Errors
    /// If the tracked blocks have outgrown it.
    pub(super) fn is_in_time(&self, number: BlockNumber, sent: Stamp) -> Result<(), Contrary> {
        if self.has_outgrown(number, sent) { Err(Contrary::Tracked) } else { Ok(()) }
    }

    /// Returns whether blocks left the chain since then, or may have.
    pub fn has_left(&self, since: Stamp) -> bool {
        self.left.is_some_and(|left| since.is_before(left))
    }

    /// Returns whether this transaction was said to be in this block, recently enough for a call that arrived then, and
    /// nothing is known of that number that says otherwise.
    pub fn is_placed(&self, transaction: TxHash, block: BlockHash, arrival: Stamp) -> bool {
        let sent = self.placed.get(transaction, block);
        sent.is_some_and(|sent| sent.serves(arrival, self.rules.max_staleness))
    }

    /// Returns whether a single transaction or receipt was said to be in a block with this number.
    pub fn has_placed(&self, number: BlockNumber) -> bool {
        self.placed.has_number(number)
    }

    /// The hash that an answer named for this number, however old that is: a hint, for content that may be cached.
    pub fn hint_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.answered.get(number).map(|asked| asked.link.hash)
    }

    /// What is known of `number` for a call that arrived then.
    pub fn lookup(&self, number: BlockNumber, arrival: Stamp) -> Lookup {
        if self.suspension.is_some() {
            return Lookup::Unknown;
        }
        let above = self.is_above_shown(number);
        if let Some(hash) = self.finality.get(number).filter(|_| !above) {
            return Lookup::Final(hash);
        }
        let fresh = self.is_fresh(arrival);
        if let Some(link) = self.branch.window.get(number).filter(|_| !above) {
            return Lookup::Tracked { hash: link.hash, fresh };
        }
        match self.answered.get(number) {
            Some(asked) if asked.sent.serves(arrival, self.rules.max_staleness) => {
                // Nothing above the block that `latest` means is served.
                if above { Lookup::Unknown } else { Lookup::Asked(asked.link.hash) }
            }
            // What is final is there, however low a head has been shown since.
            _ if above && !self.lags() && !self.is_final(number) => Lookup::Above { fresh },
            Some(asked) if self.rules.consistent && asked.below_head && !above => {
                Lookup::Tracked { hash: asked.link.hash, fresh }
            }
            _ => Lookup::Unknown,
        }
    }

    /// Returns whether a number is above the head that the upstream showed last.
    pub fn is_above_shown(&self, number: BlockNumber) -> bool {
        self.branch.shown().is_some_and(|shown| number > shown)
    }

    /// The newest tracked blocks, newest first, whether or not the upstream lags behind them.
    pub fn newest(&self) -> impl Iterator<Item = Link> {
        self.branch.window.down_from(BlockNumber(u64::MAX))
    }

    /// The hash that is final or tracked at this number, whether or not the upstream lags behind it, and however old that
    /// is. For answers that are missing.
    pub fn known_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let tracked = || self.branch.window.get(number).map(|link| link.hash);
        self.finality.get(number).or_else(tracked).filter(|_| self.suspension.is_none())
    }

    /// The number of this block on the tracked branch. Looks at all of the window: for answers that are missing.
    pub fn tracked_number(&self, hash: BlockHash) -> Option<BlockNumber> {
        let mut links = self.branch.window.up_to(BlockNumber(u64::MAX));
        links.find(|link| link.hash == hash).map(|link| link.number)
    }

    /// The number at which this block is taken to stand. Looks at all that is known: for people, not for calls.
    pub fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.tracked_number(hash)
            .or_else(|| self.finality.number_of(hash))
            .or_else(|| self.answered.number_of(hash))
    }

    /// Returns whether the block that is final here is so by one answer alone.
    pub fn is_unlinked(&self, number: BlockNumber) -> bool {
        self.finality.is_unlinked(number)
    }

    /// The hash that is known at this number, or was said to be there recently enough for a call that arrived then.
    pub fn canonical_at(&self, number: BlockNumber, arrival: Stamp) -> Option<BlockHash> {
        let asked = || match self.lookup(number, arrival) {
            Lookup::Asked(hash) => Some(hash),
            _ => None,
        };
        self.known_at(number).or_else(asked)
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

    /// Does what was asked for then tell what is final? What was final before a reorg or a write is so after it.
    pub fn hears_of_finality(&self, sent: Stamp) -> bool {
        self.rules.finality && self.suspension.is_none() && self.finality.counts(sent)
    }

    /// The block that `safe` means, for a call that arrived then.
    pub fn safe(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.safe, arrival)
    }

    /// The block that `finalized` means, for a call that arrived then.
    pub fn finalized_tag(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.finalized_tag, arrival)
    }

    pub(super) fn tag(&self, tag: Option<TaggedBlock>, arrival: Stamp) -> Option<Link> {
        tag.filter(|named| named.sent.serves(arrival, self.rules.max_staleness)).map(|named| named.link)
    }

    /// Returns whether the block that `safe` or `finalized` means is an ancestor of a tracked block.
    pub fn ancestry(&self, lower: Link, upper: Link) -> Ancestry {
        let is_apart = lower.number > upper.number
            || self.excludes(lower.number, lower.hash)
            || self.known_at(upper.number) != Some(upper.hash);
        if is_apart {
            return Ancestry::Apart;
        }
        if self.branch.window.holds(lower) {
            return Ancestry::Ancestor;
        }
        // Below the window. A head that was asked for since, and links to the one before, shows that none left meanwhile:
        // then it would have been forgotten.
        let named = [self.safe, self.finalized_tag].into_iter().flatten().find(|named| named.link == lower);
        match (named, self.fresh) {
            (None, _) => Ancestry::Apart,
            (Some(named), Some(fresh)) if !fresh.is_before(named.first_seen) => Ancestry::Ancestor,
            (Some(_), _) => Ancestry::Unsure,
        }
    }

    pub(super) fn is_outdated(&self, sent: Stamp, known: Option<TaggedBlock>) -> bool {
        known.is_some_and(|known| sent.is_before(known.sent)) || !self.counts(sent)
    }
}

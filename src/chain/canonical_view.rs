//! The canonical blocks, as far as the upstream has shown them.
//!
//! The [`Tracker`](super::Tracker) updates this view as heads and answers arrive; calls read it.

use std::collections::VecDeque;

use super::{
    answered::AnsweredNumbers,
    branch::{Branch, Gap, Relation, lineage as ancestry},
    finality::Finality,
    lookup::{Ancestry, Lookup},
    placed::PlacedTransactions,
    rules::Rules,
    stamp::Stamp,
    suspension::{Contradictions, Suspension},
    tagged_block::TaggedBlock,
    told::{ToldBlock, ToldBlocks},
    window::{Contrary, Link},
};
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// State of a [`Tracker`](super::Tracker): the canonical blocks, as far as the upstream has shown them.
#[derive(Clone, Debug)]
pub struct CanonicalView {
    pub(super) rules: Rules,
    pub(super) branch: Branch,
    /// When the request for the last accepted head was sent; `None` before the first head, and after a write, which may
    /// have changed the head.
    pub(super) fresh: Option<Stamp>,
    /// The tracker ignores answers to requests sent before this stamp. For answers about finality, see
    /// [`hears_of_finality`](Self::hears_of_finality).
    pub(super) not_before: Option<Stamp>,
    /// When blocks last left the canonical chain, or may have left it.
    pub(super) left: Option<Stamp>,
    /// Times at which the lowest number of the window rose, each with the lowest number until then.
    pub(super) outgrown: VecDeque<(Stamp, BlockNumber)>,
    pub(super) answered: AnsweredNumbers,
    pub(super) placed: PlacedTransactions,
    pub(super) told: ToldBlocks,
    pub(super) safe: Option<TaggedBlock>,
    pub(super) finalized_tag: Option<TaggedBlock>,
    pub(super) finality: Finality,
    /// Contradictions of the finalized block that do not count yet.
    pub(super) doubt: Option<Contradictions>,
    /// Present while the upstream denies the finalized block.
    pub(super) suspension: Option<Suspension>,
}

// === impl CanonicalView ===

impl CanonicalView {
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
            told: ToldBlocks::default(),
            safe: None,
            finalized_tag: None,
            finality: Finality::default(),
            doubt: None,
            suspension: None,
        }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the head of the tracked branch, even if the view is not fresh.
    pub fn head(&self) -> Option<Link> {
        self.branch.window.top()
    }

    /// Returns whether one node answers, which does not contradict itself.
    pub fn is_one_node(&self) -> bool {
        self.rules.development || self.rules.consistent
    }

    /// Returns whether one node answers, and the last look at its head showed this block.
    pub fn is_at(&self, head: Option<Link>) -> bool {
        self.is_one_node() && head.is_some() && self.head() == head && !self.lags()
    }

    /// Returns the finalized block, which follows from the upstream's `finalized` tag or from the configured depth.
    pub fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.finality.highest()
    }

    /// Returns the known final blocks above `above`, up to and including `up_to`.
    pub fn final_blocks(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> Vec<(BlockNumber, BlockHash)> {
        self.finality.between(above, up_to).collect()
    }

    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.branch.window.len(), self.finality.len())
    }

    pub(crate) fn refreshed(&self) -> Option<Stamp> {
        self.fresh
    }

    /// Returns whether the view is fresh enough for a call that arrived at `arrival`.
    pub fn is_fresh(&self, arrival: Stamp) -> bool {
        self.fresh.is_some_and(|sent| self.serves(sent, arrival)) && !self.is_behind()
    }

    /// Returns whether the head was requested before `safe` or `finalized` named a higher block.
    pub(super) fn is_behind(&self) -> bool {
        let mut tags = [self.safe, self.finalized_tag].into_iter().flatten();
        tags.any(|tag| self.is_ahead(tag.link))
    }

    /// Returns whether a head that was requested at `sent` may serve a call that arrived at `arrival`. It may not if a
    /// client was told of a higher block in between.
    pub fn serves(&self, sent: Stamp, arrival: Stamp) -> bool {
        sent.serves(arrival, self.rules.max_staleness) && !self.told.outdate(sent, arrival)
    }

    /// Returns whether a number is above the tracked head, while the upstream does not deny the finalized block.
    pub fn is_above_head(&self, number: BlockNumber) -> bool {
        self.suspension.is_none() && self.head().is_some_and(|head| number > head.number)
    }

    /// Returns the highest block that the head requested at `sent` should reach, because an answer named it before.
    pub(crate) fn told(&self, sent: Stamp) -> Option<ToldBlock> {
        // One node does not lag: with a lower head, it has rolled back.
        self.told.due(sent).filter(|_| !self.is_one_node())
    }

    /// Returns whether the tracker still accepts the answer to a request sent at `sent`. The first head, a reorg, a
    /// rollback, a restart of the window, a write and an alarm each invalidate all requests sent earlier.
    pub fn counts(&self, sent: Stamp) -> bool {
        !self.not_before.is_some_and(|since| sent.is_before(since))
    }

    /// Returns whether the upstream shows a head that contradicts a final block, or a lower head than before, but not
    /// for long enough to count as a rollback.
    pub fn lags(&self) -> bool {
        self.branch.lags()
    }

    // ## Heads

    /// Returns the numbers to request in order to relate `head` to the tracked branch. `None` if there are none or too
    /// many, or if the head is known to be final, because a final block is on the tracked branch.
    pub fn gap(&self, head: Link) -> Option<Gap> {
        if self.is_final_block(head) { None } else { self.branch.gap(head) }
    }

    /// Returns the parent to request by hash in order to relate `head` to the tracked branch, given the known blocks
    /// `between`. `None` if the relation is known, or if no parent can show it. Also `None` while no finalized block is
    /// known, because then the blocks requested by number are enough.
    pub fn missing_parent(&self, head: Link, between: &[Link]) -> Option<BlockHash> {
        let is_worth_it = self.finality.highest().is_some() && !self.is_final_block(head);
        self.branch.missing_parent(head, between).filter(|_| is_worth_it)
    }

    /// Returns whether neither `head` nor the blocks `between` link to the tracked branch. Such a head may belong to
    /// another chain.
    pub fn is_detached(&self, head: Link, between: &[Link]) -> bool {
        !self.is_final_block(head) && self.branch.relation(head, between) == Relation::Detached
    }

    /// Returns the finalized block if the endpoint that showed `head` must also show that block. There are three cases:
    /// the upstream denies that block; `head` is not the first head, and is not known to be on the branch of that
    /// block; or `head` would roll the tracked branch back below that block.
    pub fn must_show(&self, head: Link, between: &[Link], now: Stamp) -> Option<(BlockNumber, BlockHash)> {
        let finalized = self.finality.highest()?;
        if self.suspension.is_some() {
            return Some(finalized);
        }
        let is_linked = match self.branch.relation(head, between) {
            Relation::First => true,
            // An unlinked final block rests on one answer, and the upstream may have rolled back below the finalized
            // block before it gave that answer.
            _ if self.is_final_block(head) && self.finality.is_unlinked(head.number) => false,
            _ if self.is_final_block(head) => !self.rolls_back_to(head, now),
            Relation::Within => head.number >= finalized.0 || !self.rolls_back_to(head, now),
            Relation::Above(parent) => parent.number >= finalized.0,
            Relation::Detached => false,
        };
        (!is_linked).then_some(finalized)
    }

    pub(super) fn is_final_block(&self, link: Link) -> bool {
        self.finality.get(link.number) == Some(link.hash)
    }

    /// Returns whether this block is known to be final, and is old: older than the finalized block by `final_margin`, or
    /// known to be final for that long.
    pub fn is_old_final_block(&self, link: Link, now: Stamp) -> bool {
        self.is_final_block(link) && self.finality.is_old(link, now, self.rules.final_margin)
    }

    /// Returns whether taking in this head, which is on the tracked branch, makes a rollback.
    pub(super) fn rolls_back_to(&self, head: Link, now: Stamp) -> bool {
        self.head() != Some(head) && self.branch.would_roll_back(&self.rules, now)
    }

    /// Returns whether a head contradicts the finalized block or any other final block.
    pub(super) fn contradicts_final(&self, head: Link, between: &[Link]) -> bool {
        let Some((finalized, hash)) = self.finality.highest() else { return false };
        let lineage = ancestry(head, between);
        let leaves_below = match self.branch.relation(head, between) {
            Relation::Above(parent) => {
                let descends = lineage.iter().any(|link| link.hash == hash);
                parent.number < finalized && head.number >= finalized && !descends
            }
            // If an ancestor of the finalized block is known right above this head, the head must be its parent.
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

    // ## A finalized block that the upstream contradicts

    /// Returns whether answers contradict the finalized block, but not often and not long enough to count.
    pub fn is_doubted(&self) -> bool {
        self.doubt.is_some()
    }

    /// Returns whether the upstream denies the finalized block. In this state every lookup returns [`Lookup::Unknown`].
    pub fn is_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Returns whether a refresh of the head may start. Refreshes are limited to one per second while the upstream
    /// denies the finalized block, and not limited otherwise.
    pub fn may_refresh(&self, now: Stamp) -> bool {
        self.suspension.is_none_or(|suspension| suspension.is_due(now.time))
    }

    // ## Single numbers

    /// Checks that neither the final index nor the tracked branch contradicts this block at this number.
    ///
    /// # Errors
    /// If another block is tracked or final at this number.
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

    /// Returns whether a block from an answer to a request sent at `sent` may have left the chain since then. That is
    /// the case if another block is tracked or final at its number, if blocks left the chain and this block is not
    /// known to have stayed, or if the window has moved past its number.
    pub fn may_have_left(&self, number: BlockNumber, hash: BlockHash, sent: Stamp) -> bool {
        let stays = || self.finality.get(number) == Some(hash) || self.branch.window.get(number).is_some();
        self.agrees(number, hash).is_err()
            || (self.has_left(sent) && !stays())
            || self.has_outgrown(number, sent)
    }

    /// Returns whether the window has moved past `number` since a request was sent at `sent`, so that the view no
    /// longer knows the block there. Returns false if the block there is known to be final.
    pub fn has_outgrown(&self, number: BlockNumber, sent: Stamp) -> bool {
        let is_below = self.branch.window.bottom().is_some_and(|bottom| number < bottom.number);
        let mut outgrown = self.outgrown.iter().filter(|(at, _)| sent.is_before(*at));
        is_below && self.finality.get(number).is_none() && outgrown.any(|(_, lowest)| *lowest <= number)
    }

    /// Checks that an answer to a request sent at `sent` can still be compared with the tracked blocks.
    ///
    /// # Errors
    /// If the window has moved past `number`.
    pub(super) fn is_in_time(&self, number: BlockNumber, sent: Stamp) -> Result<(), Contrary> {
        if self.has_outgrown(number, sent) { Err(Contrary::Tracked) } else { Ok(()) }
    }

    /// Returns whether blocks left the canonical chain after `since`, or may have left it.
    pub fn has_left(&self, since: Stamp) -> bool {
        self.left.is_some_and(|left| since.is_before(left))
    }

    /// Returns whether the newest answer for this transaction names this block, and is recent enough for a call that
    /// arrived at `arrival`.
    pub fn is_placed(&self, transaction: TxHash, block: BlockHash, arrival: Stamp) -> bool {
        let sent = self.placed.get(transaction, block);
        sent.is_some_and(|sent| sent.serves(arrival, self.rules.max_staleness))
    }

    /// Returns the block that the last answer for this number named, even if it is old. Unless [`lookup`](Self::lookup)
    /// names it, too, use it only to find content.
    pub fn hint_at(&self, number: BlockNumber) -> Option<Link> {
        self.answered.get(number).map(|asked| asked.link)
    }

    /// Returns the canonical block at `number`, as known for a call that arrived at `arrival`.
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
        match self.answered.get(number).filter(|asked| !asked.is_refuted) {
            Some(asked) if asked.sent.serves(arrival, self.rules.max_staleness) => {
                // Holdfast serves no block above the block that `latest` resolves to.
                if above { Lookup::Unknown } else { Lookup::Asked(asked.link.hash) }
            }
            // A final number has a block, even if the upstream has shown a lower head since. A fresh lower head hides
            // the blocks above it; an old one says nothing about them.
            _ if above && !(fresh && self.lags()) && !self.is_final(number) => Lookup::Above { fresh },
            Some(asked) if self.rules.consistent && asked.below_head && !above => {
                Lookup::Tracked { hash: asked.link.hash, fresh }
            }
            _ => Lookup::Unknown,
        }
    }

    pub(crate) fn final_above(&self, number: BlockNumber) -> Option<BlockNumber> {
        self.finality.above(number)
    }

    pub(crate) fn has_forgotten(&self, since: Stamp) -> bool {
        !self.finality.counts(since)
    }

    /// Returns whether one answer, requested at `sent`, is enough to make this block final.
    pub fn is_settled(&self, link: Link, sent: Stamp) -> bool {
        self.rules.consistent || self.finality.is_old(link, sent, self.rules.final_margin)
    }

    /// Returns whether this block is known to be canonical, for a call that arrived at `arrival`. Scans all known blocks.
    pub fn is_canonical(&self, hash: BlockHash, arrival: Stamp) -> bool {
        let is_at = |number| {
            [Lookup::Final(hash), Lookup::Tracked { hash, fresh: true }, Lookup::Asked(hash)]
                .contains(&self.lookup(number, arrival))
        };
        self.number_of(hash).is_some_and(is_at)
    }

    /// Returns whether a number is above the head that the upstream showed last, or above the tracked head if that is
    /// lower.
    pub fn is_above_shown(&self, number: BlockNumber) -> bool {
        self.branch.shown().is_some_and(|shown| number > shown)
    }

    /// Returns the final or tracked hash at this number, even if the view is not fresh or the number is above a lagging
    /// upstream's head; `None` while suspended. Used to judge `null` answers.
    pub fn known_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let tracked = || self.branch.window.get(number).map(|link| link.hash);
        self.finality.get(number).or_else(tracked).filter(|_| self.suspension.is_none())
    }

    /// Returns the number of this block on the tracked branch. Scans the window.
    pub fn tracked_number(&self, hash: BlockHash) -> Option<BlockNumber> {
        let mut links = self.branch.window.up_to(BlockNumber(u64::MAX));
        links.find(|link| link.hash == hash).map(|link| link.number)
    }

    /// Returns the number at which this block is tracked, final or answered. Scans all entries.
    pub fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.tracked_number(hash)
            .or_else(|| self.finality.number_of(hash))
            .or_else(|| self.answered.number_of(hash))
    }

    /// Returns whether the final block at `number` is unlinked: it rests on a single answer or on the own disk.
    pub fn is_unlinked(&self, number: BlockNumber) -> bool {
        self.finality.is_unlinked(number)
    }

    /// Returns the final or tracked hash at this number, or the hash from an answer that is recent enough for a call
    /// that arrived at `arrival`.
    pub fn canonical_at(&self, number: BlockNumber, arrival: Stamp) -> Option<BlockHash> {
        let asked = || match self.lookup(number, arrival) {
            Lookup::Asked(hash) => Some(hash),
            _ => None,
        };
        self.known_at(number).or_else(asked)
    }

    /// Returns whether the canonical block at this number has become final within `Rules::final_margin`.
    pub fn is_newly_final(&self, number: BlockNumber) -> bool {
        self.finality.is_new(number)
    }

    /// Returns whether the canonical block at this number is final. Any other block with the number is an orphan.
    pub fn is_final(&self, number: BlockNumber) -> bool {
        self.finality.covers(number)
    }

    pub(crate) fn skips(&self, number: BlockNumber) -> bool {
        self.branch.window.skips(number)
    }

    /// Returns whether a block with this number and hash cannot be on the tracked branch.
    pub fn excludes(&self, number: BlockNumber, hash: BlockHash) -> bool {
        self.branch.window.excludes(number, hash)
    }

    // ## Safe and finalized

    /// Returns whether an answer to a request sent at `sent` may advance finality. It may not if blocks left the chain
    /// since then, because it may name an orphan. Writes do not matter.
    pub fn hears_of_finality(&self, sent: Stamp) -> bool {
        self.rules.finality && self.suspension.is_none() && self.finality.counts(sent) && !self.has_left(sent)
    }

    pub(crate) fn safe(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.safe, arrival)
    }

    pub(crate) fn finalized_tag(&self, arrival: Stamp) -> Option<Link> {
        self.tag(self.finalized_tag, arrival)
    }

    /// Returns the block of `safe` or `finalized` that shows that the node with this head lags. The head was requested at
    /// `sent`.
    pub fn tagged_above(&self, head: Link, sent: Stamp) -> Option<Link> {
        if self.is_one_node() {
            // It does not lag, but has rolled back.
            return None;
        }
        // After a reorg, the safe block may be an orphan.
        let safe = self.safe(sent).filter(|_| !self.excludes(head.number, head.hash));
        let above = safe.into_iter().chain(self.finalized_tag(sent)).filter(|tag| head.number < tag.number);
        above.max_by_key(|tag| tag.number)
    }

    pub(super) fn tag(&self, tag: Option<TaggedBlock>, arrival: Stamp) -> Option<Link> {
        tag.filter(|named| named.sent.serves(arrival, self.rules.max_staleness)).map(|named| named.link)
    }

    /// Returns whether `lower`, the block of `safe` or `finalized`, is an ancestor of the tracked or final block
    /// `upper`.
    pub fn ancestry(&self, lower: Link, upper: Link) -> Ancestry {
        let is_apart = lower.number > upper.number
            || self.excludes(lower.number, lower.hash)
            || self.known_at(upper.number) != Some(upper.hash);
        if is_apart {
            return Ancestry::Apart;
        }
        if self.branch.window.holds(lower) || self.is_final_block(lower) {
            return Ancestry::Ancestor;
        }
        // `lower` is below the window. If the tracked head was requested after the tag was first seen, the tagged block
        // is still on the chain, because a reorg would have cleared the tag.
        match self.is_head_newer(lower) {
            None => Ancestry::Apart,
            // In a doubt, refused heads of lagging replicas do not confirm the tracked head.
            Some(true) if !self.is_doubted() => Ancestry::Ancestor,
            Some(_) => Ancestry::Unsure,
        }
    }

    /// Returns whether `upper` is known to descend from `lower`, or to be the same block.
    pub fn descends(&self, upper: Link, lower: Link) -> bool {
        upper.parent == lower.hash || self.ancestry(lower, upper) == Ancestry::Ancestor
    }

    /// Returns whether the tracked head was requested after a tag first named this block; `None` if no tag names it.
    pub fn is_head_newer(&self, tagged: Link) -> Option<bool> {
        let mut tags = [self.safe, self.finalized_tag].into_iter().flatten();
        let named = tags.find(|named| named.link == tagged)?;
        Some(self.fresh.is_some_and(|fresh| !fresh.is_before(named.first_seen)))
    }

    /// Returns whether the block of `safe` or `finalized` is above a head that was requested before the tag named it.
    pub fn is_ahead(&self, tagged: Link) -> bool {
        self.is_above_head(tagged.number) && self.is_head_newer(tagged) == Some(false)
    }

    pub(super) fn is_outdated(&self, sent: Stamp, known: Option<TaggedBlock>) -> bool {
        known.is_some_and(|known| sent.is_before(known.sent)) || !self.counts(sent)
    }
}

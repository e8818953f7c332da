//! Updates the canonical view with an upstream's heads and answers.

use std::{ops::Deref, time::Duration};

use super::{
    answered::AnsweredNumber,
    branch::{Branch, HeadChange},
    canonical_view::CanonicalView,
    finality::{Finality, Finalized, Taken},
    rules::Rules,
    stamp::Stamp,
    suspension::{Contradictions, Denied, Suspension},
    tagged_block::TaggedBlock,
    told::ToldBlock,
    window::{Contrary, Find, Link},
};
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// Maximum length of `outgrown`. During one call, the lowest number of the window should rise fewer times than this.
const MOST_OUTGROWN: usize = 16;

/// Updates the [`CanonicalView`] of one upstream's chain as heads and answers arrive.
///
/// Dereferences to the view for reading.
#[derive(Clone, Debug)]
pub struct Tracker {
    view: CanonicalView,
}

// === impl Tracker ===

impl Deref for Tracker {
    type Target = CanonicalView;

    fn deref(&self) -> &CanonicalView {
        &self.view
    }
}

impl Tracker {
    /// Maximum number of missing blocks between a head and the window that Holdfast requests, all in one batch. A
    /// larger gap is not worth the requests.
    pub const MAX_GAP: u64 = Branch::MAX_GAP;

    /// Returns an empty tracker.
    pub fn new(rules: Rules) -> Self {
        Self { view: CanonicalView::new(rules) }
    }

    /// Sets whether the upstream is a single node, which does not contradict itself.
    pub fn set_consistent(&mut self, consistent: bool) {
        self.view.rules.consistent = consistent;
    }

    /// Sets the maximum age of answers. The new limit applies to earlier answers, too.
    pub fn set_max_staleness(&mut self, max_staleness: Duration) {
        self.view.rules.max_staleness = max_staleness;
    }

    // ## Heads

    /// Takes in a head. `between` contains blocks between the head and the window, in any order. `shown` is the
    /// finalized block, if the endpoint that showed the head has shown that block, too.
    pub fn observe_head(
        &mut self,
        head: Link,
        between: &[Link],
        shown: Option<(BlockNumber, BlockHash)>,
        sent: Stamp,
        now: Stamp,
    ) -> HeadChange {
        if self.view.fresh.is_some_and(|since| sent.is_before(since)) || !self.counts(sent) {
            return HeadChange::Outdated;
        }
        let must_show = self.must_show(head, between, now);
        let is_shown = must_show.is_none() || must_show == shown;
        if !is_shown && !self.is_doubted() {
            return HeadChange::Unlinked;
        }
        self.view.suspension = None;
        let (before, lowest) = (self.head(), self.view.branch.window.bottom());
        let is_above = before.is_none_or(|before| before.number < head.number);
        let is_tagged = is_above && self.view.finalized_tag.is_some_and(|tag| tag.link == head);
        let change =
            if (!is_shown && !is_tagged) || (must_show.is_some() && self.contradicts_final(head, between)) {
                // Final blocks stay readable, even above this head.
                let finalized = self.finalized().map_or(head.number, |(number, _)| number);
                self.view.branch.refuse_head(head.number.max(finalized), now)
            } else if before.is_some_and(|before| head.number < before.number) && self.is_final_block(head) {
                // A final block is on the tracked branch, even if it is below the window.
                self.view.branch.observe_lower_head(head, &self.view.rules, now)
            } else {
                self.view.branch.observe_head(head, between, &self.view.rules, now)
            };
        self.view.fresh = Some(sent);
        self.view.told.close(|told| told.number <= head.number);
        if let (Some(lowest), Some(bottom)) = (lowest, self.view.branch.window.bottom())
            && lowest.number < bottom.number
        {
            if self.view.outgrown.len() == MOST_OUTGROWN {
                self.view.outgrown.pop_front();
            }
            self.view.outgrown.push_back((now, lowest.number));
        }
        if let HeadChange::First | HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted =
            change
        {
            // Earlier answers for single numbers may belong to an orphaned branch: the chain has just left that branch,
            // or left it unnoticed before the first head. The same holds for answers that are still in flight, even if
            // their requests were sent after the request for this head, because a node need not answer in order.
            self.invalidate_hints(now);
        }
        if let HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted = change {
            self.view.left = Some(now);
        }
        if let (HeadChange::Extended(_), Some(before)) = (change, before) {
            // Drops the answers for numbers between the two heads, because the tracker has seen all blocks there, even
            // if the window had no room for them.
            self.view.answered.retain(|number| number <= before.number || number > head.number);
        }
        self.view.answered.move_into(&mut self.view.branch.window);
        self.finalize_by_depth(now);
        change
    }

    /// Records that a client was told of this block. If it is above the head, calls that arrive later need a head that was
    /// requested later.
    pub fn tell(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        self.view.told.note(number, hash, now);
    }

    /// Forgets the block above the head that a client was told of: the node does not show it.
    pub fn forget_told(&mut self, told: ToldBlock) {
        self.view.told.close(|it| *it == told);
    }

    // ## A finalized block that the upstream contradicts

    /// Records that an answer contradicts this finalized block, and returns whether the contradiction counts. At first it
    /// does not, because a replica behind the upstream's URL may lag.
    pub fn doubt_finalized(&mut self, finalized: (BlockNumber, BlockHash), now: Stamp) -> bool {
        if self.finalized() != Some(finalized) {
            return false;
        }
        let doubt = Contradictions::and_one(self.view.doubt, now.time);
        let counts = self.rules().consistent || self.is_suspended() || doubt.count(now.time);
        self.view.doubt = (!counts).then_some(doubt);
        counts
    }

    /// Forgets the contradictions: the upstream shows the finalized block, or does not answer any more.
    pub fn end_doubt(&mut self) {
        self.view.doubt = None;
    }

    /// Records that a refresh starts at `now`. While the upstream denies the finalized block, the next refresh is due a
    /// second later, even if this refresh fails.
    pub fn begin_refresh(&mut self, now: Stamp) {
        if let Some(suspension) = &mut self.view.suspension {
            suspension.ask(now.time);
        }
    }

    /// Records that the endpoint with this head does not have the finalized block. After an [alarm](Denied::Alarm) the
    /// tracker is empty.
    pub fn deny_finalized(
        &mut self,
        finalized: (BlockNumber, BlockHash),
        head: BlockNumber,
        now: Stamp,
    ) -> Denied {
        if !self.doubt_finalized(finalized, now) {
            return Denied::Doubted;
        }
        let suspension = self.view.suspension.get_or_insert(Suspension::new(now.time));
        let denied = suspension.deny(head, finalized.0, now.time);
        if denied == Denied::Alarm {
            self.forget(now);
        }
        denied
    }

    // ## Single numbers

    /// Takes in the upstream's block at a number, requested at `sent`. `find` looks up cached blocks, which may link
    /// final blocks to each other.
    ///
    /// # Errors
    /// If another block is tracked at that number, if the block contradicts a final block, or if the window has moved
    /// past that number since `sent`.
    pub fn observe_number(&mut self, link: Link, sent: Stamp, find: Find<'_>) -> Result<(), Contrary> {
        if !self.counts(sent) || self.view.suspension.is_some() {
            return Ok(());
        }
        if self.is_final(link.number) {
            let taken = self.view.finality.observe_number(
                link,
                &self.view.branch.window,
                sent,
                &self.view.rules,
                find,
            )?;
            if taken == Taken::Final {
                return Ok(());
            }
        } else if self.excludes(link.number, link.hash) {
            return Err(Contrary::Tracked);
        }
        if self.view.branch.window.get(link.number).is_some() {
            return Ok(());
        }
        self.is_in_time(link.number, sent)?;
        let below_head = self.head().is_some_and(|head| link.number <= head.number);
        self.view.answered.insert(AnsweredNumber { link, sent, below_head, is_refuted: false });
        self.view.answered.move_into(&mut self.view.branch.window);
        Ok(())
    }

    /// Takes in a run of blocks that the own disk has for final numbers that the upstream no longer has, all or none. They
    /// were final and proved when the disk stored them. `asked` is when the upstream was asked.
    pub fn restore_run(&mut self, run: &[Link], asked: Stamp) {
        let has_room = |link: &Link| {
            let named = self.view.answered.get(link.number);
            self.is_final(link.number)
                && named.is_none_or(|named| named.link.hash == link.hash)
                && self.view.finality.has_room(*link, &self.view.branch.window)
        };
        if self.counts(asked) && self.view.suspension.is_none() && run.iter().all(has_room) {
            run.iter().for_each(|link| self.view.finality.restore(*link));
        }
    }

    /// Takes in proved ancestors of the final block at `number`. `find` returns them by hash.
    pub fn observe_ancestors(&mut self, number: BlockNumber, find: Find<'_>) {
        if self.view.suspension.is_none() {
            self.view.finality.observe_ancestors(number, find);
        }
    }

    /// Takes in the block that a single transaction or receipt names, requested at `sent`. Nothing proves that the
    /// transaction is in that block, so the view uses this answer for that transaction only.
    ///
    /// # Errors
    /// If another block is tracked or final at that number, or if the window has moved past that number since `sent`.
    pub fn observe_place(
        &mut self,
        transaction: TxHash,
        number: BlockNumber,
        block: BlockHash,
        sent: Stamp,
    ) -> Result<(), Contrary> {
        if self.counts(sent) && self.view.suspension.is_none() {
            self.agrees(number, block)?;
            self.is_in_time(number, sent)?;
            self.view.answered.remove_other(number, block, sent);
            self.view.placed.insert(transaction, block, sent);
        }
        Ok(())
    }

    /// Takes in a block from any request. If it is the parent of the window's lowest block and the window has room, it
    /// joins the window. If its number is final and it links to the window or to a linked final block, it becomes
    /// final. Returns whether it joined the window.
    pub fn observe_block(&mut self, link: Link, find: Find<'_>) -> bool {
        if self.view.suspension.is_some() {
            return false;
        }
        let linked = self.view.branch.window.push_below(link);
        if linked {
            self.view.answered.move_into(&mut self.view.branch.window);
        }
        self.view.finality.observe_block(link, &self.view.branch.window, find);
        linked
    }

    /// Returns the blocks that became final since the last call, except a new finalized block and the blocks of the
    /// window that became final with it.
    pub fn take_entered(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        std::mem::take(&mut self.view.finality.consequences().entered)
    }

    /// Returns the final blocks that were dropped since the last call, because an answer contradicted or denied them.
    pub fn take_dropped(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        std::mem::take(&mut self.view.finality.consequences().dropped)
    }

    /// Forgets that this block is canonical at `number`, because the upstream does not have the block. A linked final
    /// block stays final. Returns whether an unlinked final block was forgotten.
    pub fn remove_denied(&mut self, number: BlockNumber, hash: BlockHash) -> bool {
        self.view.answered.remove(number, hash);
        self.view.finality.remove_unlinked(number, hash)
    }

    // ## Safe and finalized

    /// Takes in the block that `safe` resolves to.
    pub fn observe_safe(&mut self, safe: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.view.safe) {
            self.view.safe = Some(TaggedBlock::again(self.view.safe, safe, sent, now));
        }
    }

    /// Takes in the block that `finalized` resolves to, without advancing finality.
    pub fn observe_finalized_tag(&mut self, finalized: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.view.finalized_tag) {
            self.view.finalized_tag = Some(TaggedBlock::again(self.view.finalized_tag, finalized, sent, now));
        }
    }

    /// Takes in the block that `finalized` resolves to, and advances finality. `finalized` is `None` if the answer
    /// names no block.
    pub fn observe_finalized(
        &mut self,
        finalized: Option<Link>,
        sent: Stamp,
        now: Stamp,
        find: Find<'_>,
    ) -> Finalized {
        let Some(link) = finalized else { return Finalized::Unchanged };
        self.observe_finalized_tag(link, sent, now);
        if !self.hears_of_finality(sent) {
            return Finalized::Unchanged;
        }
        self.finalize(link, now, find)
    }

    /// Compares the upstream's block at a final number with the known final block.
    pub fn confirm_final(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) -> Finalized {
        let outcome = self.view.finality.confirm(number, hash);
        self.apply_finality(outcome, now)
    }

    fn finalize(&mut self, link: Link, now: Stamp, find: Find<'_>) -> Finalized {
        let outcome = self.view.finality.advance(link, &self.view.branch.window, &self.view.rules, now, find);
        self.apply_finality(outcome, now)
    }

    fn finalize_by_depth(&mut self, now: Stamp) {
        let Some(depth) = self.view.rules.finality_depth.filter(|_| self.view.rules.finality) else { return };
        let number = self.head().and_then(|head| head.number.0.checked_sub(depth));
        if let Some(link) = number.and_then(|number| self.view.branch.window.get(BlockNumber(number))) {
            // `find` returns nothing here: later answers link the cached blocks below.
            self.finalize(link, now, &|_| None);
        }
    }

    /// Updates the rest of the view after a change of finality.
    fn apply_finality(&mut self, outcome: Finalized, now: Stamp) -> Finalized {
        let finalized = self.finalized();
        match outcome {
            Finalized::Alarm if finalized.is_some_and(|block| !self.doubt_finalized(block, now)) => {
                return Finalized::Doubted;
            }
            Finalized::Unchanged | Finalized::Contrary | Finalized::Doubted => {}
            // Drops the earlier answers for numbers that are final now. If no head was requested during a reorg, these
            // answers may name orphans.
            Finalized::Advanced { .. } => {
                self.view.answered.retain(|number| !self.view.finality.covers(number));
            }
            // A final block was replaced, so the rest of the view cannot be trusted either.
            Finalized::Alarm => self.forget(now),
        }
        outcome
    }

    // ## Writes

    /// Records that a write, which may change the chain, was sent or answered. The tracker then ignores answers to
    /// requests sent before `now`, except answers about finality.
    pub fn invalidate_after_write(&mut self, now: Stamp) {
        self.view.fresh = None;
        self.invalidate_hints(now);
    }

    /// Forgets all canonicity and accepts the next head unconditionally. Used when a finalized block was replaced or
    /// denied, when a node was reset to another chain, and when an endpoint turned out to serve another chain.
    pub fn forget(&mut self, now: Stamp) {
        *self = Self::new(self.view.rules.clone());
        (self.view.not_before, self.view.left) = (Some(now), Some(now));
        self.view.finality = Finality::forgotten(now);
    }

    /// Drops all answers outside the window (for numbers, transactions and tags), and makes the tracker ignore answers
    /// to requests sent before `now`.
    fn invalidate_hints(&mut self, now: Stamp) {
        self.view.not_before = Some(now);
        self.view.answered.clear();
        self.view.placed.clear();
        self.view.safe = None;
        self.view.finalized_tag = None;
    }
}

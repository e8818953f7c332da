//! Follows one upstream's chain by what it is told.

use std::{ops::Deref, time::Duration};

use super::{
    answered::AnsweredNumber,
    branch::{Branch, HeadChange},
    canonical_view::CanonicalView,
    finality::{Finality, Finalized, Taken},
    rules::Rules,
    stamp::Stamp,
    suspension::{Denied, Suspension},
    tagged_block::TaggedBlock,
    window::{Contrary, Find, Link},
};
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// Rises of the lowest tracked block that are remembered: more than come during one call.
const MOST_OUTGROWN: usize = 16;

/// Changes the [`CanonicalView`] of one upstream's chain as heads and answers arrive.
///
/// It dereferences to the view, which answers questions.
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
    /// A gap up to this is closed by one batch; a larger one is not worth it.
    pub const MAX_GAP: u64 = Branch::MAX_GAP;

    /// Knows nothing.
    pub fn new(rules: Rules) -> Self {
        Self { view: CanonicalView::new(rules) }
    }

    /// From here on the upstream is one node that does not contradict itself, or is not.
    pub fn set_consistent(&mut self, consistent: bool) {
        self.view.rules.consistent = consistent;
    }

    /// Changes how old knowledge may be, that which is there already too.
    pub fn set_max_staleness(&mut self, max_staleness: Duration) {
        self.view.rules.max_staleness = max_staleness;
    }

    /// Takes in what was final before a restart, for as long as nobody can be asked. Whether anything is final on this chain
    /// is for whoever says so: the rules are those of a chain that is not known yet.
    pub fn restore_finality(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        self.view.finality.restore(number, hash, now);
    }

    // ## Heads

    /// Takes in a head, with blocks between it and the window in any order. `shown` is the finalized block, if whoever
    /// showed the head has shown that, too.
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
        if must_show.is_some() && must_show != shown {
            return HeadChange::Unlinked;
        }
        self.view.suspension = None;
        let (before, lowest) = (self.head(), self.view.branch.window.bottom());
        let change = if must_show.is_some() && self.contradicts_final(head, between) {
            self.view.branch.refuse_head(head, now)
        } else if before.is_some_and(|before| head.number < before.number) && self.is_final_block(head) {
            // Also below the window.
            self.view.branch.observe_lower_head(head, &self.view.rules, now)
        } else {
            self.view.branch.observe_head(head, between, &self.view.rules, now)
        };
        self.view.fresh = Some(sent);
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
            // What was asked for by itself may stand on what has just been left; before the first head
            // nobody saw what was left. So may whatever is still under way, even if it was sent after
            // this head: a node need not answer in order.
            self.invalidate_hints(now);
        }
        if let HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted = change {
            self.view.left = Some(now);
        }
        if let (HeadChange::Extended(_), Some(before)) = (change, before) {
            // Between the two heads the chain has been shown, whether the window had room for it or not.
            self.view.answered.retain(|number| number <= before.number || number > head.number);
        }
        self.view.answered.move_into(&mut self.view.branch.window);
        self.finalize_by_depth(now);
        change
    }

    // ## A finalized block that is denied

    /// A refresh is sent: while the finalized block is denied, the next one is due a second later, whatever comes of it.
    pub fn begin_refresh(&mut self, now: Stamp) {
        if let Some(suspension) = &mut self.view.suspension {
            suspension.ask(now.time);
        }
    }

    /// Records that the endpoint with this head has no block at the finalized number. After an [alarm](Denied::Alarm) the
    /// tracker is empty.
    pub fn deny_finalized(
        &mut self,
        finalized: (BlockNumber, BlockHash),
        head: BlockNumber,
        now: Stamp,
    ) -> Denied {
        if self.view.finality.highest() != Some(finalized) {
            return Denied::Suspended;
        }
        let suspension = self.view.suspension.get_or_insert(Suspension::new(now.time));
        let denied = suspension.deny(head, finalized.0, now.time);
        if denied == Denied::Alarm {
            self.forget(now);
        }
        denied
    }

    // ## Single numbers

    /// Takes in a block that was answered for its number, and asked for at `sent`. `find` has other blocks: what is
    /// final may be linked through them.
    ///
    /// # Errors
    /// If another block is tracked there, or linked to what is final.
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
        self.view.answered.insert(AnsweredNumber { link, sent, below_head });
        self.view.answered.move_into(&mut self.view.branch.window);
        Ok(())
    }

    /// Takes in a block that a tier has at its number, and was asked for at `sent`.
    ///
    /// # Errors
    /// If another block is tracked there, or final.
    pub fn restore_number(&mut self, link: Link, sent: Stamp) -> Result<(), Contrary> {
        if !self.counts(sent) || self.view.suspension.is_some() || !self.is_final(link.number) {
            return Ok(());
        }
        // The tier may not have dropped yet what an answer has contradicted.
        if self.view.answered.get(link.number).is_some_and(|asked| asked.link.hash != link.hash) {
            return Err(Contrary::Final);
        }
        self.view.finality.restore_number(link, &self.view.branch.window, sent)
    }

    /// Takes in the block that a single transaction or receipt names, as an answer that was asked for at `sent`. Nothing
    /// proves that it is there, so this speaks for that transaction alone.
    ///
    /// # Errors
    /// If another block is tracked at that number, or final.
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
            self.view.placed.insert(transaction, number, block, sent);
        }
        Ok(())
    }

    /// Takes in a block, however it was asked for: if the window's lowest block names it as its
    /// parent, it is canonical as long as that one is; if one that is final does, it is final.
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

    /// Entries that became final since this was last called.
    pub fn take_entered(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        std::mem::take(&mut self.view.finality.consequences().entered)
    }

    /// Final entries that were contradicted and dropped since this was last called.
    pub fn take_dropped(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        self.view.finality.take_dropped()
    }

    /// This block is known not to have this number, whoever said so: that it stands there is forgotten.
    pub fn remove(&mut self, number: BlockNumber, hash: BlockHash) {
        self.view.finality.remove(number, hash);
        self.view.answered.remove(number, hash);
    }

    /// The upstream has no block with this hash: that it stands at a number is forgotten, unless it is linked to what is
    /// final. Returns whether it was taken to stand there for good.
    pub fn remove_denied(&mut self, number: BlockNumber, hash: BlockHash) -> bool {
        self.view.answered.remove(number, hash);
        self.view.finality.remove_unlinked(number, hash)
    }

    // ## Safe and finalized

    /// Takes in what `safe` means.
    pub fn observe_safe(&mut self, safe: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.view.safe) {
            self.view.safe = Some(TaggedBlock::again(self.view.safe, safe, sent, now));
        }
    }

    /// Takes in what `finalized` means, and nothing of what is final.
    pub fn observe_finalized_tag(&mut self, finalized: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.view.finalized_tag) {
            self.view.finalized_tag = Some(TaggedBlock::again(self.view.finalized_tag, finalized, sent, now));
        }
    }

    /// Takes in what `finalized` means, and that it is final; `None` for an answer that names no block.
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

    /// Takes in what stands at a number that was final before.
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
            // What is cached below is linked when it is asked for.
            self.finalize(link, now, &|_| None);
        }
    }

    /// Draws the consequences for all else that is known.
    fn apply_finality(&mut self, outcome: Finalized, now: Stamp) -> Finalized {
        match outcome {
            Finalized::Unchanged | Finalized::Contrary => {}
            // Hints from before: a proxy that slept through a reorg must not wake up believing them.
            Finalized::Advanced { .. } => {
                self.view.answered.retain(|number| !self.view.finality.covers(number));
            }
            // What was final is not: nothing that was known of canonicity can be.
            Finalized::Alarm => self.forget(now),
        }
        outcome
    }

    // ## Writes

    /// Something was sent, or answered, that can change what reads see: nothing sent before this
    /// moment tells what is.
    pub fn invalidate_after_write(&mut self, now: Stamp) {
        self.view.fresh = None;
        self.invalidate_hints(now);
    }

    /// Forgets all canonicity, and takes the next head as it is: the node was told to be another one, or an endpoint turned
    /// out to serve another chain.
    pub fn forget(&mut self, now: Stamp) {
        *self = Self::new(self.view.rules.clone());
        (self.view.not_before, self.view.left) = (Some(now), Some(now));
        self.view.finality = Finality::forgotten(now);
    }

    /// Drops what was told beside the window, and what may still be told of before this moment.
    fn invalidate_hints(&mut self, now: Stamp) {
        self.view.not_before = Some(now);
        self.view.answered.clear();
        self.view.placed.clear();
        self.view.safe = None;
        self.view.finalized_tag = None;
    }
}

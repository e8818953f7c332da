//! Follows one upstream's chain by what it is told.

use std::{collections::VecDeque, time::Duration};

use super::{
    Contrary, Denied, Finalized, Gap, HeadChange, Rules, Stamp,
    asked::{Asked, AskedNumbers},
    branch::{Branch, Relation, lineage as ancestry},
    finality::{Finality, Taken},
    placed::PlacedTransactions,
    suspension::Suspension,
    window::{Find, Link},
};
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// Rises of the lowest tracked block that are remembered: more than come during one call.
const MOST_OUTGROWN: usize = 16;

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

/// The block that a tag means.
#[derive(Clone, Copy, Debug)]
struct Named {
    link: Link,
    /// When it was asked for last.
    sent: Stamp,
    first_seen: Stamp,
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
    /// When blocks last left the chain, or may have.
    left: Option<Stamp>,
    /// When the lowest tracked block rose, and its number before.
    outgrown: VecDeque<(Stamp, BlockNumber)>,
    asked: AskedNumbers,
    placed: PlacedTransactions,
    safe: Option<Named>,
    finalized_tag: Option<Named>,
    finality: Finality,
    /// The upstream denies the finalized block.
    suspension: Option<Suspension>,
}

// === impl Named ===

impl Named {
    /// The block that a tag means now, after it meant what it meant before.
    fn again(before: Option<Self>, link: Link, sent: Stamp, now: Stamp) -> Self {
        let first_seen = before.filter(|before| before.link == link).map_or(now, |before| before.first_seen);
        Self { link, sent, first_seen }
    }
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
            left: None,
            outgrown: VecDeque::new(),
            asked: AskedNumbers::default(),
            placed: PlacedTransactions::default(),
            safe: None,
            finalized_tag: None,
            finality: Finality::default(),
            suspension: None,
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
    fn is_final_block(&self, link: Link) -> bool {
        self.finality.get(link.number) == Some(link.hash)
    }

    /// Returns whether this head, which is lower than the last, is a rollback if it is shown once more.
    fn rolls_back_to(&self, head: Link, now: Stamp) -> bool {
        self.head() != Some(head) && self.branch.would_roll_back(&self.rules, now)
    }

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
        if self.fresh.is_some_and(|since| sent.is_before(since)) || !self.counts(sent) {
            return HeadChange::Outdated;
        }
        let must_show = self.must_show(head, between, now);
        if must_show.is_some() && must_show != shown {
            return HeadChange::Unlinked;
        }
        self.suspension = None;
        let (before, lowest) = (self.head(), self.branch.window.bottom());
        let change = if must_show.is_some() && self.contradicts_final(head, between) {
            self.branch.refuse_head(head, now)
        } else if before.is_some_and(|before| head.number < before.number) && self.is_final_block(head) {
            // Also below the window.
            self.branch.observe_lower_head(head, &self.rules, now)
        } else {
            self.branch.observe_head(head, between, &self.rules, now)
        };
        self.fresh = Some(sent);
        self.seen = Some(now);
        if let (Some(lowest), Some(bottom)) = (lowest, self.branch.window.bottom())
            && lowest.number < bottom.number
        {
            if self.outgrown.len() == MOST_OUTGROWN {
                self.outgrown.pop_front();
            }
            self.outgrown.push_back((now, lowest.number));
        }
        if let HeadChange::First | HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted =
            change
        {
            // What was asked for by itself may stand on what has just been left; before the first head
            // nobody saw what was left. So may whatever is still under way, even if it was sent after
            // this head: a node need not answer in order.
            self.unbelieve(now);
        }
        if let HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted = change {
            self.left = Some(now);
        }
        if let (HeadChange::Extended(_), Some(before)) = (change, before) {
            // Between the two heads the chain has been shown, whether the window had room for it or not.
            self.asked.retain(|number| number <= before.number || number > head.number);
        }
        self.asked.move_into(&mut self.branch.window);
        self.finalize_by_depth(now);
        change
    }

    /// Returns whether a head contradicts the finalized block, or any that is final below it.
    fn contradicts_final(&self, head: Link, between: &[Link]) -> bool {
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

    /// A refresh is sent: while the finalized block is denied, the next one is due a second later, whatever comes of it.
    pub fn begin_refresh(&mut self, now: Stamp) {
        if let Some(suspension) = &mut self.suspension {
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
        if self.finality.highest() != Some(finalized) {
            return Denied::Suspended;
        }
        let suspension = self.suspension.get_or_insert(Suspension::new(now.time));
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
        if !self.counts(sent) || self.suspension.is_some() {
            return Ok(());
        }
        if self.is_final(link.number) {
            let taken = self.finality.observe_number(link, &self.branch.window, sent, &self.rules, find)?;
            if taken == Taken::Final {
                return Ok(());
            }
        } else if self.excludes(link.number, link.hash) {
            return Err(Contrary::Tracked);
        }
        if self.branch.window.get(link.number).is_some() {
            return Ok(());
        }
        self.is_in_time(link.number, sent)?;
        let below_head = self.head().is_some_and(|head| link.number <= head.number);
        self.asked.insert(Asked { link, sent, below_head });
        self.asked.move_into(&mut self.branch.window);
        Ok(())
    }

    /// Takes in a block that a tier has at its number, and was asked for at `sent`.
    ///
    /// # Errors
    /// If another block is tracked there, or final.
    pub fn restore_number(&mut self, link: Link, sent: Stamp) -> Result<(), Contrary> {
        if !self.counts(sent) || self.suspension.is_some() || !self.is_final(link.number) {
            return Ok(());
        }
        // The tier may not have dropped yet what an answer has contradicted.
        if self.asked.get(link.number).is_some_and(|asked| asked.link.hash != link.hash) {
            return Err(Contrary::Final);
        }
        self.finality.restore_number(link, &self.branch.window, sent)
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
        if self.counts(sent) && self.suspension.is_none() {
            self.agrees(number, block)?;
            self.is_in_time(number, sent)?;
            self.placed.insert(transaction, number, block, sent);
        }
        Ok(())
    }

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
    fn has_outgrown(&self, number: BlockNumber, sent: Stamp) -> bool {
        let is_below = self.branch.window.bottom().is_some_and(|bottom| number < bottom.number);
        let mut outgrown = self.outgrown.iter().filter(|(at, _)| sent.is_before(*at));
        is_below && self.finality.get(number).is_none() && outgrown.any(|(_, lowest)| *lowest <= number)
    }

    /// Returns whether this answer, sent then, can still be held against what is tracked.
    ///
    /// # Errors
    /// If the tracked blocks have outgrown it.
    fn is_in_time(&self, number: BlockNumber, sent: Stamp) -> Result<(), Contrary> {
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

    /// Takes in a block, however it was asked for: if the window's lowest block names it as its
    /// parent, it is canonical as long as that one is; if one that is final does, it is final.
    pub fn observe_block(&mut self, link: Link, find: Find<'_>) -> bool {
        if self.suspension.is_some() {
            return false;
        }
        let linked = self.branch.window.push_below(link);
        if linked {
            self.asked.move_into(&mut self.branch.window);
        }
        self.finality.observe_block(link, &self.branch.window, find);
        linked
    }

    /// Entries that became final since this was last called.
    pub fn take_entered(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        std::mem::take(&mut self.finality.consequences().entered)
    }

    /// Final entries that were contradicted and dropped since this was last called.
    pub fn take_dropped(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        self.finality.take_dropped()
    }

    /// The hash that an answer named for this number, however old that is: a hint, for content that may be cached.
    pub fn hint_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.asked.get(number).map(|asked| asked.link.hash)
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
        match self.asked.get(number) {
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
            .or_else(|| self.asked.number_of(hash))
    }

    /// This block is known not to have this number, whoever said so: that it stands there is forgotten.
    pub fn disown(&mut self, number: BlockNumber, hash: BlockHash) {
        self.finality.disown(number, hash);
        self.asked.disown(number, hash);
    }

    /// The upstream has no block with this hash: that it stands at a number is forgotten, unless it is linked to what is
    /// final. Returns whether it was taken to stand there for good.
    pub fn disown_denied(&mut self, number: BlockNumber, hash: BlockHash) -> bool {
        self.asked.disown(number, hash);
        self.finality.disown_unlinked(number, hash)
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

    /// Takes in what `safe` means.
    pub fn observe_safe(&mut self, safe: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.safe) {
            self.safe = Some(Named::again(self.safe, safe, sent, now));
        }
    }

    /// Takes in what `finalized` means, and nothing of what is final.
    pub fn observe_finalized_tag(&mut self, finalized: Link, sent: Stamp, now: Stamp) {
        if !self.is_outdated(sent, self.finalized_tag) {
            self.finalized_tag = Some(Named::again(self.finalized_tag, finalized, sent, now));
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

    /// Does what was asked for then tell what is final? What was final before a reorg or a write is so after it.
    pub fn hears_of_finality(&self, sent: Stamp) -> bool {
        self.rules.finality && self.suspension.is_none() && self.finality.counts(sent)
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

    fn tag(&self, tag: Option<Named>, arrival: Stamp) -> Option<Link> {
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

    fn is_outdated(&self, sent: Stamp, known: Option<Named>) -> bool {
        known.is_some_and(|known| sent.is_before(known.sent)) || !self.counts(sent)
    }

    fn finalize(&mut self, link: Link, now: Stamp, find: Find<'_>) -> Finalized {
        let outcome = self.finality.advance(link, &self.branch.window, &self.rules, now, find);
        self.settle(outcome, now)
    }

    fn finalize_by_depth(&mut self, now: Stamp) {
        let Some(depth) = self.rules.finality_depth.filter(|_| self.rules.finality) else { return };
        let number = self.head().and_then(|head| head.number.0.checked_sub(depth));
        if let Some(link) = number.and_then(|number| self.branch.window.get(BlockNumber(number))) {
            // What is cached below is linked when it is asked for.
            self.finalize(link, now, &|_| None);
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

    /// Forgets all canonicity, and takes the next head as it is: the node was told to be another one, or an endpoint turned
    /// out to serve another chain.
    pub fn forget(&mut self, now: Stamp) {
        *self = Self::new(self.rules.clone());
        (self.not_before, self.left) = (Some(now), Some(now));
        self.finality = Finality::forgotten(now);
    }

    /// Drops what was told beside the window, and what may still be told of before this moment.
    fn unbelieve(&mut self, now: Stamp) {
        self.not_before = Some(now);
        self.asked.clear();
        self.placed.clear();
        self.safe = None;
        self.finalized_tag = None;
    }
}

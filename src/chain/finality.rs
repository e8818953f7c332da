//! The final blocks, which follow from the upstream's `finalized` tag or from the configured depth.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    Contrary, Rules, Stamp,
    final_index::{Consequences, Entry, FinalIndex},
    window::{Find, Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// Effect of an answer about the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// Finality did not advance: the answer names no block, a block that is not higher, or a block that cannot be
    /// accepted yet.
    Unchanged,
    /// Finality advanced to a higher block.
    Advanced {
        /// The previous finalized block.
        previous: Option<(BlockNumber, BlockHash)>,
    },
    /// The answer names a block that is not on the tracked branch. Either the answer or the branch is out of date.
    Contrary,
    /// The answer contradicts a final block, which may be the fault of a lagging replica. Nothing changed.
    Doubted,
    /// A final block was replaced. The tracker has forgotten all canonicity.
    Alarm,
}

/// Effect of an answer for a number at or below the finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The block is in the final index.
    Final,
    /// One answer is not enough to make this block final. The tracker uses the answer for a short time, like the answer
    /// for any other number.
    ForNow,
}

/// The finalized block, and the final blocks at or below it.
#[derive(Clone, Debug, Default)]
pub(super) struct Finality {
    highest: Option<(BlockNumber, BlockHash)>,
    /// Timestamp of the finalized block, if known.
    timestamp: Option<u64>,
    /// When the finalized block became known.
    since: Option<Stamp>,
    ages: Ages,
    index: FinalIndex,
    /// Changes to the index that the caller has not taken yet.
    consequences: Consequences,
    /// When all canonicity was last forgotten. Answers to requests sent earlier are ignored. A reorg or a write does
    /// not set this.
    forgotten: Option<Stamp>,
}

/// Finalized numbers, each with the time at which it became known, as far back as `Rules::final_margin` requires.
#[derive(Clone, Debug, Default)]
struct Ages(VecDeque<(BlockNumber, Instant)>);

/// Maximum number of entries of [`Ages`] per margin. Advances that come closer together than `margin / AGES` share one
/// entry, with the time of the last advance.
const AGES: u32 = 64;

// === impl Ages ===

impl Ages {
    /// Records that finality advanced to this number.
    fn note(&mut self, number: BlockNumber, now: Instant, margin: Duration) {
        while self.0.get(1).is_some_and(|(_, since)| now.duration_since(*since) >= margin) {
            self.0.pop_front();
        }
        // Replaces the last entry if the entry before it is recent. The replaced number is then considered final from a
        // later time on than it really was, which is safe.
        let closely = self.0.len() > 1
            && self.0.iter().nth_back(1).is_some_and(|(_, since)| now.duration_since(*since) < margin / AGES);
        if closely {
            self.0.pop_back();
        }
        self.0.push_back((number, now));
    }

    /// Returns whether, at `sent`, this number had been known to be final for at least `margin`.
    fn is_aged(&self, number: BlockNumber, sent: Instant, margin: Duration) -> bool {
        let since = self.0.iter().find(|(highest, _)| number <= *highest);
        since.is_some_and(|(_, since)| sent.saturating_duration_since(*since) >= margin)
    }
}

// === impl Finality ===

impl Finality {
    /// Returns empty finality that ignores answers to requests sent before `now`.
    pub(super) fn forgotten(now: Stamp) -> Self {
        Self { forgotten: Some(now), ..Self::default() }
    }

    /// Returns the nearest known final block above `number`.
    pub(super) fn above(&self, number: BlockNumber) -> Option<BlockNumber> {
        self.index.above(number).map(|(number, _)| number)
    }

    /// Returns the finalized block, which is the highest final block.
    pub(super) fn highest(&self) -> Option<(BlockNumber, BlockHash)> {
        self.highest
    }

    /// Returns whether the canonical block at `number` is final.
    pub(super) fn covers(&self, number: BlockNumber) -> bool {
        self.highest.is_some_and(|(highest, _)| number <= highest)
    }

    /// Returns whether this number became final within `Rules::final_margin`, and after the first finalized block.
    pub(super) fn is_new(&self, number: BlockNumber) -> bool {
        self.covers(number) && self.ages.0.front().is_some_and(|(first, _)| *first < number)
    }

    /// Returns whether an answer to a request sent at `sent` may still change finality, because canonicity was not
    /// forgotten after `sent`.
    pub(super) fn counts(&self, sent: Stamp) -> bool {
        !self.forgotten.is_some_and(|since| sent.is_before(since))
    }

    /// Returns the number of the final block with this hash. Scans all entries.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.index.number_of(hash)
    }

    /// Returns the hash of the final block at `number`, if known.
    pub(super) fn get(&self, number: BlockNumber) -> Option<BlockHash> {
        self.index.get(number)
    }

    /// Returns the known final blocks above `above`, up to and including `up_to`.
    pub(super) fn between(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        self.index.between(above, up_to)
    }

    /// Returns the number of known final blocks.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the changes to the index that the caller has not taken yet.
    pub(super) fn consequences(&mut self) -> &mut Consequences {
        &mut self.consequences
    }

    // ## Tiers

    /// Returns whether no known final block contradicts this one, and no tracked block.
    pub(super) fn has_room(&self, link: Link, window: &Window) -> bool {
        let is_free = self.index.get(link.number).is_none_or(|known| known == link.hash);
        is_free && !window.excludes(link.number, link.hash) && self.fits(link)
    }

    /// Takes in a block that the own disk has for a [covered](Self::covers) number.
    pub(super) fn restore(&mut self, link: Link) {
        self.index.insert(link.number, Entry::unlinked(link.hash, Some(link.parent)));
    }

    /// Takes in proved ancestors of the final block at `number`, which `find` returns by hash. If they contradict a known
    /// final block, an unlinked block at `number` is not final either.
    pub(super) fn observe_ancestors(&mut self, number: BlockNumber, find: Find<'_>) {
        let Some(anchor) = self.index.entry(number) else { return };
        let Some(mut hash) = anchor.parent.or_else(|| find(anchor.hash).map(|link| link.parent)) else {
            return;
        };
        if anchor.linked {
            return self.index.link_down(number, hash, find, &mut self.consequences);
        }
        let (mut path, mut above) = (Vec::new(), number);
        while let Some(link) = find(hash).filter(|link| link.number < above) {
            path.push(link);
            (hash, above) = (link.parent, link.number);
        }
        let differs = |link: &&Link| self.index.get(link.number).is_some_and(|known| known != link.hash);
        let contrary: Vec<_> = path.iter().filter(differs).map(|link| link.number).collect();
        if !contrary.is_empty() || path.last().is_some_and(|lowest| !self.fits(*lowest)) {
            self.drop_entry(number);
            for number in contrary {
                if self.is_unlinked(number) {
                    self.drop_entry(number);
                }
            }
            return;
        }
        for link in path {
            if self.index.get(link.number).is_some() {
                continue;
            }
            self.restore(link);
            self.consequences.entered.push((link.number, link.hash));
        }
    }

    // ## Numbers

    /// Takes in the upstream's block at a [covered](Self::covers) number, requested at `sent`.
    ///
    /// A single answer may come from a lagging replica. It makes the block final only if one of these holds: the block
    /// is linked to the window or to a linked final block; the block is older than the finalized block by
    /// `Rules::final_margin`; the number has been final for that margin; or the upstream is consistent.
    ///
    /// # Errors
    /// If another block is tracked at that number, if the index has another linked block there, or if a linked
    /// neighbour contradicts this block.
    pub(super) fn observe_number(
        &mut self,
        link: Link,
        window: &Window,
        sent: Stamp,
        rules: &Rules,
        find: Find<'_>,
    ) -> Result<Taken, Contrary> {
        let linked = self.is_linked(link, window);
        match self.index.entry(link.number) {
            Some(known) if known.hash == link.hash => {
                if linked && !known.linked {
                    self.link(link, find);
                }
                return Ok(Taken::Final);
            }
            Some(known) if known.linked => return Err(Contrary::Final),
            Some(_) if !linked => {
                self.drop_entry(link.number);
                return Ok(Taken::ForNow);
            }
            Some(_) => {}
            None if window.excludes(link.number, link.hash) => return Err(Contrary::Tracked),
            None => {}
        }
        if linked {
            self.link(link, find);
            return Ok(Taken::Final);
        }
        if !self.drop_misfits(link)? {
            return Ok(Taken::ForNow);
        }
        // An answer requested before the finalized block was known may be from an orphaned branch.
        let is_news = self.since.is_some_and(|since| !sent.is_before(since));
        let is_enough = rules.consistent || self.is_old(link, sent, rules.final_margin);
        if !is_news || !is_enough || !self.counts(sent) {
            return Ok(Taken::ForNow);
        }
        self.index.insert(link.number, Entry::unlinked(link.hash, Some(link.parent)));
        self.consequences.entered.push((link.number, link.hash));
        Ok(Taken::Final)
    }

    /// Takes in a block from any request. The block becomes final if its number is covered and it is linked to a final
    /// block or to the window.
    pub(super) fn observe_block(&mut self, link: Link, window: &Window, find: Find<'_>) {
        let is_known = self.index.entry(link.number).is_some_and(|known| known.linked);
        if !is_known && self.covers(link.number) && self.is_linked(link, window) {
            self.link(link, find);
        }
    }

    /// Returns whether this block is in the window, is the parent of the window's lowest block, or is the parent of the
    /// next higher entry, if that entry is linked.
    fn is_linked(&self, link: Link, window: &Window) -> bool {
        let by_entry = |(_, above): (BlockNumber, Entry)| above.linked && above.parent == Some(link.hash);
        let by_window = |bottom: Link| bottom.parent == link.hash && link.number < bottom.number;
        window.holds(link)
            || self.index.above(link.number).is_some_and(by_entry)
            || window.bottom().is_some_and(by_window)
    }

    /// Inserts a linked block, and links its known ancestors.
    fn link(&mut self, link: Link, find: Find<'_>) {
        if self.index.get(link.number) != Some(link.hash) {
            self.drop_entry(link.number);
            self.consequences.entered.push((link.number, link.hash));
        }
        self.index.insert(link.number, Entry::linked(link));
        self.index.link_down(link.number, link.parent, find, &mut self.consequences);
    }

    /// Returns whether this block's timestamp is at least `margin` before that of the finalized block.
    fn is_deep(&self, link: Link, margin: Duration) -> bool {
        let age = link.timestamp.zip(self.timestamp).and_then(|(its, highest)| highest.checked_sub(its));
        age.is_some_and(|age| Duration::from_secs(age) >= margin)
    }

    /// Returns whether this block is older than the finalized block by `margin`, or its number had been known to be final
    /// for that long at `sent`.
    pub(super) fn is_old(&self, link: Link, sent: Stamp, margin: Duration) -> bool {
        self.is_deep(link, margin) || self.ages.is_aged(link.number, sent.time, margin)
    }

    /// Returns whether no neighbour in the index contradicts a block.
    fn fits(&self, link: Link) -> bool {
        self.misfits(link).next().is_none()
    }

    /// Returns the entries one number below and one number above a block, if they contradict that block.
    fn misfits(&self, link: Link) -> impl Iterator<Item = (BlockNumber, Entry)> {
        let below = link.number.0.checked_sub(1).map(BlockNumber);
        let below = below.and_then(|number| Some((number, self.index.entry(number)?)));
        let above = self.index.above(link.number).filter(|(number, _)| number.0 - 1 == link.number.0);
        let below = below.filter(|(_, below)| below.hash != link.parent);
        let above = above.filter(|(_, above)| above.parent.is_some_and(|parent| parent != link.hash));
        below.into_iter().chain(above)
    }

    /// Drops unlinked neighbours that contradict a block. Returns whether there were none.
    ///
    /// # Errors
    /// If a linked neighbour contradicts the block.
    fn drop_misfits(&mut self, link: Link) -> Result<bool, Contrary> {
        let misfits: Vec<_> = self.misfits(link).collect();
        if misfits.iter().any(|(_, entry)| entry.linked) {
            return Err(Contrary::Final);
        }
        for (number, _) in &misfits {
            self.drop_entry(*number);
        }
        Ok(misfits.is_empty())
    }

    fn drop_entry(&mut self, number: BlockNumber) {
        if let Some(hash) = self.index.get(number) {
            self.index.remove(number);
            self.consequences.dropped.push((number, hash));
        }
    }

    // ## The finalized block

    /// Makes this block final, and with it all lower blocks of the window. An [alarm](Finalized::Alarm) changes nothing
    /// here.
    pub(super) fn advance(
        &mut self,
        link: Link,
        window: &Window,
        rules: &Rules,
        now: Stamp,
        find: Find<'_>,
    ) -> Finalized {
        if self.confirm(link.number, link.hash) == Finalized::Alarm {
            return Finalized::Alarm;
        }
        if self.covers(link.number) || window.top().is_none_or(|top| top.number < link.number) {
            return Finalized::Unchanged;
        }
        if window.excludes(link.number, link.hash) {
            return Finalized::Contrary;
        }
        // The window is one branch, so its blocks below a final block are final, too.
        let passed: Vec<_> = window.up_to(link.number).collect();
        let lowest = passed.first().copied().unwrap_or(link);
        let differs = |link: &Link| self.index.entry(link.number).filter(|known| known.hash != link.hash);
        if passed.iter().any(|link| differs(link).is_some_and(|known| known.linked)) {
            return Finalized::Alarm;
        }
        for link in passed.into_iter().chain([link]) {
            if self.index.get(link.number).is_some_and(|known| known != link.hash) {
                self.drop_entry(link.number);
            }
            self.index.insert(link.number, Entry::linked(link));
        }
        self.index.link_down(lowest.number, lowest.parent, find, &mut self.consequences);
        self.since = Some(now);
        self.timestamp = link.timestamp;
        self.ages.note(link.number, now.time, rules.final_margin);
        Finalized::Advanced { previous: self.highest.replace((link.number, link.hash)) }
    }

    /// Compares the upstream's block at a final number with the index. Drops an unlinked entry that differs; a linked
    /// entry that differs is an alarm.
    pub(super) fn confirm(&mut self, number: BlockNumber, hash: BlockHash) -> Finalized {
        match self.index.entry(number) {
            Some(known) if known.hash != hash && known.linked => Finalized::Alarm,
            Some(known) if known.hash != hash => {
                self.drop_entry(number);
                Finalized::Unchanged
            }
            _ => Finalized::Unchanged,
        }
    }

    /// Returns whether a lineage, the newest block first, contradicts a final block.
    pub(super) fn contradicts(&self, lineage: &[Link]) -> bool {
        let by_entry = |number: BlockNumber, hash| self.index.get(number).is_some_and(|known| known != hash);
        let by_parent = |link: &Link| {
            let below = link.number.0.checked_sub(1).map(BlockNumber);
            below.is_some_and(|below| by_entry(below, link.parent))
        };
        lineage.iter().any(|link| by_entry(link.number, link.hash)) || lineage.last().is_some_and(by_parent)
    }

    /// Returns whether the final block at `number` is unlinked: it rests on a single answer or on the own disk.
    pub(super) fn is_unlinked(&self, number: BlockNumber) -> bool {
        self.index.entry(number).is_some_and(|known| !known.linked)
    }

    /// Drops the entry at `number` if it is this block and unlinked. Returns whether an entry was dropped.
    pub(super) fn remove_unlinked(&mut self, number: BlockNumber, hash: BlockHash) -> bool {
        let is_unlinked = self.index.entry(number).is_some_and(|known| known.hash == hash && !known.linked);
        if is_unlinked {
            self.drop_entry(number);
        }
        is_unlinked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_ages_from_the_advance_that_covers_it() {
        let (mut ages, start, margin) = (Ages::default(), Instant::now(), Duration::from_secs(64));
        ages.note(BlockNumber(90), start, margin);
        ages.note(BlockNumber(97), start + margin / 2, margin);
        let aged = |number, after| ages.is_aged(BlockNumber(number), start + after, margin);
        assert!(aged(90, margin) && !aged(91, margin));
        assert!(aged(97, margin * 3 / 2) && !aged(98, margin * 9));
    }
}

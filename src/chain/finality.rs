//! What is final, by the upstream's word or by depth.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    Contrary, Rules, Stamp,
    final_index::{Consequences, Entry, FinalIndex},
    window::{Find, Link, Window},
};
use crate::eth::{BlockHash, BlockNumber};

/// What came of an answer about `finalized`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// It is as it was, or lower, or nothing, or not to be counted yet.
    Unchanged,
    /// It rose.
    Advanced {
        /// What was final before.
        previous: Option<(BlockNumber, BlockHash)>,
    },
    /// It names another block than the branch that is tracked: one of them is out of date.
    Contrary,
    /// What was final is not. Everything known of canonicity has been forgotten.
    Alarm,
}

/// How an answer about a final number is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the index.
    Final,
    /// One answer is not enough: it counts for as long as any answer does.
    ForNow,
}

/// The highest block that is final, and which hashes stand at or below it for good.
#[derive(Clone, Debug, Default)]
pub(super) struct Finality {
    highest: Option<(BlockNumber, BlockHash)>,
    /// The timestamp of the highest, where it is known.
    timestamp: Option<u64>,
    /// When the highest became known.
    since: Option<Stamp>,
    ages: Ages,
    index: FinalIndex,
    /// Of changes to the index, until somebody takes them.
    consequences: Consequences,
    /// The last entries that were dropped: tiers may still have them.
    refused: VecDeque<(BlockNumber, BlockHash)>,
    /// All was forgotten then: nothing sent before counts. A reorg or a write does not move this, for
    /// what was final before one is so after it.
    forgotten: Option<Stamp>,
}

/// Dropped entries that are remembered: tiers drop theirs within seconds.
const REFUSED: usize = 64;

/// Since when which numbers are known to be final, as far back as it matters.
#[derive(Clone, Debug, Default)]
struct Ages(VecDeque<(BlockNumber, Instant)>);

/// Advances of finality that are remembered within one margin. Those that come closer together count as one, at the time
/// of the last.
const AGES: u32 = 64;

// === impl Ages ===

impl Ages {
    /// Finality rose to this number.
    fn note(&mut self, number: BlockNumber, now: Instant, margin: Duration) {
        while self.0.get(1).is_some_and(|(_, since)| now.duration_since(*since) >= margin) {
            self.0.pop_front();
        }
        // Later than it was is on the safe side. The one before is the beginning of its share of the margin.
        let closely = self.0.len() > 1
            && self.0.iter().nth_back(1).is_some_and(|(_, since)| now.duration_since(*since) < margin / AGES);
        if closely {
            self.0.pop_back();
        }
        self.0.push_back((number, now));
    }

    /// Returns whether this number was known to be final for `margin` at `sent`.
    fn is_aged(&self, number: BlockNumber, sent: Instant, margin: Duration) -> bool {
        let since = self.0.iter().find(|(highest, _)| number <= *highest);
        since.is_some_and(|(_, since)| sent.saturating_duration_since(*since) >= margin)
    }
}

// === impl Finality ===

impl Finality {
    /// Knows nothing, and never will of what was sent before this moment.
    pub(super) fn forgotten(now: Stamp) -> Self {
        Self { forgotten: Some(now), ..Self::default() }
    }

    /// The highest block that is final.
    pub(super) fn highest(&self) -> Option<(BlockNumber, BlockHash)> {
        self.highest
    }

    /// Is whatever stands at this number final?
    pub(super) fn covers(&self, number: BlockNumber) -> bool {
        self.highest.is_some_and(|(highest, _)| number <= highest)
    }

    /// Does what was sent then still tell what is final?
    pub(super) fn counts(&self, sent: Stamp) -> bool {
        !self.forgotten.is_some_and(|since| sent.is_before(since))
    }

    /// Where this hash stands for good; looks at all that is known.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.index.number_of(hash)
    }

    /// The hash that stands at this number for good, where it is known.
    pub(super) fn get(&self, number: BlockNumber) -> Option<BlockHash> {
        self.index.get(number)
    }

    /// What stands above one number, up to and with another, as far as it is known.
    pub(super) fn between(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        self.index.between(above, up_to)
    }

    /// How many numbers have a hash that is final.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// What became of the index, until somebody takes it.
    pub(super) fn consequences(&mut self) -> &mut Consequences {
        &mut self.consequences
    }

    // ## Tiers

    /// Takes in what was final before a restart, if nothing is known yet.
    pub(super) fn restore(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        if self.highest.is_none() && self.index.get(number).is_none_or(|known| known == hash) {
            self.index.insert(number, Entry::unlinked(hash, None));
            self.highest = Some((number, hash));
            self.since = Some(now);
        }
    }

    /// Takes in a block that a tier has at a [covered](Self::covers) number: it was final when it went there.
    ///
    /// # Errors
    /// If another block is final there, or none can be.
    pub(super) fn restore_number(
        &mut self,
        link: Link,
        window: &Window,
        sent: Stamp,
    ) -> Result<(), Contrary> {
        if self.refused.contains(&(link.number, link.hash)) {
            return Err(Contrary::Final);
        }
        match self.index.entry(link.number) {
            Some(known) if known.hash != link.hash => return Err(Contrary::Final),
            None if window.excludes(link.number, link.hash) => return Err(Contrary::Tracked),
            None if !self.counts(sent) || !self.fits(link) => {}
            _ => self.index.insert(link.number, Entry::unlinked(link.hash, Some(link.parent))),
        }
        Ok(())
    }

    // ## Numbers

    /// Takes in a block that was answered for a [covered](Self::covers) number, and asked for at `sent`.
    ///
    /// One answer may come from a replica that is behind. It is enough for good if the block is linked to what is final; if
    /// it is older than the finalized block by the margin; if the number was known to be final for that long; or if the
    /// upstream does not contradict itself.
    ///
    /// # Errors
    /// If another block is linked there, or tracked.
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
        // Sent before that was known, it may be from a branch that was left since.
        let is_news = self.since.is_some_and(|since| !sent.is_before(since));
        let is_enough = rules.consistent
            || self.is_deep(link, rules.final_margin)
            || self.ages.is_aged(link.number, sent.time, rules.final_margin);
        if !is_news || !is_enough || !self.counts(sent) {
            return Ok(Taken::ForNow);
        }
        self.index.insert(link.number, Entry::unlinked(link.hash, Some(link.parent)));
        self.consequences.entered.push((link.number, link.hash));
        Ok(Taken::Final)
    }

    /// Takes in a block however it was asked for: a linked entry may name it as its parent.
    pub(super) fn observe_block(&mut self, link: Link, window: &Window, find: Find<'_>) {
        let is_known = self.index.entry(link.number).is_some_and(|known| known.linked);
        if !is_known && self.covers(link.number) && self.is_linked(link, window) {
            self.link(link, find);
        }
    }

    /// Returns whether a path of parent hashes leads to this block, from the one right above it.
    fn is_linked(&self, link: Link, window: &Window) -> bool {
        let by_entry = |(_, above): (BlockNumber, Entry)| above.linked && above.parent == Some(link.hash);
        let by_window = |bottom: Link| bottom.parent == link.hash && link.number < bottom.number;
        window.holds(link)
            || self.index.above(link.number).is_some_and(by_entry)
            || window.bottom().is_some_and(by_window)
    }

    /// Notes a block that is linked, and all that it descends from.
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

    /// Returns whether its neighbours in the index fit a block.
    fn fits(&self, link: Link) -> bool {
        self.misfits(link).next().is_none()
    }

    /// The entries right below and right above that contradict a block.
    fn misfits(&self, link: Link) -> impl Iterator<Item = (BlockNumber, Entry)> {
        let below = link.number.0.checked_sub(1).map(BlockNumber);
        let below = below.and_then(|number| Some((number, self.index.entry(number)?)));
        let above = self.index.above(link.number).filter(|(number, _)| number.0 - 1 == link.number.0);
        let below = below.filter(|(_, below)| below.hash != link.parent);
        let above = above.filter(|(_, above)| above.parent.is_some_and(|parent| parent != link.hash));
        below.into_iter().chain(above)
    }

    /// Drops the neighbours that contradict a block and are not linked themselves; returns whether there were none.
    ///
    /// # Errors
    /// If a linked one contradicts it.
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

    /// Returns the entries that were dropped since this was last called, and refuses them from tiers.
    pub(super) fn take_dropped(&mut self) -> Vec<(BlockNumber, BlockHash)> {
        let dropped = std::mem::take(&mut self.consequences.dropped);
        self.refused.extend(&dropped);
        self.refused.drain(..self.refused.len().saturating_sub(REFUSED));
        dropped
    }

    // ## The finalized block

    /// Takes in that this block is final, and with it all that the window holds below. After an
    /// [alarm](Finalized::Alarm) nothing here is to be believed.
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
        // The window is one branch: what stands in it below a final block is final too.
        let passed: Vec<_> = window.up_to(link.number).collect();
        let lowest = passed.first().copied().unwrap_or(link);
        for link in passed.into_iter().chain([link]) {
            match self.index.entry(link.number) {
                Some(known) if known.hash != link.hash && known.linked => return Finalized::Alarm,
                Some(known) if known.hash != link.hash => self.drop_entry(link.number),
                Some(_) | None => {}
            }
            self.index.insert(link.number, Entry::linked(link));
        }
        self.index.link_down(lowest.number, lowest.parent, find, &mut self.consequences);
        self.since = Some(now);
        self.timestamp = link.timestamp;
        self.ages.note(link.number, now.time, rules.final_margin);
        Finalized::Advanced { previous: self.highest.replace((link.number, link.hash)) }
    }

    /// Takes in what stands at a number that was final before. An entry for which only one answer spoke is dropped if it is
    /// another.
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

    /// Returns whether blocks, the newest first, contradict what is final: an entry, or the finalized block itself.
    pub(super) fn contradicts(&self, lineage: &[Link]) -> bool {
        let by_entry = |number: BlockNumber, hash| self.index.get(number).is_some_and(|known| known != hash);
        let by_parent = |link: &Link| {
            let below = link.number.0.checked_sub(1).map(BlockNumber);
            below.is_some_and(|below| by_entry(below, link.parent))
        };
        lineage.iter().any(|link| by_entry(link.number, link.hash)) || lineage.last().is_some_and(by_parent)
    }

    /// Forgets that this block stands there.
    pub(super) fn remove(&mut self, number: BlockNumber, hash: BlockHash) {
        if self.index.get(number) == Some(hash) {
            self.drop_entry(number);
        }
    }

    /// Returns whether a block is final here by one answer alone.
    pub(super) fn is_unlinked(&self, number: BlockNumber) -> bool {
        self.index.entry(number).is_some_and(|known| !known.linked)
    }

    /// Forgets that this block stands there, unless it is linked; returns whether it stood there.
    pub(super) fn remove_unlinked(&mut self, number: BlockNumber, hash: BlockHash) -> bool {
        let is_unlinked = self.index.entry(number).is_some_and(|known| known.hash == hash && !known.linked);
        if is_unlinked {
            self.drop_entry(number);
        }
        is_unlinked
    }
}

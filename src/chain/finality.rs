//! What is final, by the upstream's word or by depth.

use tokio::time::Instant;

use super::{Contrary, Stamp, final_index::FinalIndex, window::Window};
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

/// The highest block that is final, and which hashes stand at or below it for good.
#[derive(Clone, Debug, Default)]
pub(super) struct Finality {
    highest: Option<(BlockNumber, BlockHash)>,
    /// When the highest became known.
    since: Option<Stamp>,
    index: FinalIndex,
    /// All was forgotten then: nothing sent before counts. A reorg or a write does not move this, for
    /// what was final before one is so after it.
    forgotten: Option<Stamp>,
    /// What was asked for between the two may have been answered by a stranger.
    unheard: Option<(Instant, Instant)>,
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
        !self.forgotten.is_some_and(|since| sent.is_before(since)) && !self.is_unheard(sent)
    }

    /// May a stranger have answered what was sent then?
    fn is_unheard(&self, sent: Stamp) -> bool {
        self.unheard.is_some_and(|(since, until)| since <= sent.time && sent.time <= until)
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

    /// Takes in what was final before a restart, if nothing is known yet.
    pub(super) fn restore(&mut self, number: BlockNumber, hash: BlockHash, now: Stamp) {
        if self.highest.is_none() && self.index.insert(number, hash, Some(now.time)).is_ok() {
            self.highest = Some((number, hash));
            self.since = Some(now);
        }
    }

    /// How many numbers have a hash that is final.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Takes in that `hash` stands at a number that is [covered](Self::covers), as an answer said that
    /// was sent then.
    ///
    /// # Errors
    /// If another block is final there, or none can be.
    pub(super) fn observe_number(
        &mut self,
        number: BlockNumber,
        hash: BlockHash,
        window: &Window,
        sent: Stamp,
    ) -> Result<(), Contrary> {
        match self.index.get(number) {
            Some(known) if known == hash => Ok(()),
            Some(_) => Err(Contrary),
            None if window.excludes(number, hash) => Err(Contrary),
            None => {
                // Sent before that was known, it may be from a branch that was left since.
                let is_news = self.since.is_some_and(|since| !sent.is_before(since));
                if is_news {
                    let _ = self.index.insert(number, hash, Some(sent.time));
                }
                Ok(())
            }
        }
    }

    /// Takes in that this block is final, and with it all that the window holds below. After an
    /// [alarm](Finalized::Alarm) nothing here is to be believed.
    pub(super) fn advance(
        &mut self,
        number: BlockNumber,
        hash: BlockHash,
        window: &Window,
        now: Stamp,
    ) -> Finalized {
        if self.confirm(number, hash) == Finalized::Alarm {
            return Finalized::Alarm;
        }
        if self.covers(number) || window.top().is_none_or(|top| top.number < number) {
            return Finalized::Unchanged;
        }
        if window.excludes(number, hash) {
            return Finalized::Contrary;
        }
        // The window is one branch: what stands in it below a final block is final too.
        let passed = window.up_to(number).map(|link| (link.number, link.hash, None));
        // What stands in a hole of it has nothing but this word for it.
        let heard = window.get(number).is_none().then_some(now.time);
        for (number, hash, heard) in passed.chain([(number, hash, heard)]) {
            if self.index.insert(number, hash, heard).is_err() {
                return Finalized::Alarm;
            }
        }
        self.since = Some(now);
        Finalized::Advanced { previous: self.highest.replace((number, hash)) }
    }

    /// Takes in what stands at a number that was final before.
    pub(super) fn confirm(&self, number: BlockNumber, hash: BlockHash) -> Finalized {
        match self.index.get(number) {
            Some(known) if known != hash => Finalized::Alarm,
            _ => Finalized::Unchanged,
        }
    }

    /// What was asked for since then, until now, may have been answered by a stranger: forgets what was heard so, and
    /// what is still to be heard.
    pub(super) fn unhear(&mut self, since: Instant, now: Instant) {
        self.index.unhear(since);
        // What lies between two such times is long answered, or unheard for nothing: it can be asked again.
        let first = self.unheard.map_or(since, |(first, _)| first.min(since));
        self.unheard = Some((first, now));
    }

    /// Forgets that this block stands there.
    pub(super) fn disown(&mut self, number: BlockNumber, hash: BlockHash) {
        if self.index.get(number) == Some(hash) {
            self.index.remove(number);
        }
    }
}

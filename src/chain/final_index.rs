//! Which hash stands at a number, for good.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::eth::{BlockHash, BlockNumber};

/// Entries kept: some 25 MB. Forgetting is always safe.
const CAP: usize = 1 << 18;

/// Numbers whose hash is final.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalIndex(BTreeMap<BlockNumber, Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: BlockHash,
    /// When it was asked for, if an answer is all that it is known by; the tracked branch vouches for the others.
    heard: Option<Instant>,
}

// === impl FinalIndex ===

impl FinalIndex {
    pub(super) fn get(&self, number: BlockNumber) -> Option<BlockHash> {
        self.0.get(&number).map(|entry| entry.hash)
    }

    /// What stands above one number, up to and with another.
    pub(super) fn between(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        let from = above.map_or(0, |above| above.0.saturating_add(1)).min(up_to.0);
        self.0.range(BlockNumber(from)..=up_to).map(|(number, entry)| (*number, entry.hash))
    }

    /// Where a hash stands; looks at all entries.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.0.iter().find(|(_, entry)| entry.hash == hash).map(|(number, _)| *number)
    }

    /// Notes a hash; `heard` is when it was asked for, if an answer is all that it is known by.
    ///
    /// # Errors
    /// If another hash stands there: one of the two was never final.
    pub(super) fn insert(
        &mut self,
        number: BlockNumber,
        hash: BlockHash,
        heard: Option<Instant>,
    ) -> Result<(), BlockHash> {
        match self.0.insert(number, Entry { hash, heard }) {
            Some(known) if known.hash != hash => return Err(known.hash),
            _ => {}
        }
        if self.0.len() > CAP {
            self.0.pop_first();
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, number: BlockNumber) {
        self.0.remove(&number);
    }

    /// Forgets what was heard since then.
    pub(super) fn unhear(&mut self, since: Instant) {
        self.0.retain(|_, entry| entry.heard.is_none_or(|heard| heard < since));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

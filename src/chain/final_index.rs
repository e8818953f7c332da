//! Which hash stands at a number, for good.

use std::collections::BTreeMap;

use crate::eth::{BlockHash, BlockNumber};

/// Entries kept: some 20 MB. Forgetting is always safe.
const CAP: usize = 1 << 18;

/// Numbers whose hash is final.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalIndex(BTreeMap<BlockNumber, BlockHash>);

// === impl FinalIndex ===

impl FinalIndex {
    pub(super) fn get(&self, number: BlockNumber) -> Option<BlockHash> {
        self.0.get(&number).copied()
    }

    /// Notes a hash.
    ///
    /// # Errors
    /// If another hash stands there: one of the two was never final.
    pub(super) fn insert(&mut self, number: BlockNumber, hash: BlockHash) -> Result<(), BlockHash> {
        match self.0.insert(number, hash) {
            Some(known) if known != hash => return Err(known),
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

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

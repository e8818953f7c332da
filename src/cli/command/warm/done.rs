//! Results of all blocks together.

use std::collections::BTreeSet;

use super::rpc::Kept;

/// Results so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) blocks: Count,
    pub(super) receipts: Count,
    pub(super) bytes: u64,
    pub(super) failed: BTreeSet<u64>,
    pub(super) unkept: BTreeSet<u64>,
    /// Reason of the last failure.
    pub(super) why_failed: String,
    /// Reason why the last of the uncached blocks was not cached.
    pub(super) why_unkept: String,
}

#[derive(Default)]
pub(super) struct Count {
    pub(super) fetched: u64,
    pub(super) present: u64,
}

// === impl Done ===

impl Done {
    /// Adds the answers for one block.
    pub(super) fn take(&mut self, number: u64, block: Kept, receipts: Option<Kept>) {
        for (kept, count) in [(Some(block), &mut self.blocks), (receipts, &mut self.receipts)] {
            match kept {
                Some(Kept::Fetched(bytes)) => {
                    count.fetched += 1;
                    self.bytes += bytes;
                }
                Some(Kept::Present) => count.present += 1,
                Some(Kept::No(why)) => {
                    self.unkept.insert(number);
                    self.why_unkept = why;
                }
                None => {}
            }
        }
    }
}

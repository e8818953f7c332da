//! Results of all blocks together.

use std::collections::BTreeSet;

use serde_json::Value;

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
    /// Adds the reply of an instance for one block.
    pub(super) fn take(&mut self, number: u64, told: &Value) {
        let pieces = [(&told["block"], &mut self.blocks), (&told["receipts"], &mut self.receipts)];
        for (piece, count) in pieces {
            match piece["outcome"].as_str() {
                Some("fetched") => {
                    count.fetched += 1;
                    self.bytes += piece["bytes"].as_u64().unwrap_or_default();
                }
                Some("present") => count.present += 1,
                Some(_) => {
                    self.unkept.insert(number);
                    self.why_unkept = piece["reason"].as_str().unwrap_or_default().to_owned();
                }
                None => {}
            }
        }
    }
}

//! Receipts that do not exist yet: caches their `null` until the head changes.

use parking_lot::Mutex;

use moka::sync::Cache;

use crate::{
    chain::{Stamp, Tracker},
    eth::{BlockHash, TxHash},
};

/// Maximum number of cached `null` receipts: more than clients poll for at a time.
const CAP: u64 = 1 << 14;

/// Caches `null` receipts, each only while the head is the same as when the call was sent.
#[derive(Debug)]
pub(crate) struct Absences {
    seen: Cache<TxHash, Absence>,
    /// Time of the last write, a call that can change the chain.
    written: Mutex<Option<Stamp>>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    head: BlockHash,
    sent: Stamp,
}

/// Result of a lookup of an absent receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The receipt still does not exist.
    Surely,
    /// The receipt does not exist if a refresh shows the same head.
    IfFresh,
    /// The cache has no valid `null` for this receipt.
    Unknown,
}

// === impl Absences ===

impl Absences {
    pub(crate) fn new() -> Self {
        Self { seen: Cache::new(CAP), written: Mutex::default() }
    }

    /// Records that the upstream had no receipt, in its answer to a request sent at `sent` under the head `head`.
    pub(crate) fn note(&self, transaction: TxHash, head: BlockHash, sent: Stamp, tracker: &Tracker) {
        let staleness = tracker.rules().max_staleness;
        let too_soon = self.written().is_some_and(|written| {
            sent.is_before(written) || (!staleness.is_zero() && written.time + staleness > sent.time)
        });
        if tracker.lags() {
            // The node shows a lower head than `head`, so its `null` may be out of date.
            self.seen.invalidate(&transaction);
        } else if !too_soon {
            self.seen.insert(transaction, Absence { head, sent });
        }
    }

    /// Returns whether the receipt still does not exist, for a call with this arrival time.
    pub(crate) fn look(&self, transaction: TxHash, arrival: Stamp, tracker: &Tracker) -> Absent {
        let Some(absence) = self.seen.get(&transaction) else { return Absent::Unknown };
        let rules = tracker.rules();
        let lasts = rules.consistent || absence.sent.serves(arrival, rules.max_staleness);
        let same_head = tracker.head().is_some_and(|head| head.hash == absence.head);
        let outwritten = self.written().is_some_and(|written| absence.sent.is_before(written));
        if !lasts || !same_head || outwritten || tracker.lags() {
            return Absent::Unknown;
        }
        if tracker.is_fresh(arrival) { Absent::Surely } else { Absent::IfFresh }
    }

    /// Forgets all absences, because a write was sent or answered.
    pub(crate) fn forget(&self, now: Stamp) {
        *self.written.lock() = Some(now);
        self.seen.invalidate_all();
    }

    fn written(&self) -> Option<Stamp> {
        *self.written.lock()
    }
}

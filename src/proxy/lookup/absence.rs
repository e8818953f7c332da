//! Receipts that are not there, for as long as that can be believed.

use parking_lot::Mutex;

use moka::sync::Cache;

use crate::{
    chain::{Stamp, Tracker},
    eth::{BlockHash, TxHash},
};

/// Wallets that wait for a receipt are many, but not more than this.
const CAP: u64 = 1 << 14;

/// Remembers a `null` no longer than the head it was seen at.
#[derive(Debug)]
pub(crate) struct Absences {
    seen: Cache<TxHash, Absence>,
    /// The last call that could have changed what is there.
    written: Mutex<Option<Stamp>>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    head: BlockHash,
    sent: Stamp,
}

/// What is known of a receipt that was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is still not there.
    Surely,
    /// It would be, if the view were fresh.
    IfFresh,
    /// Nothing is known.
    Unknown,
}

// === impl Absences ===

impl Absences {
    pub(crate) fn new() -> Self {
        Self { seen: Cache::new(CAP), written: Mutex::default() }
    }

    /// Notes that there was no receipt, asked for at `sent` under the head `head`.
    pub(crate) fn note(&self, transaction: TxHash, head: BlockHash, sent: Stamp, tracker: &Tracker) {
        let staleness = tracker.rules().max_staleness;
        let too_soon = self.written().is_some_and(|written| {
            sent.is_before(written) || (!staleness.is_zero() && written.time + staleness > sent.time)
        });
        if tracker.lags() {
            // It was not asked under this head, but under a lower one.
            self.seen.invalidate(&transaction);
        } else if !too_soon {
            self.seen.insert(transaction, Absence { head, sent });
        }
    }

    /// Is it still not there, for a call that arrived then?
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

    /// Something was sent, or answered, that can change what is there.
    pub(crate) fn forget(&self, now: Stamp) {
        *self.written.lock() = Some(now);
        self.seen.invalidate_all();
    }

    fn written(&self) -> Option<Stamp> {
        *self.written.lock()
    }
}

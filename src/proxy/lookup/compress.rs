//! Compresses whole blocks and receipt lists for clients that accept gzip.
//!
//! Compressing a block takes a hundred times as long as answering with it. So it happens once, on the second use, and
//! in the background: answers go out uncompressed meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::{
    blocking,
    cache::{Cache, Deflated, Whole},
    proxy::metrics::Metrics,
};

/// Number of slots for texts that were used once. A later text can take over the slot of an earlier one, which then
/// counts as unused again.
const SEEN: usize = 4096;

/// Number of texts compressed at a time. Others wait for their next use, not in a queue: a queue would hold texts
/// that may be evicted meanwhile, and take CPU time from calls.
const AT_A_TIME: usize = 1;

/// Finds compressed texts, and creates them.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// Fingerprint of the text used last, by slot; 0 if none.
    seen: Box<[AtomicU64]>,
    places: Arc<Semaphore>,
    cache: Cache,
    metrics: Metrics,
}

// === impl Compressor ===

impl Compressor {
    pub(super) fn new(cache: Cache, metrics: Metrics) -> Self {
        Self {
            seen: (0..SEEN).map(|_| AtomicU64::new(0)).collect(),
            places: Arc::new(Semaphore::new(AT_A_TIME)),
            cache,
            metrics,
        }
    }

    /// Returns the compressed form of `text`, which is the text of `whole`. If there is none yet, may start to create
    /// it for later calls.
    pub(crate) fn deflated(&self, whole: Whole, text: &Bytes) -> Option<Arc<Deflated>> {
        let found = self.cache.deflated(&whole);
        if found.is_none() && self.is_second_use(&whole) {
            self.make(whole, text);
        }
        found
    }

    /// Records a use. Returns true from the second use on, until compression starts.
    fn is_second_use(&self, whole: &Whole) -> bool {
        let fingerprint = whole.fingerprint();
        self.slot(fingerprint).swap(fingerprint, Relaxed) == fingerprint
    }

    fn slot(&self, fingerprint: u64) -> &AtomicU64 {
        &self.seen[fingerprint as usize % SEEN]
    }

    fn make(&self, whole: Whole, text: &Bytes) {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        // If the entry does not last, because the cache is too small, two more uses are needed to try again.
        self.slot(whole.fingerprint()).store(0, Relaxed);
        let (cache, metrics, text) = (self.cache.clone(), self.metrics.clone(), text.clone());
        blocking::spawn(move || {
            // Another task may have been faster.
            if cache.deflated(&whole).is_none()
                && let Some(deflated) = Deflated::new(&whole, &text)
            {
                cache.insert_deflated(&whole, deflated);
                metrics.deflated();
            }
            drop(place);
        });
    }
}

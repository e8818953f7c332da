//! Has whole blocks and receipts deflated for callers who take gzip, when that has proved worth its while.
//!
//! To deflate a block takes a hundred times what it takes to answer with it. So it is done once for all, on the second
//! use, beside the answers: these go out plain meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::{sync::Semaphore, task};

use crate::{
    cache::{Cache, Deflated, Whole},
    proxy::metrics::Metrics,
};

/// Texts that have been used once, as far as is remembered: a later one takes the place of an earlier one, which is then
/// used for the first time once more.
const SEEN: usize = 4096;

/// Texts deflated at a time. Others wait for their next use, not in a queue: it would hold what may be evicted
/// meanwhile, and take cores from those who answer.
const AT_A_TIME: usize = 1;

/// Finds deflated forms, and has them made.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// The fingerprint of what was used last, by a part of it; 0 for nothing.
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

    /// The deflated form of `text`, which is that of `whole`. Where there is none yet, it may be made for those who
    /// come later.
    pub(crate) fn deflated(&self, whole: Whole, text: &Bytes) -> Option<Arc<Deflated>> {
        let found = self.cache.deflated(&whole);
        if found.is_none() && self.is_second_use(&whole) {
            self.make(whole, text);
        }
        found
    }

    /// Notes a use. Says yes from the second on, until the form has been begun.
    fn is_second_use(&self, whole: &Whole) -> bool {
        let fingerprint = whole.fingerprint();
        self.slot(fingerprint).swap(fingerprint, Relaxed) == fingerprint
    }

    fn slot(&self, fingerprint: u64) -> &AtomicU64 {
        &self.seen[fingerprint as usize % SEEN]
    }

    fn make(&self, whole: Whole, text: &Bytes) {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        // If it does not last, in a cache that is too small for it, it takes two uses more to try again.
        self.slot(whole.fingerprint()).store(0, Relaxed);
        let (cache, metrics, text) = (self.cache.clone(), self.metrics.clone(), text.clone());
        task::spawn_blocking(move || {
            // Somebody else may have been faster.
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

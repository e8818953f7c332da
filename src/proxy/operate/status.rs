//! Reports the state of the chain and of verification, for the status page and metrics.

use std::{sync::Arc, time::Duration};

use crate::{
    chain::Link,
    eth::{BlockHash, BlockNumber},
    proxy::{head::HeadTracker, lookup::CacheState, reorgs::Reorg},
    verify::{InForce, Verifier},
};

/// Reports the state of the chain. Cheap to clone; makes no upstream calls.
#[derive(Clone, Debug)]
pub struct Status {
    head: Arc<HeadTracker>,
    state: Arc<CacheState>,
    verifier: Verifier,
}

/// State of the chain at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStatus {
    /// Head of the tracked branch.
    pub head: Option<Link>,
    /// Age of the view: time since the last head refresh was sent. `None` before the first refresh, and after a write
    /// or a jump of the wall clock, which make the view stale.
    pub age: Option<Duration>,
    /// Time since the head last changed.
    pub head_age: Option<Duration>,
    /// Whether the upstream shows a lower head than before, or a head that contradicts a final block.
    pub lags: bool,
    /// The finalized block.
    pub finalized: Option<(BlockNumber, BlockHash)>,
    /// Number of blocks on the tracked branch whose parent links are known.
    pub window: usize,
    /// Number of final blocks whose hash is known.
    pub final_numbers: usize,
    /// Maximum age of a view that may answer an arriving call.
    pub max_staleness: Duration,
}

// === impl Status ===

impl Status {
    pub(crate) fn new(head: Arc<HeadTracker>, state: Arc<CacheState>, verifier: Verifier) -> Self {
        Self { head, state, verifier }
    }

    /// Returns the required level of verification, and the reason for it.
    pub fn verification(&self) -> InForce {
        self.verifier.in_force()
    }

    /// Returns the names of the parts that the cache no longer cuts out of larger entries, because the node's own
    /// answers for these parts differ from the slices.
    pub fn given_up(&self) -> impl Iterator<Item = &'static str> {
        self.state.derivations.given_up()
    }

    /// Returns the latest reorgs, newest first.
    pub fn reorgs(&self) -> Vec<Reorg> {
        self.head.reorgs().last()
    }

    /// Returns the number of reorgs since the start.
    pub fn reorg_count(&self) -> u64 {
        self.head.reorgs().count()
    }

    /// Returns the number of the head.
    pub fn head(&self) -> Option<BlockNumber> {
        self.head.view().tracker().head().map(|head| head.number)
    }

    /// Returns the current state of the chain.
    pub fn chain(&self) -> ChainStatus {
        let head_age = self.head.head_age();
        let tracker = self.head.view().tracker();
        let (window, final_numbers) = tracker.sizes();
        ChainStatus {
            head: tracker.head(),
            age: tracker.refreshed().map(|sent| sent.time.elapsed()),
            head_age,
            lags: tracker.lags(),
            finalized: tracker.finalized(),
            window,
            final_numbers,
            max_staleness: tracker.rules().max_staleness,
        }
    }
}

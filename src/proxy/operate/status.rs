//! What is seen of the chain and demanded of its content, for those who only look.

use std::{sync::Arc, time::Duration};

use crate::{
    chain::Link,
    eth::{BlockHash, BlockNumber},
    proxy::{head::HeadTracker, lookup::CacheState, reorgs::Reorg},
    verify::{InForce, Verifier},
};

/// Tells what is known of the chain. Cheap to clone; asks nobody anything.
#[derive(Clone, Debug)]
pub struct Status {
    head: Arc<HeadTracker>,
    state: Arc<CacheState>,
    verifier: Verifier,
}

/// What is known of the chain at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStatus {
    /// The head of the tracked branch.
    pub head: Option<Link>,
    /// How long ago the refresh behind it was sent; `None` if it may have changed since.
    pub age: Option<Duration>,
    /// How long ago the head became what it is.
    pub head_age: Option<Duration>,
    /// Is the upstream behind the head that it showed?
    pub lags: bool,
    /// The newest final block.
    pub finalized: Option<(BlockNumber, BlockHash)>,
    /// Blocks whose links are known.
    pub window: usize,
    /// Numbers whose hash is known for good.
    pub final_numbers: usize,
    /// How old knowledge may be when a call arrives.
    pub max_staleness: Duration,
}

// === impl Status ===

impl Status {
    pub(crate) fn new(head: Arc<HeadTracker>, state: Arc<CacheState>, verifier: Verifier) -> Self {
        Self { head, state, verifier }
    }

    /// What is demanded of content, and why.
    pub fn verification(&self) -> InForce {
        self.verifier.in_force()
    }

    /// What is no longer cut out of larger content, since on this chain the cut is not what a node says.
    pub fn given_up(&self) -> impl Iterator<Item = &'static str> {
        self.state.derivations.given_up()
    }

    /// The last times that blocks left the chain, the newest first.
    pub fn reorgs(&self) -> Vec<Reorg> {
        self.head.reorgs().last()
    }

    /// How often blocks have left the chain.
    pub fn reorg_count(&self) -> u64 {
        self.head.reorgs().count()
    }

    /// The number of the head.
    pub fn head(&self) -> Option<BlockNumber> {
        self.head.view().tracker().head().map(|head| head.number)
    }

    /// What is known now.
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

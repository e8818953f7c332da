//! What is seen of the chain and demanded of its content, for those who only look.

use std::{sync::Arc, time::Duration};

use crate::{
    chain::Link,
    eth::{BlockHash, BlockNumber},
    proxy::{head::reorgs::Reorg, miss::fetcher::Fetcher},
    verify::InForce,
};

/// Tells what is known of the chain. Cheap to clone; asks nobody anything.
#[derive(Clone, Debug)]
pub struct Sight(Arc<Fetcher>);

/// What is known of the chain at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
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

// === impl Sight ===

impl Sight {
    pub(in crate::proxy) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self(fetcher)
    }

    pub(in crate::proxy) fn fetcher(&self) -> &Fetcher {
        &self.0
    }

    /// What is demanded of content, and why.
    pub fn verification(&self) -> InForce {
        self.0.verifier.in_force()
    }

    /// What is no longer cut out of larger content, since on this chain the cut is not what a node says.
    pub fn given_up(&self) -> impl Iterator<Item = &'static str> {
        self.0.derivations.given_up()
    }

    /// The last times that blocks left the chain, the newest first.
    pub fn reorgs(&self) -> Vec<Reorg> {
        self.0.view.reorgs().last()
    }

    /// How often blocks have left the chain.
    pub fn reorg_count(&self) -> u64 {
        self.0.view.reorgs().count()
    }

    /// The number of the head.
    pub fn head(&self) -> Option<BlockNumber> {
        self.0.view.tracker().head().map(|head| head.number)
    }

    /// What is known now.
    pub fn seen(&self) -> Seen {
        let head_age = self.0.view.head_age();
        let tracker = self.0.view.tracker();
        let (window, final_numbers) = tracker.sizes();
        Seen {
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

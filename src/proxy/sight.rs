//! The view of the chain, for those who only look.

use std::{sync::Arc, time::Duration};

use super::view::View;
use crate::{
    chain::Link,
    eth::{BlockHash, BlockNumber},
};

/// Tells what is known of the chain. Cheap to clone; asks nobody anything.
#[derive(Clone, Debug)]
pub struct Sight(Arc<View>);

/// What is known of the chain at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The head of the tracked branch.
    pub head: Option<Link>,
    /// How long ago the refresh behind it was sent; `None` if it may have changed since.
    pub age: Option<Duration>,
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
    pub(super) fn new(view: Arc<View>) -> Self {
        Self(view)
    }

    /// What is known now.
    pub fn seen(&self) -> Seen {
        let tracker = self.0.tracker();
        let (window, final_numbers) = tracker.sizes();
        Seen {
            head: tracker.head(),
            age: tracker.refreshed().map(|sent| sent.time.elapsed()),
            lags: tracker.lags(),
            finalized: tracker.finalized(),
            window,
            final_numbers,
            max_staleness: tracker.rules().max_staleness,
        }
    }
}

//! The chain that all endpoints must serve.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    super::{EndpointId, Stranger},
    WhoIs,
};

/// Chains that are started anew at will: another genesis there is no stranger.
const DEVELOPMENT: [u64; 2] = [31337, 1337];

/// Is this a chain that is started anew at will?
pub fn is_development(chain_id: u64) -> bool {
    DEVELOPMENT.contains(&chain_id)
}

/// What all endpoints must agree on.
pub(in crate::upstream) struct Pin {
    expected: Option<u64>,
    pinned: Mutex<Option<Pinned>>,
    /// Called when an endpoint turns out a stranger.
    heeded_by: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Clone, Debug)]
struct Pinned {
    /// Who said it. `None` if it is gone, and all that agreed with it.
    by: Option<EndpointId>,
    who: Arc<WhoIs>,
}

// === impl Pin ===

impl Pin {
    /// Nothing is pinned yet; with `expected`, only that chain will do.
    pub(in crate::upstream) fn new(expected: Option<u64>) -> Self {
        Self { expected, pinned: Mutex::default(), heeded_by: OnceLock::new() }
    }

    /// Calls `heed`, from here on, whenever an endpoint turns out a stranger. Only the first `heed` counts.
    pub(in crate::upstream) fn on_stranger(&self, heed: impl Fn() + Send + Sync + 'static) {
        let _ = self.heeded_by.set(Box::new(heed));
    }

    /// An endpoint whose answers were accepted turned out a stranger.
    pub(super) fn estranged(&self) {
        if let Some(heed) = self.heeded_by.get() {
            heed();
        }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub(in crate::upstream) fn pinned(&self) -> Option<Arc<WhoIs>> {
        self.pinned.lock().as_ref().map(|pinned| pinned.who.clone())
    }

    /// Is there nothing left to pin?
    pub(super) fn is_settled(&self) -> bool {
        self.pinned.lock().as_ref().is_some_and(|pinned| pinned.by.is_some() && pinned.who.genesis.is_some())
    }

    /// Some endpoints are gone. Another that has said the same takes the place of the one that pinned it.
    /// Who that is must be found without the lock: what an endpoint has said stands behind one of its own, under which
    /// others come here.
    pub(in crate::upstream) fn retain(
        &self,
        is_there: impl Fn(EndpointId) -> bool,
        agrees: impl FnOnce() -> Option<EndpointId>,
    ) {
        let agrees = agrees();
        if let Some(pinned) = &mut *self.pinned.lock()
            && !pinned.by.is_some_and(is_there)
        {
            pinned.by = agrees;
        }
    }

    /// Is this who all must be? The first one that is asked decides.
    pub(super) fn judge(&self, id: EndpointId, who: WhoIs) -> Result<Arc<WhoIs>, Stranger> {
        let mut pinned = self.pinned.lock();
        if let Some(expected) = self.expected.filter(|expected| *expected != who.chain_id) {
            return Err(Stranger::ChainId { expected, got: who.chain_id });
        }
        let Some(Pinned { by, who: before }) = pinned.clone() else {
            let who = Arc::new(who);
            *pinned = Some(Pinned { by: Some(id), who: who.clone() });
            return Ok(who);
        };
        // A development chain is started anew at will, and told to have another id; two at a time are two chains all the
        // same.
        let is_its_own = by == Some(id) || (by.is_none() && is_development(who.chain_id));
        let may_change = is_development(before.chain_id) && is_its_own;
        if before.chain_id != who.chain_id && !may_change {
            return Err(Stranger::ChainId { expected: before.chain_id, got: who.chain_id });
        }
        if let (Some(expected), Some(got)) = (before.genesis, who.genesis)
            && expected != got
            && !may_change
        {
            return Err(Stranger::Genesis { expected, got });
        }
        let who = who.completed(Some(&before));
        let who = if who == *before { before } else { Arc::new(who) };
        *pinned = Some(Pinned { by: by.or(Some(id)), who: who.clone() });
        Ok(who)
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin")
            .field("expected", &self.expected)
            .field("pinned", &self.pinned)
            .finish_non_exhaustive()
    }
}

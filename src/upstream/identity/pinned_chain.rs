//! The chain that all endpoints must serve.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    super::{EndpointId, WrongChain},
    ChainIdentity,
};

/// Chains that are started anew at will: another genesis there is no stranger.
const DEVELOPMENT: [u64; 2] = [31337, 1337];

/// Is this a chain that is started anew at will?
pub fn is_development(chain_id: u64) -> bool {
    DEVELOPMENT.contains(&chain_id)
}

/// What all endpoints must agree on.
pub(in crate::upstream) struct PinnedChain {
    expected: Option<u64>,
    pinned: Mutex<Option<PinnedIdentity>>,
    /// Called when an endpoint turns out a stranger.
    on_wrong_chain: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Clone, Debug)]
struct PinnedIdentity {
    /// Who said it. `None` if it is gone, and all that agreed with it.
    source: Option<EndpointId>,
    identity: Arc<ChainIdentity>,
}

// === impl PinnedChain ===

impl PinnedChain {
    /// Nothing is pinned yet; with `expected`, only that chain will do.
    pub(in crate::upstream) fn new(expected: Option<u64>) -> Self {
        Self { expected, pinned: Mutex::default(), on_wrong_chain: OnceLock::new() }
    }

    /// Calls `notify`, from here on, whenever an endpoint turns out a stranger. Only the first `notify` counts.
    pub(in crate::upstream) fn on_wrong_chain(&self, notify: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_wrong_chain.set(Box::new(notify));
    }

    /// An endpoint whose answers were accepted turned out a stranger.
    pub(super) fn notify_wrong_chain(&self) {
        if let Some(notify) = self.on_wrong_chain.get() {
            notify();
        }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub(in crate::upstream) fn pinned(&self) -> Option<Arc<ChainIdentity>> {
        self.pinned.lock().as_ref().map(|pinned| pinned.identity.clone())
    }

    /// Is there nothing left to pin?
    pub(super) fn is_complete(&self) -> bool {
        self.pinned
            .lock()
            .as_ref()
            .is_some_and(|pinned| pinned.source.is_some() && pinned.identity.genesis.is_some())
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
            && !pinned.source.is_some_and(is_there)
        {
            pinned.source = agrees;
        }
    }

    /// Is this who all must be? The first one that is asked decides.
    pub(super) fn check(
        &self,
        id: EndpointId,
        identity: ChainIdentity,
    ) -> Result<Arc<ChainIdentity>, WrongChain> {
        let mut pinned = self.pinned.lock();
        if let Some(expected) = self.expected.filter(|expected| *expected != identity.chain_id) {
            return Err(WrongChain::ChainId { expected, got: identity.chain_id });
        }
        let Some(PinnedIdentity { source, identity: before }) = pinned.clone() else {
            let identity = Arc::new(identity);
            *pinned = Some(PinnedIdentity { source: Some(id), identity: identity.clone() });
            return Ok(identity);
        };
        // A development chain is started anew at will, and told to have another id; two at a time are two chains all the
        // same.
        let is_its_own = source == Some(id) || (source.is_none() && is_development(identity.chain_id));
        let may_change = is_development(before.chain_id) && is_its_own;
        if before.chain_id != identity.chain_id && !may_change {
            return Err(WrongChain::ChainId { expected: before.chain_id, got: identity.chain_id });
        }
        if let (Some(expected), Some(got)) = (before.genesis, identity.genesis)
            && expected != got
            && !may_change
        {
            return Err(WrongChain::Genesis { expected, got });
        }
        let identity = identity.completed(Some(&before));
        let identity = if identity == *before { before } else { Arc::new(identity) };
        *pinned = Some(PinnedIdentity { source: source.or(Some(id)), identity: identity.clone() });
        Ok(identity)
    }
}

impl fmt::Debug for PinnedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedChain")
            .field("expected", &self.expected)
            .field("pinned", &self.pinned)
            .finish_non_exhaustive()
    }
}

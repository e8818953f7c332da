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

/// Ids of development chains. Developers restart these chains at will, so another genesis does not mean a wrong chain.
const DEVELOPMENT: [u64; 2] = [31337, 1337];

/// Returns whether this is a development chain, which may restart with another genesis.
pub fn is_development(chain_id: u64) -> bool {
    DEVELOPMENT.contains(&chain_id)
}

/// The chain that all endpoints must agree on.
pub(in crate::upstream) struct PinnedChain {
    expected: Option<u64>,
    pinned: Mutex<Option<PinnedIdentity>>,
    /// Called when an endpoint whose answers were accepted turns out to serve another chain.
    on_wrong_chain: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Clone, Debug)]
struct PinnedIdentity {
    /// The endpoint that reported the identity, or one that agreed with it. `None` if reloads have removed all of
    /// them.
    source: Option<EndpointId>,
    identity: Arc<ChainIdentity>,
}

// === impl PinnedChain ===

impl PinnedChain {
    /// Creates an unpinned chain; with `expected`, it accepts only that chain id.
    pub(in crate::upstream) fn new(expected: Option<u64>) -> Self {
        Self { expected, pinned: Mutex::default(), on_wrong_chain: OnceLock::new() }
    }

    /// Calls `notify` from now on whenever an endpoint whose answers were accepted turns out to serve another chain.
    /// Only the first call of this method has an effect.
    pub(in crate::upstream) fn on_wrong_chain(&self, notify: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_wrong_chain.set(Box::new(notify));
    }

    /// Reports that an endpoint whose answers were accepted serves another chain.
    pub(super) fn notify_wrong_chain(&self) {
        if let Some(notify) = self.on_wrong_chain.get() {
            notify();
        }
    }

    /// Returns the pinned chain, even if no endpoint is reachable now.
    pub(in crate::upstream) fn pinned(&self) -> Option<Arc<ChainIdentity>> {
        self.pinned.lock().as_ref().map(|pinned| pinned.identity.clone())
    }

    /// Returns whether the chain is pinned completely: with its genesis, and by an endpoint that still exists.
    pub(super) fn is_complete(&self) -> bool {
        self.pinned
            .lock()
            .as_ref()
            .is_some_and(|pinned| pinned.source.is_some() && pinned.identity.genesis.is_some())
    }

    /// Handles the removal of endpoints: if the endpoint that pinned the chain is gone, the endpoint that `agrees`
    /// returns takes its place. Calls `agrees`, which locks the state of an endpoint, before locking `pinned`: if two
    /// threads took these locks in opposite orders, they would deadlock.
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

    /// Names the chain of a node that does not say its id, if the endpoint can be used. The operator's id counts; in a
    /// pool, the genesis must also be that of the pinned chain. Without that id, the chain stays unknown: not in a pool,
    /// and not once the chain is known.
    pub(super) fn name(&self, identity: ChainIdentity, is_alone: bool) -> Option<ChainIdentity> {
        let pinned = self.pinned();
        let Some(expected) = self.expected else {
            let is_open = pinned.is_none_or(|pinned| pinned.is_unknown());
            return (is_alone && is_open).then_some(identity);
        };
        let is_same = pinned.is_none_or(|pinned| pinned.genesis == identity.genesis);
        (is_alone || (identity.genesis.is_some() && is_same)).then(|| identity.named(expected))
    }

    /// Checks an identity against the pinned chain. The first identity to arrive is pinned.
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
        // A development chain may restart with another genesis or id, but only at the endpoint that pinned it. If
        // another endpoint reports a different chain, that endpoint is wrong. A chain without an id may get one.
        let is_its_own = source == Some(id) || (source.is_none() && is_development(identity.chain_id));
        let may_change = (is_development(before.chain_id) && is_its_own) || before.is_unknown();
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

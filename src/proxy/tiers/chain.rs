//! The chain under which tiers store entries.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    cache::{Tiers, tier::ChainKey},
    proxy::head::SharedView,
    upstream::{ChainIdentity, is_development},
};

/// The chain of this proxy, as the key of tier entries. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct StoredChain {
    tiers: Tiers,
    view: Arc<SharedView>,
    /// Chain of the last run, if the proxy loaded entries of that chain before any upstream had shown its chain.
    assumed: Arc<Mutex<Option<ChainKey>>>,
}

// === impl StoredChain ===

impl StoredChain {
    pub(super) fn new(tiers: Tiers, view: Arc<SharedView>) -> Self {
        Self { tiers, view, assumed: Arc::default() }
    }

    pub(super) fn view(&self) -> &Arc<SharedView> {
        &self.view
    }

    /// Returns the key under which tiers store final entries. `None` if there are no tiers, the chain is unknown or has
    /// no finality, or the operator configured a finality depth. In these cases, no entry leaves memory.
    pub(super) fn key(&self) -> Option<ChainKey> {
        if self.tiers.is_empty() || self.view.has_finality_depth() {
            return None;
        }
        key_of(&*self.view.chain()?)
    }

    /// Assumes the chain of the last run until an upstream shows its chain. Returns `false` if an upstream has already
    /// shown its chain.
    pub(super) fn assume(&self, chain: ChainKey) -> bool {
        let mut assumed = self.assumed.lock();
        // Hold the lock during this check: `end_assumption` takes the same lock, and runs only after the view has the
        // chain.
        let is_open = !self.view.has_chain();
        if is_open {
            *assumed = Some(chain);
        }
        is_open
    }

    /// Ends the assumption, because the upstream has shown its chain. Returns whether the assumption was wrong.
    pub(super) fn end_assumption(&self) -> bool {
        let assumed = self.assumed.lock().take();
        assumed.is_some_and(|assumed| Some(assumed) != self.key())
    }
}

/// Returns the key of a chain, if its id and genesis are known and its blocks become final.
fn key_of(chain: &ChainIdentity) -> Option<ChainKey> {
    let genesis = chain.genesis?.0;
    (!is_development(chain.chain_id) && !chain.is_unknown())
        .then_some(ChainKey { id: chain.chain_id, genesis })
}

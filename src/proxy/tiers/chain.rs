//! The chain under which tiers store entries.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    cache::{Tiers, tier::ChainKey},
    proxy::head::SharedView,
    upstream::{ChainIdentity, is_development},
};

/// The chain of this proxy, as tiers name it. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoredChain {
    tiers: Tiers,
    view: Arc<SharedView>,
    /// The chain of the last run, from which entries were loaded before any upstream had shown its chain.
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

    /// Returns the key under which tiers store final entries; `None` if there are no tiers, or no entry may leave memory:
    /// nothing is final on this chain, the operator says what is, or the chain is not known yet.
    pub(super) fn key(&self) -> Option<ChainKey> {
        if self.tiers.is_empty() || self.view.has_finality_depth() {
            return None;
        }
        key_of(&*self.view.chain()?)
    }

    /// Assumes this chain, the one of the last run, until an upstream shows its own. Returns whether none has yet.
    pub(super) fn assume(&self, chain: ChainKey) -> bool {
        let mut assumed = self.assumed.lock();
        // Under the lock: the chain is set before this is taken.
        let is_open = !self.view.has_chain();
        if is_open {
            *assumed = Some(chain);
        }
        is_open
    }

    /// Ends the assumption: the upstream has shown its chain. Returns whether it is another one.
    pub(super) fn end_assumption(&self) -> bool {
        let assumed = self.assumed.lock().take();
        assumed.is_some_and(|assumed| Some(assumed) != self.key())
    }
}

/// Returns the key of a chain, if its genesis is known and blocks of it become final.
fn key_of(chain: &ChainIdentity) -> Option<ChainKey> {
    let genesis = chain.genesis?.0;
    (!is_development(chain.chain_id)).then_some(ChainKey { id: chain.chain_id, genesis })
}

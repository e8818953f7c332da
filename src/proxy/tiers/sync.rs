//! Passes changes of the canonical view on to cache tiers.

use std::sync::Arc;

use tracing::warn;

use super::{chain::StoredChain, write_back::WriteBack};
use crate::{
    cache::{Tiers, tier::ChainKey},
    eth::{BlockHash, BlockNumber, Home},
    proxy::{
        head::{SharedView, events::CanonicityListener},
        parts::ProxyParts,
    },
    upstream::ChainIdentity,
};

/// The cache tiers of the proxy.
#[derive(Debug)]
pub(crate) struct TierSync {
    tiers: Tiers,
    chain: StoredChain,
    write_back: WriteBack,
}

// === impl TierSync ===

impl TierSync {
    /// Creates the cache tiers of the proxy, and registers them as the listener of the view.
    pub(crate) fn new(view: Arc<SharedView>, parts: &ProxyParts) -> Arc<Self> {
        let tiers = parts.tiers.clone();
        let chain = StoredChain::new(tiers.clone(), view.clone());
        let this = Arc::new(Self { tiers, write_back: WriteBack::new(chain.clone(), parts), chain });
        let listener: Arc<dyn CanonicityListener> = this.clone();
        view.set_listener(Arc::downgrade(&listener));
        this
    }

    pub(crate) fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    /// Returns the key under which tiers store final entries of this chain; `None` if they do not store this chain.
    pub(crate) fn chain(&self) -> Option<ChainKey> {
        self.chain.key()
    }

    /// Assumes the chain of the last run until an upstream shows its chain. Returns `false` if an upstream has already
    /// shown its chain.
    pub(crate) fn assume_chain(&self, chain: ChainKey) -> bool {
        self.chain.assume(chain)
    }
}

impl CanonicityListener for TierSync {
    fn chain_adopted(&self, chain: &ChainIdentity) -> bool {
        // Pass on the key even if the chain id is the same, because the genesis block in the key may have become known.
        self.tiers.follow(self.chain.key());
        if chain.genesis.is_none() && !self.tiers.is_empty() {
            warn!(
                chain_id = chain.chain_id,
                "the upstream does not show its genesis block, which identifies the chain in cache tiers; tiers are neither \
                 read nor written"
            );
        }
        self.chain.end_assumption()
    }

    fn entries_dropped(&self, entries: &[(BlockNumber, BlockHash)]) {
        if let Some(chain) = self.chain.key() {
            let entries: Vec<_> =
                entries.iter().map(|(number, block)| Home { number: *number, block: *block }).collect();
            self.tiers.drop_hints(chain, None, &entries);
        }
    }

    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]) {
        self.write_back.write_all(blocks);
    }
}

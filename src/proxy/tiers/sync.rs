//! Keeps the indexes of cache tiers in step with the canonical view.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tracing::warn;

use super::{chain::StoredChain, confirm::Confirmation, write_back::WriteBack};
use crate::{
    cache::{
        Checkpoint, Generation, Tiers,
        tier::{ChainKey, TierKind},
    },
    eth::{BlockHash, BlockNumber},
    proxy::{
        head::{HeadTracker, SharedView, events::CanonicityListener},
        parts::ProxyParts,
    },
    upstream::ChainIdentity,
};

/// The cache tiers of the proxy.
#[derive(Debug)]
pub(crate) struct TierSync {
    tiers: Tiers,
    view: Arc<SharedView>,
    chain: StoredChain,
    confirmation: Confirmation,
    write_back: WriteBack,
}

// === impl TierSync ===

impl TierSync {
    /// Creates the cache tiers of the proxy, and registers them as the listener of the view of `head`.
    pub(crate) fn new(head: &HeadTracker, parts: &ProxyParts) -> Arc<Self> {
        let (tiers, view) = (parts.tiers.clone(), head.view().clone());
        let chain = StoredChain::new(tiers.clone(), view.clone());
        let confirmation = Confirmation::new(chain.clone(), head.finality().clone(), parts);
        let write_back = WriteBack::new(chain.clone(), confirmation.clone(), parts);
        let this = Arc::new(Self { tiers, view, chain, confirmation, write_back });
        let listener: Arc<dyn CanonicityListener> = this.clone();
        this.view.set_listener(Arc::downgrade(&listener));
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

    /// Confirms the unconfirmed tiers, if a finalized block is known.
    pub(crate) async fn confirm(&self) {
        self.confirmation.confirm().await;
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

    fn canonicity_doubted(&self) {
        self.tiers.doubt();
    }

    fn canonicity_forgotten(&self) {
        if let Some(chain) = self.chain.key() {
            self.tiers.forget(chain, &TierKind::ALL);
        }
    }

    fn entries_contradicted(&self, entries: &[(BlockNumber, BlockHash)]) {
        if let Some(chain) = self.chain.key() {
            for (number, hash) in entries {
                self.tiers.drop_final(chain, *number, *hash);
            }
        }
    }

    fn blocks_finalized(&self, blocks: &[(BlockNumber, BlockHash)]) {
        self.write_back.write_all(blocks);
    }

    fn finality_advances(&self, block: (BlockNumber, BlockHash), counts: bool) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(chain) = self.chain.key() else { return true };
            let is_passed = |(number, _)| {
                self.tiers.highest_noted().is_some_and(|noted| number < noted && noted <= block.0)
            };
            if self.view.tracker().finalized().is_none_or(is_passed) {
                // The view has no finalized block, or a tier has noted a higher one. The chain may have replaced the
                // noted block since the tier was confirmed.
                self.tiers.doubt();
            }
            let generation = self.tiers.generation();
            // Confirm the tiers before the block becomes final and its entries are written, because an unconfirmed tier
            // drops writes.
            if counts {
                self.confirmation.confirm_by(Checkpoint { chain, block, generation }).await;
            } else {
                self.confirmation.confirm().await;
            }
            self.tiers.generation() == generation
        })
    }

    fn epoch(&self) -> u64 {
        self.tiers.generation().number()
    }

    fn finality_advanced(&self, previous: Option<BlockNumber>, block: (BlockNumber, BlockHash), epoch: u64) {
        self.write_back.advance(previous, block, Generation::from_number(epoch));
    }
}

//! Writes final entries back to cache tiers.

use std::sync::Arc;

use super::chain::StoredChain;
use crate::{
    cache::{
        Cache, Parcel, Tiers,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Lookup,
    eth::{Block, BlockHash, BlockNumber, Home, Receipts},
    proxy::parts::ProxyParts,
    verify::{Demand, Kind, Verified, Verifier},
};

/// Writes final entries to tiers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WriteBack {
    tiers: Tiers,
    cache: Cache,
    verifier: Verifier,
    chain: StoredChain,
}

// === impl WriteBack ===

impl WriteBack {
    pub(super) fn new(chain: StoredChain, parts: &ProxyParts) -> Self {
        let ProxyParts { tiers, cache, verifier, .. } = parts.clone();
        Self { tiers, cache, verifier, chain }
    }

    /// Writes the cached entries of these blocks.
    pub(super) fn write_all(&self, blocks: &[(BlockNumber, BlockHash)]) {
        for (_, hash) in blocks.iter().filter(|_| !self.tiers.is_empty()) {
            let hash = *hash;
            if let Some(block) = self.cache.block(hash) {
                self.write_block(&block, None);
            }
            if let Some(receipts) = self.cache.receipts(hash) {
                self.write_receipts(&receipts, None);
            }
        }
    }

    /// Writes a block, if it is final. `from` is the tier that the block came from, if any.
    pub(crate) fn write_block(&self, block: &Arc<Verified<Block>>, from: Option<TierKind>) {
        let home = block.header().home();
        if let Some(chain) = self.chain_of_final(Kind::Transactions, block, home) {
            let transactions = block.transaction_hashes().collect();
            let (part, text) = (Part::Block, block.full());
            self.tiers.put(Parcel { chain, home, part, transactions, text, from });
        }
    }

    /// Writes the receipts of a block, if the block is final. `from` is the tier that the receipts came from, if any.
    pub(crate) fn write_receipts(&self, receipts: &Verified<Receipts>, from: Option<TierKind>) {
        let Some(home) = receipts.named_home() else { return };
        if let Some(chain) = self.chain_of_final(Kind::Receipts, receipts, home) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { chain, home, part, transactions, text, from });
        }
    }

    /// Returns the chain under which to write this content to tiers; `None` if tiers must not store the content. The
    /// content must be final and proved. On a chain without proofs, the proxy must instead have requested the content
    /// after its block became final.
    fn chain_of_final<T>(
        &self,
        kind: Kind,
        content: &Verified<T>,
        Home { block, number }: Home,
    ) -> Option<ChainKey> {
        let unproved = content.is_settled() && self.verifier.demands(kind) == Demand::Structural;
        let chain = self.chain.key().filter(|_| content.is_proved() || unproved)?;
        let view = self.chain.view();
        (view.tracker().lookup(number, view.clock().now()) == Lookup::Final(block)).then_some(chain)
    }
}

//! Writes final entries back to cache tiers.

use std::sync::Arc;

use super::{chain::StoredChain, confirm::Confirmation};
use crate::{
    cache::{
        Cache, Checkpoint, Generation, Parcel, Tiers,
        tier::{Part, TierKind},
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
    confirmation: Confirmation,
}

// === impl WriteBack ===

impl WriteBack {
    pub(super) fn new(chain: StoredChain, confirmation: Confirmation, parts: &ProxyParts) -> Self {
        let ProxyParts { tiers, cache, verifier, .. } = parts.clone();
        Self { tiers, cache, verifier, chain, confirmation }
    }

    /// Notes the new finalized block in tiers, then writes the cached entries of all final blocks above `above`, up to
    /// that block.
    pub(super) fn advance(
        &self,
        above: Option<BlockNumber>,
        block: (BlockNumber, BlockHash),
        generation: Generation,
    ) {
        let Some(chain) = self.chain.key() else { return };
        self.tiers.note_finalized(Checkpoint { chain, block, generation });
        let passed = self.chain.view().tracker().final_blocks(above, block.0);
        self.write_all(&passed);
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
        if let Some(checkpoint) = self.final_by(Kind::Transactions, block, home) {
            let transactions = block.transaction_hashes().collect();
            let (part, text) = (Part::Block, block.full());
            self.tiers.put(Parcel { home, part, transactions, text, checkpoint, from });
        }
    }

    /// Writes the receipts of a block, if the block is final. `from` is the tier that the receipts came from, if any.
    pub(crate) fn write_receipts(&self, receipts: &Verified<Receipts>, from: Option<TierKind>) {
        let Some(home) = receipts.named_home() else { return };
        if let Some(checkpoint) = self.final_by(Kind::Receipts, receipts, home) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { home, part, transactions, text, checkpoint, from });
        }
    }

    /// Returns the checkpoint with which to write this content to tiers; `None` if tiers must not store the content.
    /// The content must be final and proved. On a chain without proofs, the proxy must instead have requested the
    /// content after its block became final.
    fn final_by<T>(
        &self,
        kind: Kind,
        content: &Verified<T>,
        Home { block, number }: Home,
    ) -> Option<Checkpoint> {
        let unproved = content.is_settled() && self.verifier.demands(kind) == Demand::Structural;
        if !(content.is_proved() || unproved) {
            return None;
        }
        let now = self.chain.view().clock().now();
        let checkpoint =
            self.confirmation.checkpoint(|tracker| tracker.lookup(number, now) == Lookup::Final(block))?;
        // Start to confirm the unconfirmed tiers, so that they accept later writes; they drop this one.
        self.confirmation.start(checkpoint);
        Some(checkpoint)
    }
}

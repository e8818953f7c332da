//! Hands what is final on to the tiers behind memory.

use std::sync::Arc;

use super::View;
use crate::{
    cache::{
        Checkpoint, Generation, Parcel,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Lookup,
    eth::{Block, BlockHash, BlockNumber, Home, Receipts},
    upstream::{ChainIdentity, is_development},
    verify::{Demand, Kind, Verified},
};

// === impl View ===

impl View {
    /// Under what tiers keep what is final on this chain; `None` if there are none, or nothing may leave memory: where
    /// nothing is final, where the operator says what is, and where it is not known what chain this is.
    pub(in crate::proxy) fn stored_as(&self) -> Option<ChainKey> {
        if self.tiers.is_empty() || self.config.lock().finality_depth.is_some() {
            return None;
        }
        let who = self.times.lock().who.clone()?;
        key_of(&who)
    }

    /// Finality has advanced to this block: notes it in tiers, then writes cached blocks up to it.
    pub(super) fn spill(
        self: &Arc<Self>,
        above: Option<BlockNumber>,
        block: (BlockNumber, BlockHash),
        generation: Generation,
    ) {
        let Some(chain) = self.stored_as() else { return };
        self.tiers.note_finalized(Checkpoint { chain, block, generation });
        let passed = self.tracker().final_blocks(above, block.0);
        self.spill_all(&passed);
    }

    /// Hands what is in memory of these blocks on.
    pub(super) fn spill_all(self: &Arc<Self>, blocks: &[(BlockNumber, BlockHash)]) {
        for (_, hash) in blocks.iter().filter(|_| !self.tiers.is_empty()) {
            let hash = *hash;
            if let Some(block) = self.cache.block(hash) {
                self.spill_block(&block, None);
            }
            if let Some(receipts) = self.cache.receipts(hash) {
                self.spill_receipts(&receipts, None);
            }
        }
    }

    /// Hands a block on, if it is final. `from` is the tier that it came from.
    pub(in crate::proxy) fn spill_block(
        self: &Arc<Self>,
        block: &Arc<Verified<Block>>,
        from: Option<TierKind>,
    ) {
        let home = block.header().home();
        if let Some(checkpoint) = self.final_by(Kind::Transactions, block, home) {
            let transactions = block.transaction_hashes().collect();
            let (part, text) = (Part::Block, block.full());
            self.tiers.put(Parcel { home, part, transactions, text, checkpoint, from });
        }
    }

    /// The same for the receipts of a block.
    pub(in crate::proxy) fn spill_receipts(
        self: &Arc<Self>,
        receipts: &Verified<Receipts>,
        from: Option<TierKind>,
    ) {
        let Some(home) = receipts.named_home() else { return };
        if let Some(checkpoint) = self.final_by(Kind::Receipts, receipts, home) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { home, part, transactions, text, checkpoint, from });
        }
    }

    /// Returns the finalized block by which this content may be written to tiers: the content is proved (or, where nothing can
    /// be, was fetched when it was final), and final.
    fn final_by<T>(
        self: &Arc<Self>,
        kind: Kind,
        content: &Verified<T>,
        Home { block, number }: Home,
    ) -> Option<Checkpoint> {
        let unproved = content.is_settled() && self.verifier.demands(kind) == Demand::Structural;
        if !(content.is_proved() || unproved) {
            return None;
        }
        let now = self.clock.now();
        let checkpoint = self.checkpoint(|tracker| tracker.lookup(number, now) == Lookup::Final(block))?;
        // For the next content: an unconfirmed tier drops this one.
        self.start_confirming(checkpoint);
        Some(checkpoint)
    }
}

/// Under what a chain is kept, if it is known what chain it is, and anything of it is ever final.
pub(super) fn key_of(who: &ChainIdentity) -> Option<ChainKey> {
    let genesis = who.genesis?.0;
    (!is_development(who.chain_id)).then_some(ChainKey { id: who.chain_id, genesis })
}

//! Hands what is final on to the tiers behind memory.

use std::sync::Arc;

use super::View;
use crate::{
    cache::{
        Era, Parcel,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Lookup,
    eth::{Block, BlockHash, BlockNumber, Receipts},
    upstream::{WhoIs, is_development},
    verify::{Demand, Kind, Verified},
};

/// That something may be handed on, and by what it is final.
struct Spills {
    chain: ChainKey,
    finalized: (BlockNumber, BlockHash),
    era: Era,
}

// === impl View ===

impl View {
    /// Under what tiers keep what is final on this chain; `None` if there are none, or nothing may leave memory: where
    /// nothing is final, where the operator says what is, and where it is not known what chain this is.
    pub(in crate::proxy) fn stored_as(&self) -> Option<ChainKey> {
        if self.tiers.is_empty() || self.config().finality_depth.is_some() {
            return None;
        }
        let who = self.times().who.clone()?;
        key_of(&who)
    }

    /// Finality has risen to this block: it is noted, and then what is in memory up to it is handed on.
    pub(super) fn spill(
        self: &Arc<Self>,
        above: Option<BlockNumber>,
        (number, hash): (BlockNumber, BlockHash),
        era: Era,
    ) {
        let Some(chain) = self.stored_as() else { return };
        self.tiers.note_finalized(chain, (number, hash), era);
        let passed = self.tracker().final_blocks(above, number);
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
        let header = block.header();
        let (number, hash) = (header.number, header.hash);
        if let Some(Spills { chain, finalized, era }) = self.spills(Kind::Transactions, block, number, hash) {
            let transactions = block.transaction_hashes().collect();
            let (part, text) = (Part::Block, block.full());
            self.tiers.put(Parcel { chain, number, hash, part, transactions, text, finalized, from }, era);
        }
    }

    /// The same for the receipts of a block.
    pub(in crate::proxy) fn spill_receipts(
        self: &Arc<Self>,
        receipts: &Verified<Receipts>,
        from: Option<TierKind>,
    ) {
        let Some((hash, number)) = receipts.home() else { return };
        if let Some(Spills { chain, finalized, era }) = self.spills(Kind::Receipts, receipts, number, hash) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { chain, number, hash, part, transactions, text, finalized, from }, era);
        }
    }

    /// Is it proved (or, where nothing can be, said when it was final), and final?
    fn spills<T>(
        self: &Arc<Self>,
        kind: Kind,
        content: &Verified<T>,
        number: BlockNumber,
        hash: BlockHash,
    ) -> Option<Spills> {
        let chain = self.stored_as()?;
        // Before it is looked: what is forgotten after that is forgotten here too.
        let era = self.tiers.era();
        let unproved = content.is_settled() && self.verifier.demands(kind) == Demand::Structural;
        if !(content.is_proved() || unproved) {
            return None;
        }
        let finalized = {
            let tracker = self.tracker();
            let is_final = tracker.lookup(number, self.clock.now()) == Lookup::Final(hash);
            tracker.finalized().filter(|_| is_final)?
        };
        // For what comes next: where a tier is not confirmed, this is left out.
        self.confirm_meanwhile(chain);
        Some(Spills { chain, finalized, era })
    }
}

/// Under what a chain is kept, if it is known what chain it is, and anything of it is ever final.
pub(super) fn key_of(who: &WhoIs) -> Option<ChainKey> {
    let genesis = who.genesis?.0;
    (!is_development(who.chain_id)).then_some(ChainKey { id: who.chain_id, genesis })
}

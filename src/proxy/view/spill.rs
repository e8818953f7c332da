//! Hands what is final on to the tiers behind memory.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::error;

use super::View;
use crate::{
    cache::{
        Parcel,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Lookup,
    eth::{Block, BlockHash, BlockNumber, Receipts},
    upstream::{UpstreamError, is_development},
    verify::{AskedBlock, Demand, Kind, Verified},
};

// === impl View ===

impl View {
    /// Under what tiers keep what is final on this chain; `None` if there are none, or nothing may leave memory: where
    /// nothing is final, where the operator says what is, and where it is not known what chain this is.
    pub(in crate::proxy) fn stored_as(&self) -> Option<ChainKey> {
        if self.tiers.is_empty() || self.config().finality_depth.is_some() {
            return None;
        }
        let who = self.times().who.clone()?;
        let genesis = who.genesis?.0;
        (!is_development(who.chain_id)).then_some(ChainKey { id: who.chain_id, genesis })
    }

    /// Finality has risen to this block: it is noted, and then what is in memory up to it is handed on.
    pub(super) fn spill(&self, above: Option<BlockNumber>, (number, hash): (BlockNumber, BlockHash)) {
        let Some(chain) = self.stored_as() else { return };
        self.tiers.note_finalized(chain, number, hash);
        let passed = self.tracker().final_blocks(above, number);
        for (_, hash) in passed {
            if let Some(block) = self.cache.block(hash) {
                self.spill_block(&block, None);
            }
            if let Some(receipts) = self.cache.receipts(hash) {
                self.spill_receipts(&receipts, None);
            }
        }
    }

    /// Hands a block on, if it is final. `from` is the tier that it came from.
    pub(in crate::proxy) fn spill_block(&self, block: &Arc<Verified<Block>>, from: Option<TierKind>) {
        let header = block.header();
        if let Some(chain) = self.spills(Kind::Blocks, block, header.number, header.hash) {
            let transactions = block.transaction_hashes().collect();
            let (number, hash, text) = (header.number, header.hash, block.full());
            self.tiers.put(Parcel { chain, number, hash, part: Part::Block, transactions, text, from });
        }
    }

    /// The same for the receipts of a block.
    pub(in crate::proxy) fn spill_receipts(&self, receipts: &Verified<Receipts>, from: Option<TierKind>) {
        let Some((hash, number)) = receipts.home() else { return };
        if let Some(chain) = self.spills(Kind::Receipts, receipts, number, hash) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { chain, number, hash, part, transactions, text, from });
        }
    }

    /// Is it proved (or, where nothing can be, said when it was final), and final?
    fn spills<T>(
        &self,
        kind: Kind,
        content: &Verified<T>,
        number: BlockNumber,
        hash: BlockHash,
    ) -> Option<ChainKey> {
        let chain = self.stored_as()?;
        let unproved = content.is_settled() && self.verifier.demands(kind) == Demand::Structural;
        let is_final = self.tracker().lookup(number, self.clock.now()) == Lookup::Final(hash);
        if !is_final || !(content.is_proved() || unproved) {
            return None;
        }
        self.times().spilled = Some(Instant::now());
        Some(chain)
    }

    /// What was handed on since then may have been a stranger's word as to where it stands.
    pub(super) fn take_back(&self, since: Instant) {
        let spilled = self.times().spilled;
        if let Some(chain) = self.stored_as()
            && spilled.is_some_and(|spilled| spilled >= since)
        {
            self.tiers.forget_canonicity(chain);
        }
    }

    /// Asks what stands at the number that was the highest final one when tiers were last written. What they say of
    /// numbers counts if that is still the same block; else they are told to forget it.
    pub(in crate::proxy) async fn confirm_stored(
        self: &Arc<Self>,
        chain: ChainKey,
        (number, hash): (BlockNumber, BlockHash),
    ) -> Result<(), UpstreamError> {
        let now = self.clock.now();
        let asked = self.ask(&number.to_string(), AskedBlock::ByNumber(number), now).await?;
        let named = asked.ok_or(UpstreamError::Empty)?;
        let found = named.thin.hash();
        if found == hash {
            return Ok(());
        }
        self.recognise(named.by).await?;
        error!(
            number = number.0,
            "ALARM: a block that was final before the start changed: {hash} became {found}; what tiers say of canonicity \
             is forgotten"
        );
        self.metrics.alarm();
        self.tiers.forget_canonicity(chain);
        Ok(())
    }
}

//! Hands what is final on to the tiers behind memory.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::error;

use super::{View, refresh::Unnamed};
use crate::{
    cache::{
        Era, Parcel,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Lookup,
    eth::{Block, BlockHash, BlockNumber, Receipts},
    upstream::{UpstreamError, is_development},
    verify::{AskedBlock, Demand, Kind, Verified},
};

/// What could not be confirmed is tried again after this: not with every call.
const CONFIRM_AGAIN: Duration = Duration::from_secs(1);

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
        let genesis = who.genesis?.0;
        (!is_development(who.chain_id)).then_some(ChainKey { id: who.chain_id, genesis })
    }

    /// Finality has risen to this block: it is noted, and then what is in memory up to it is handed on.
    pub(super) fn spill(
        &self,
        above: Option<BlockNumber>,
        (number, hash): (BlockNumber, BlockHash),
        era: Era,
    ) {
        let Some(chain) = self.stored_as() else { return };
        self.tiers.note_finalized(chain, (number, hash), era);
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
        let (number, hash) = (header.number, header.hash);
        if let Some(Spills { chain, finalized, era }) = self.spills(Kind::Blocks, block, number, hash) {
            let transactions = block.transaction_hashes().collect();
            let (part, text) = (Part::Block, block.full());
            self.tiers.put(Parcel { chain, number, hash, part, transactions, text, finalized, from }, era);
        }
    }

    /// The same for the receipts of a block.
    pub(in crate::proxy) fn spill_receipts(&self, receipts: &Verified<Receipts>, from: Option<TierKind>) {
        let Some((hash, number)) = receipts.home() else { return };
        if let Some(Spills { chain, finalized, era }) = self.spills(Kind::Receipts, receipts, number, hash) {
            let (part, transactions, text) = (Part::Receipts, Vec::new(), receipts.all());
            self.tiers.put(Parcel { chain, number, hash, part, transactions, text, finalized, from }, era);
        }
    }

    /// Is it proved (or, where nothing can be, said when it was final), and final?
    fn spills<T>(
        &self,
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
        self.times().spilled = Some(Instant::now());
        Some(Spills { chain, finalized, era })
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

    /// Makes sure that what tiers say of numbers counts: of each that has not been held against the upstream since the start,
    /// or since there was reason to doubt it, it is asked what stands at the number that was the highest final one when it was
    /// last told. If that is another block now, this tier is told to forget.
    pub(in crate::proxy) async fn confirm_tiers(
        self: &Arc<Self>,
        chain: ChainKey,
    ) -> Result<(), UpstreamError> {
        let is_tried = || self.times().confirmed.is_some_and(|tried| tried.elapsed() < CONFIRM_AGAIN);
        if self.tiers.is_confirmed() || is_tried() {
            return Ok(());
        }
        let _one = self.confirming.lock().await;
        // Whoever waited for another's attempt does not make one of its own.
        if is_tried() {
            return Ok(());
        }
        let tried = self.try_to_confirm(chain).await;
        self.times().confirmed = Some(Instant::now());
        tried
    }

    async fn try_to_confirm(self: &Arc<Self>, chain: ChainKey) -> Result<(), UpstreamError> {
        let unconfirmed = self.tiers.unconfirmed(chain).await;
        if unconfirmed.is_empty() {
            return Ok(());
        }
        let era = self.tiers.era();
        let finalized = self.tracker().finalized();
        // Where others found out that what was final is not, it may be so here too, and not be known yet.
        if let Some((number, hash)) = finalized
            && !self.still_stands(number, hash).await?
        {
            let (now, found) = (self.clock.now(), "another block stands there now");
            self.change(|tracker| tracker.forget(now));
            self.alarm(number, found);
            return Ok(());
        }
        let mut told = Ok(());
        for tier in unconfirmed {
            let stands = match tier.finalized {
                Some((number, hash)) if finalized != tier.finalized => self.still_stands(number, hash).await,
                _ => Ok(true),
            };
            let stands = match stands {
                Ok(stands) => stands,
                Err(error) => {
                    // What one says cannot be held against anything; others are not to suffer for it.
                    told = Err(error);
                    continue;
                }
            };
            if let Some((number, hash)) = tier.finalized.filter(|_| !stands) {
                error!(
                    number = number.0,
                    tier = tier.tier.as_str(),
                    "ALARM: a block that was final before changed, and was {hash}; what the tier says of canonicity is forgotten"
                );
                self.metrics.alarm();
                self.tiers.forget_one(chain, tier.tier);
            } else {
                self.tiers.confirm(chain, tier).await;
            }
        }
        if let Some(finalized) = finalized {
            self.tiers.note_finalized(chain, finalized, era);
        }
        told
    }

    /// Does this block still stand there? An error if that cannot be told, or a stranger was asked. What is
    /// older than what is final now, and gone, is taken to stand: the node has pruned it, and cannot be asked; and it may have
    /// been imported for just that reason.
    async fn still_stands(
        self: &Arc<Self>,
        number: BlockNumber,
        hash: BlockHash,
    ) -> Result<bool, UpstreamError> {
        let heard = self.hear(&number.to_string(), AskedBlock::ByNumber(number), self.clock.now()).await?;
        let is_older = self.tracker().finalized().is_some_and(|(finalized, _)| number < finalized);
        let named = match heard {
            Ok(named) => named,
            Err(Unnamed::Absent) if is_older => return Ok(true),
            Err(Unnamed::Absent | Unnamed::Other) => return Err(UpstreamError::Empty),
        };
        if named.thin.hash() == hash {
            return Ok(true);
        }
        self.recognise(named.by).await?;
        Ok(false)
    }
}

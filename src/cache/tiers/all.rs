//! All tiers, in the order of lookup.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    checkpoint::Checkpoint,
    guarded::Guarded,
    metrics::{Metrics, Wrote},
    status::TierStatus,
    trust::{Accept, Generation, GenerationCounter, State},
    writer::{Packet, Parcel, Work, Writer},
};
use crate::{
    blocking,
    budget::{ByteBudget, ByteLease},
    cache::tier::{ChainKey, Damaged, Part, Sealed, Tier, TierKind},
    context::CallContext,
    eth::{BlockHash, BlockNumber, TxHash},
    timeout::timeout,
};

/// Longest text, in bytes, to decompress on the calling thread. For such a short text, the switch to another thread
/// would take longer than the decompression.
const SHORT: usize = 16 << 10;

/// Longest wait for the queued writes of a tier. After this time, Holdfast reports a removal as failed, and a
/// confirmation skips the tier until the next attempt.
const SETTLE: Duration = Duration::from_secs(2);

/// All tiers together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tiers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    rungs: Box<[Rung]>,
    generations: GenerationCounter,
    /// Limits the bytes that were read from tiers and are not verified yet. Responses of upstreams share this budget.
    budget: ByteBudget,
    metrics: Metrics,
}

/// A tier and the queue of its writes.
#[derive(Debug)]
struct Rung {
    tier: Arc<Guarded>,
    writer: Writer,
}

/// Content from a tier. Keep this value until the text is verified and then stored or discarded, because it owns the
/// lease of the text's bytes.
#[derive(Debug)]
pub struct Found {
    /// The JSON text.
    pub text: Bytes,
    /// The tier that the text came from.
    pub tier: TierKind,
    _held: ByteLease,
}

/// An unconfirmed tier, and the finalized block to confirm it by.
#[derive(Clone, Copy, Debug)]
pub struct Unconfirmed {
    /// The tier.
    pub tier: TierKind,
    /// The highest finalized block noted in the tier.
    pub finalized: Option<(BlockNumber, BlockHash)>,
    since: Generation,
}

// === impl Tiers ===

impl Tiers {
    /// Creates the tiers, in lookup order, each with its read timeout. Call it in a Tokio runtime, because it spawns
    /// the writers.
    pub fn new(tiers: Vec<(Arc<dyn Tier>, Duration)>, budget: ByteBudget, metrics: Metrics) -> Self {
        if tiers.is_empty() {
            return Self::default();
        }
        let generations = GenerationCounter::default();
        let rungs = tiers.into_iter().map(|(tier, patience)| {
            let tier = Arc::new(Guarded::new(tier, patience, generations.clone(), metrics.clone()));
            Rung { writer: Writer::start(tier.clone(), metrics.clone()), tier }
        });
        Self(Some(Arc::new(Inner { rungs: rungs.collect(), generations, budget, metrics })))
    }

    /// Returns whether no tier is configured.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the text of a part of the block `hash` from the first tier that has it. If `after` is given, asks only
    /// the tiers behind that tier. The text is not verified. If it is wrong, the caller [rejects](Self::reject) it and
    /// calls again with `after` set to the tier that the text came from.
    pub async fn get(
        &self,
        chain: ChainKey,
        part: Part,
        hash: BlockHash,
        after: Option<TierKind>,
    ) -> Option<Found> {
        let inner = self.0.as_ref()?;
        let passed = after.and_then(|tier| inner.rungs.iter().position(|rung| rung.tier.kind() == tier));
        for Rung { tier, writer } in inner.rungs.iter().skip(passed.map_or(0, |at| at + 1)) {
            let kind = tier.kind();
            let Some(sealed) = tier.look(|tier| tier.get(chain, part, hash)).await else { continue };
            let mut held = inner.budget.lease(CallContext::client());
            if held.grow(sealed.bytes().len() + sealed.takes()).is_err() {
                // The byte budget is exhausted. Continue without this tier, as after a timeout.
                inner.metrics.skipped(kind);
                continue;
            }
            match open(sealed).await {
                Ok(text) => {
                    held.hold(text.len());
                    return Some(Found { text, tier: kind, _held: held });
                }
                Err(damaged) => {
                    inner.metrics.damaged(kind);
                    tier.say("damaged", &damaged);
                    writer.tell(Work::Remove(chain, part, hash));
                }
            }
        }
        None
    }

    /// Returns the canonical hash at a finalized number, from the index of a tier.
    pub async fn hash_at(&self, chain: ChainKey, number: BlockNumber, accept: Accept) -> Option<BlockHash> {
        for tier in self.answering(accept) {
            if let Some(hash) = tier.look_up(|tier| tier.hash_at(chain, number)).await {
                return Some(hash);
            }
        }
        None
    }

    /// Returns the number of the block that may hold a transaction. This is a hint: the caller must check that the
    /// block holds the transaction.
    pub async fn place_of(&self, chain: ChainKey, transaction: TxHash) -> Option<BlockNumber> {
        for tier in self.answering(Accept::Any) {
            if let Some((number, _)) = tier.look(|tier| tier.place_of(chain, transaction)).await {
                return Some(number);
            }
        }
        None
    }

    /// Returns the highest finalized block that any tier has noted.
    pub async fn finalized(&self, chain: ChainKey) -> Option<(BlockNumber, BlockHash)> {
        let mut highest: Option<(BlockNumber, BlockHash)> = None;
        for tier in self.answering(Accept::Any) {
            let noted = tier.look_up(|tier| tier.finalized(chain)).await;
            highest = highest.into_iter().chain(noted).max_by_key(|(number, _)| *number);
        }
        highest
    }

    /// Reports that the content a tier returned for `hash` is wrong. Queues the removal of this content.
    pub fn reject(&self, chain: ChainKey, part: Part, hash: BlockHash, tier: TierKind) {
        let (Some(inner), Some(rung)) = (&self.0, self.rung(tier)) else { return };
        inner.metrics.rejected(tier);
        rung.tier.say("rejected", &"stored value does not match its hash; removing it");
        rung.writer.tell(Work::Remove(chain, part, hash));
    }

    /// Queues the removal of a block that turned out not to be final. A tier that cannot remove it must forget its index.
    pub fn drop_final(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) {
        for Rung { writer, tier } in self.rungs() {
            if !writer.try_tell(Work::DropFinal(chain, number, hash)) {
                tier.trust.forget();
            }
        }
    }

    /// Removes a block from all tiers. Returns the tiers that may still have it, because they failed or were too slow.
    pub async fn remove(&self, chain: ChainKey, block: BlockHash) -> Vec<TierKind> {
        let mut left_in = Vec::new();
        // Begin with the last tier: otherwise, a lookup could copy the entry from a later tier back to an earlier one.
        for Rung { tier, writer } in self.rungs().iter().rev() {
            if timeout(SETTLE, writer.remove(chain, block)).await != Ok(true) {
                left_in.push(tier.kind());
            }
        }
        left_in
    }

    /// Returns the numbers of the blocks that may hold a transaction, and the tiers that did not answer.
    pub async fn places_of(
        &self,
        chain: ChainKey,
        transaction: TxHash,
    ) -> (BTreeSet<BlockNumber>, Vec<TierKind>) {
        let (mut numbers, mut unsure) = (BTreeSet::new(), Vec::new());
        for Rung { tier, .. } in self.rungs() {
            match tier.ask(|tier| tier.place_of(chain, transaction)).await {
                Some(place) => numbers.extend(place.map(|(number, _)| number)),
                None => unsure.push(tier.kind()),
            }
        }
        (numbers, unsure)
    }

    /// Returns the current generation. Read it before checking that a block is final.
    pub fn generation(&self) -> Generation {
        self.0.as_ref().map_or(Generation::default(), |inner| inner.generations.current())
    }

    /// Queues a part of a finalized block for all tiers or, if the part came from a tier, for the tiers before that
    /// tier. A full queue drops the part.
    pub fn put(&self, parcel: Parcel) {
        let Some(inner) = &self.0 else { return };
        let has_it = |rung: &Rung| parcel.from == Some(rung.tier.kind());
        let above = inner.rungs.iter().position(has_it).unwrap_or(inner.rungs.len());
        let packet = Arc::new(Packet::new(parcel));
        for Rung { tier, writer } in &inner.rungs[..above] {
            if !writer.put(packet.clone()) {
                inner.metrics.wrote(tier.kind(), Wrote::Dropped);
            }
        }
    }

    /// Queues a note of the highest finalized block for each tier.
    pub fn note_finalized(&self, checkpoint: Checkpoint) {
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::NoteFinalized(checkpoint));
        }
    }

    /// Withdraws the confirmation of every tier, because the chain may have replaced finalized blocks.
    pub fn doubt(&self) {
        self.rungs().iter().for_each(|rung| rung.tier.trust.doubt());
    }

    /// Withdraws the confirmation of these tiers and makes them forget their indexes, because the chain replaced a
    /// finalized block. The indexes stop answering at once.
    pub fn forget(&self, chain: ChainKey, tiers: &[TierKind]) {
        for rung in self.rungs().iter().filter(|rung| tiers.contains(&rung.tier.kind())) {
            rung.tier.trust.forget();
            rung.writer.tell(Work::Forget(chain));
        }
    }

    /// Returns whether every tier is confirmed.
    pub fn is_confirmed(&self) -> bool {
        self.rungs().iter().all(|rung| rung.tier.trust.answers(Accept::Confirmed))
    }

    /// Returns the unconfirmed tiers that can be [confirmed](Self::confirm) now. If a tier must still forget its index,
    /// queues this work again.
    pub async fn unconfirmed(&self, chain: ChainKey) -> Vec<Unconfirmed> {
        let mut unconfirmed = Vec::new();
        for Rung { tier, writer } in self.rungs() {
            let (since, state) = tier.trust.current();
            match state {
                State::Confirmed { .. } => continue,
                State::Unconfirmed { must_forget: true } => {
                    writer.tell(Work::Forget(chain));
                    continue;
                }
                State::Unconfirmed { must_forget: false } => {}
            }
            // Writes that were queued when the confirmation was withdrawn must end before the tier is read.
            if timeout(SETTLE, writer.settle()).await.is_err() {
                continue;
            }
            if let Some(finalized) = tier.ask(|tier| tier.finalized(chain)).await {
                unconfirmed.push(Unconfirmed { tier: tier.kind(), finalized, since });
            }
        }
        unconfirmed
    }

    /// Confirms a tier after the upstream confirmed the finalized block noted in it. A tier without such a note has
    /// nothing to confirm, so it first forgets its index and notes the block of `checkpoint`.
    ///
    /// For a tier without a note, returns `false` if the tier could not note that block, or if there was a doubt about
    /// the tier meanwhile. For a tier with a note, such a doubt voids the confirmation, but the result is still `true`.
    pub async fn confirm(&self, unconfirmed: Unconfirmed, checkpoint: Checkpoint) -> bool {
        let Unconfirmed { tier: kind, finalized, since } = unconfirmed;
        let Some(Rung { tier, .. }) = self.rung(kind) else { return false };
        let is_doubted = || tier.trust.current().0 != since;
        if finalized.is_none() {
            if is_doubted() || !tier.begin(checkpoint).await {
                return false;
            }
            if is_doubted() {
                // There was a doubt meanwhile, perhaps about the block that the tier has just noted, so the tier must
                // forget that block too.
                self.forget(checkpoint.chain, &[kind]);
                return false;
            }
        }
        tier.trust.confirm(since, finalized.map(|(number, _)| number));
        true
    }

    /// For each confirmed tier, the upstream confirmed the block that was noted in it. Returns the highest number of
    /// these blocks.
    pub fn highest_noted(&self) -> Option<BlockNumber> {
        let noted = |rung: &Rung| match rung.tier.trust.current().1 {
            State::Confirmed { noted } => noted,
            State::Unconfirmed { .. } => None,
        };
        self.rungs().iter().filter_map(noted).max()
    }

    /// Returns the chain last passed to [`follow`](Self::follow), if a tier remembers it.
    pub async fn last_chain(&self) -> Option<ChainKey> {
        for tier in self.answering(Accept::Any) {
            if let Some(chain) = tier.look_up(|tier| tier.last_chain()).await {
                return Some(chain);
            }
        }
        None
    }

    /// Queues a note of the chain that the upstreams serve; `None` for a chain that tiers do not store.
    pub fn follow(&self, chain: Option<ChainKey>) {
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::Follow(chain));
        }
    }

    /// Returns the status of each tier.
    pub fn status(&self) -> Vec<TierStatus> {
        self.rungs().iter().map(|rung| rung.tier.status()).collect()
    }

    /// Waits until every write queued so far has succeeded or failed.
    pub async fn settle(&self) {
        for Rung { writer, .. } in self.rungs() {
            writer.settle().await;
        }
    }

    fn rungs(&self) -> &[Rung] {
        self.0.as_ref().map_or(&[], |inner| &inner.rungs)
    }

    fn rung(&self, tier: TierKind) -> Option<&Rung> {
        self.rungs().iter().find(|rung| rung.tier.kind() == tier)
    }

    fn answering(&self, accept: Accept) -> impl Iterator<Item = &Guarded> {
        self.rungs().iter().map(|rung| &*rung.tier).filter(move |tier| tier.trust.answers(accept))
    }
}

/// Decompresses a value without blocking the other tasks of this thread.
async fn open(sealed: Sealed) -> Result<Bytes, Damaged> {
    if sealed.takes() <= SHORT {
        return sealed.open();
    }
    blocking::run(move || sealed.open()).await.unwrap_or(Err(Damaged))
}

#[cfg(test)]
mod tests;

//! The tiers behind memory, in the order in which they are asked; none is waited for longer than it is worth.
//!
//! Reads go down until one has it. Writes are behind the answers: queued within a bound, dropped beyond it, and made to every
//! tier above the one where something was found. One that keeps failing is left alone for a while. Whether what one says of
//! numbers counts is its [`standing`].

mod guarded;
mod metrics;
mod standing;
mod writer;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task;

use self::{
    guarded::Guarded,
    metrics::Wrote,
    standing::Eras,
    writer::{Packet, Work, Writer},
};
pub use self::{
    metrics::Metrics,
    standing::{Era, Word},
    writer::Parcel,
};
use super::tier::{ChainKey, Damaged, Part, Sealed, Tier, TierKind, Tiered, Usage};
use crate::{
    budget::{ByteBudget, ByteLease},
    client::Client,
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
    timeout::timeout,
};

/// What is shorter is unpacked in less time than it takes to hand it to another thread.
const SHORT: usize = 16 << 10;

/// So long it is waited for what is being written, before it is looked what was.
const SETTLE: Duration = Duration::from_secs(2);

/// All tiers together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tiers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    rungs: Box<[Rung]>,
    eras: Arc<Eras>,
    /// What was read and is not checked yet is held for clients, as an upstream's answer is.
    budget: ByteBudget,
    metrics: Metrics,
}

#[derive(Debug)]
struct Rung {
    tier: Arc<Guarded>,
    writer: Writer,
}

/// What was found, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// It.
    pub value: T,
    /// The tier that had it.
    pub tier: TierKind,
}

/// A text that was found. To be held until it is checked, and kept or thrown away.
#[derive(Debug)]
pub struct Text {
    /// It.
    pub text: Bytes,
    _held: ByteLease,
}

/// A tier whose word on numbers does not count yet.
#[derive(Clone, Copy, Debug)]
pub struct Unconfirmed {
    /// Which it is.
    pub tier: TierKind,
    /// The highest final block that it was told of.
    pub finalized: Option<(BlockNumber, BlockHash)>,
    since: Era,
}

/// How a tier does, for those who look.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// Which it is.
    pub kind: TierKind,
    /// What it holds.
    pub usage: Usage,
    /// Does it answer? Not from when it keeps failing until it has answered again.
    pub reads: bool,
    /// Can it be written to? The same.
    pub writes: bool,
    /// Does what it says of numbers count?
    pub is_confirmed: bool,
    /// Reads and writes that failed, and values that were damaged or wrong.
    pub errors: u64,
}

// === impl Tiers ===

impl Tiers {
    /// These, each with how long a read may take, the nearest first. Must be called within a runtime, where it writes.
    pub fn new(tiers: Vec<(Arc<dyn Tier>, Duration)>, budget: ByteBudget, metrics: Metrics) -> Self {
        if tiers.is_empty() {
            return Self::default();
        }
        let eras = Arc::<Eras>::default();
        let rungs = tiers.into_iter().map(|(tier, patience)| {
            let tier = Arc::new(Guarded::new(tier, patience, eras.clone(), metrics.clone()));
            Rung { writer: Writer::start(tier.clone(), metrics.clone()), tier }
        });
        Self(Some(Arc::new(Inner { rungs: rungs.collect(), eras, budget, metrics })))
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The text of a part of the block with this hash. It is not checked yet: if it turns out wrong, it should be
    /// [dropped](Self::reject), and then only those after that tier are asked.
    pub async fn get(
        &self,
        chain: ChainKey,
        part: Part,
        hash: BlockHash,
        after: Option<TierKind>,
    ) -> Option<Found<Text>> {
        let inner = self.0.as_ref()?;
        let passed = after.and_then(|tier| inner.rungs.iter().position(|rung| rung.tier.kind() == tier));
        for Rung { tier, writer } in inner.rungs.iter().skip(passed.map_or(0, |at| at + 1)) {
            let kind = tier.kind();
            let Some(sealed) = tier.look(|tier| tier.get(chain, part, hash)).await else { continue };
            let mut held = inner.budget.lease(Client::current());
            if held.grow(sealed.bytes().len() + sealed.takes()).is_err() {
                // Too much is held already: as if it took too long.
                inner.metrics.skipped(kind);
                continue;
            }
            match open(sealed).await {
                Ok(text) => {
                    held.hold(text.len());
                    return Some(Found { value: Text { text, _held: held }, tier: kind });
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

    /// The hash that stands at this number for good, by the word of a tier.
    pub async fn hash_at(
        &self,
        chain: ChainKey,
        number: BlockNumber,
        word: Word,
    ) -> Option<Found<BlockHash>> {
        self.told(word, |tier| tier.hash_at(chain, number)).await
    }

    /// Where a transaction may be.
    pub async fn place_of(
        &self,
        chain: ChainKey,
        transaction: TxHash,
    ) -> Option<Found<(BlockNumber, TxPosition)>> {
        for Rung { tier, .. } in self.whose_word_counts(Word::Any) {
            if let Some(value) = tier.look(|tier| tier.place_of(chain, transaction)).await {
                return Some(Found { value, tier: tier.kind() });
            }
        }
        None
    }

    /// The highest final block that any of them was told of.
    pub async fn finalized(&self, chain: ChainKey) -> Option<(BlockNumber, BlockHash)> {
        let mut highest: Option<(BlockNumber, BlockHash)> = None;
        for Rung { tier, .. } in self.whose_word_counts(Word::Any) {
            let told = tier.look_up(|tier| tier.finalized(chain)).await;
            highest = highest.into_iter().chain(told).max_by_key(|(number, _)| *number);
        }
        highest
    }

    /// What was found under this hash there is not what it should be.
    pub fn reject(&self, chain: ChainKey, part: Part, hash: BlockHash, tier: TierKind) {
        let (Some(inner), Some(rung)) = (&self.0, self.rung(tier)) else { return };
        inner.metrics.rejected(tier);
        rung.tier.say("rejected", &"a value is not what its hash says: it is dropped");
        rung.writer.tell(Work::Remove(chain, part, hash));
    }

    /// Removes a block that turned out not to be final, when there is time for it.
    pub fn drop_final(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) {
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::DropFinal(chain, number, hash));
        }
    }

    /// Removes what they have of a block. Tells those that may have it still: they fail, or are slow.
    pub async fn remove(&self, chain: ChainKey, block: BlockHash) -> Vec<TierKind> {
        let mut left_in = Vec::new();
        // The farthest first: what it has would come back to those before it.
        for Rung { tier, writer } in self.rungs().iter().rev() {
            if timeout(SETTLE, writer.remove(chain, block)).await != Ok(true) {
                left_in.push(tier.kind());
            }
        }
        left_in
    }

    /// At what numbers tiers would look for this transaction; and those that could not say.
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

    /// The era that it is. To be asked for before it is looked whether something is final.
    pub fn era(&self) -> Era {
        self.0.as_ref().map_or(Era::default(), |inner| inner.eras.now())
    }

    /// Has a part of a block kept that was final in this era, when there is time for it. Dropped where too much waits already.
    pub fn put(&self, parcel: Parcel, era: Era) {
        let Some(inner) = &self.0 else { return };
        let has_it = |rung: &Rung| parcel.from == Some(rung.tier.kind());
        let above = inner.rungs.iter().position(has_it).unwrap_or(inner.rungs.len());
        let packet = Arc::new(Packet::new(parcel));
        for Rung { tier, writer } in &inner.rungs[..above] {
            if !writer.put(packet.clone(), era) {
                inner.metrics.wrote(tier.kind(), Wrote::Dropped);
            }
        }
    }

    /// This was the highest final block in this era.
    pub fn note_finalized(&self, chain: ChainKey, finalized: (BlockNumber, BlockHash), era: Era) {
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::NoteFinalized(chain, finalized, era));
        }
    }

    /// Nothing that tiers say of numbers, transactions and finality counts any more, from this moment; they are told to
    /// forget it.
    pub fn forget_canonicity(&self, chain: ChainKey) {
        self.disown(chain, |_| true);
    }

    /// What this tier was told is not so: it has to forget it.
    pub fn forget_one(&self, chain: ChainKey, tier: TierKind) {
        self.disown(chain, |rung| rung.tier.kind() == tier);
    }

    /// Nobody's word counts any more before it is held against the upstream again.
    pub fn doubt(&self) {
        let Some(inner) = &self.0 else { return };
        let era = inner.eras.next();
        inner.rungs.iter().for_each(|rung| rung.tier.standing.doubt(era));
    }

    /// Does everybody's word on numbers count?
    pub fn is_confirmed(&self) -> bool {
        self.rungs().iter().all(|rung| rung.tier.standing.counts(Word::Confirmed))
    }

    /// Those whose word on numbers does not count yet and who can be asked for what was final, each with what it says. None of
    /// them is written to before it is [confirmed](Self::confirm).
    pub async fn unconfirmed(&self, chain: ChainKey) -> Vec<Unconfirmed> {
        let mut unconfirmed = Vec::new();
        for Rung { tier, writer } in self.rungs() {
            let standing = &tier.standing;
            if standing.counts(Word::Confirmed) {
                continue;
            }
            if !standing.counts(Word::Any) {
                // First it has to forget, and it is told so again.
                writer.tell(Work::ForgetCanonicity(chain));
                continue;
            }
            let since = standing.since();
            // What was being written when it was doubted must be there when it is asked.
            if timeout(SETTLE, writer.settle()).await.is_err() {
                continue;
            }
            if let Some(finalized) = tier.ask(|tier| tier.finalized(chain)).await {
                unconfirmed.push(Unconfirmed { tier: tier.kind(), finalized, since });
            }
        }
        unconfirmed
    }

    /// What this tier was told is so: from here on its word counts. One that does not know what was final is first told to
    /// forget all that it was told, for there is nothing that it could be held to, and begins with what is final now.
    ///
    /// Tells whether that could be done.
    pub async fn confirm(
        &self,
        chain: ChainKey,
        unconfirmed: Unconfirmed,
        final_now: (BlockNumber, BlockHash),
    ) -> bool {
        let Unconfirmed { tier, finalized, since } = unconfirmed;
        let kind = tier;
        let Some(Rung { tier, .. }) = self.rung(kind) else { return false };
        if finalized.is_none() {
            if tier.standing.since() != since || !tier.begin(chain, final_now).await {
                return false;
            }
            if tier.standing.since() != since {
                // What it began with may be just what was doubted meanwhile.
                self.forget_one(chain, kind);
                return false;
            }
        }
        tier.standing.confirm(since, finalized.map(|(number, _)| number));
        true
    }

    /// The highest number of a final block that a tier had noted when it was confirmed.
    pub fn highest_noted(&self) -> Option<BlockNumber> {
        self.rungs().iter().filter_map(|rung| rung.tier.standing.noted()).max()
    }

    /// The chain that was last followed here, if one of them remembers.
    pub async fn last_chain(&self) -> Option<ChainKey> {
        self.told(Word::Any, |tier| tier.last_chain()).await.map(|found| found.value)
    }

    /// From here on this chain is followed, or one that is not kept in tiers.
    pub fn follow(&self, chain: Option<ChainKey>) {
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::Follow(chain));
        }
    }

    /// How they do.
    pub fn status(&self) -> Vec<TierStatus> {
        self.rungs().iter().map(|rung| rung.tier.status()).collect()
    }

    /// Resolves when all that was put before has been written, or given up.
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

    fn whose_word_counts(&self, word: Word) -> impl Iterator<Item = &Rung> {
        self.rungs().iter().filter(move |rung| rung.tier.standing.counts(word))
    }

    /// The first that has something to say. Not for those whose word does not count now.
    async fn told<T>(
        &self,
        word: Word,
        ask: impl Fn(&dyn Tier) -> Tiered<'_, Option<T>>,
    ) -> Option<Found<T>> {
        for Rung { tier, .. } in self.whose_word_counts(word) {
            if let Some(value) = tier.look_up(&ask).await {
                return Some(Found { value, tier: tier.kind() });
            }
        }
        None
    }

    /// Begins another era, for these, and has them forget.
    fn disown(&self, chain: ChainKey, which: impl Fn(&Rung) -> bool) {
        let Some(inner) = &self.0 else { return };
        let era = inner.eras.next();
        for rung in inner.rungs.iter().filter(|rung| which(rung)) {
            rung.tier.standing.disown(era);
            rung.writer.tell(Work::ForgetCanonicity(chain));
        }
    }
}

/// Unpacks it, without holding up those who are served by this thread.
async fn open(sealed: Sealed) -> Result<Bytes, Damaged> {
    if sealed.takes() <= SHORT {
        return sealed.open();
    }
    task::spawn_blocking(move || sealed.open()).await.unwrap_or(Err(Damaged))
}

#[cfg(test)]
mod tests;

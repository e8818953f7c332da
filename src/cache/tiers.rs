//! The tiers behind memory, in the order in which they are asked; none is waited for longer than it is worth.
//!
//! Reads go down until one has it. Writes are behind the answers: queued within a bound, dropped beyond it, and made to every
//! tier above the one where something was found. One that keeps failing is left alone for a while.
//!
//! That a number has this hash is a tier's own word. It counts only where the highest final block that this very tier was told
//! of has been [held against the upstream](Tiers::unconfirmed), and only until it is told to [forget](Tiers::forget_canonicity)
//! it. Before the one nothing is written there, so that what is final now does not stand for what was so before; and what was
//! known before the other is not written after it.

mod breaker;
mod metrics;
mod writer;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{debug, warn};

use self::{breaker::Breaker, writer::Queue};
pub use self::{metrics::Metrics, writer::Parcel};
use super::tier::{ChainKey, Part, Tier, TierError, TierKind, Tiered, Turn, Usage, Wanted};
use crate::{
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
    seldom::Seldom,
    timeout::timeout,
};

/// Whoever writes can wait longer than whoever reads: nobody waits for it.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// All tiers together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tiers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    rungs: Arc<[Rung]>,
    queue: Queue,
    metrics: Metrics,
    era: AtomicU64,
}

/// The time between two moments in which tiers were told to forget: what was known in one says nothing in the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Era(u64);

/// A tier, and what is known of how it does.
#[derive(Debug)]
struct Rung {
    tier: Arc<dyn Tier>,
    /// How long a read may take.
    patience: Duration,
    reads: Breaker,
    /// Apart: a disk that is full can be read.
    writes: Breaker,
    /// What it was told of numbers before this era was to be forgotten …
    since: AtomicU64,
    /// … and in this one it did so.
    forgot: AtomicU64,
    /// In this one what it says of numbers was held against the upstream.
    confirmed: AtomicU64,
    said: Seldom,
}

/// What was found, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// It.
    pub value: T,
    /// The tier that had it.
    pub tier: TierKind,
}

/// A tier whose word on numbers does not count yet.
#[derive(Clone, Copy, Debug)]
pub struct Unconfirmed {
    /// Which it is.
    pub tier: TierKind,
    /// The highest final block that it was told of.
    pub finalized: Option<(BlockNumber, BlockHash)>,
    era: Era,
    /// It has nothing but what it was told in this run.
    is_new: bool,
}

/// Whose word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// That of those who were held against the upstream.
    Confirmed,
    /// That of any: there is no upstream since the start.
    Any,
}

/// The first of all.
const FIRST_ERA: u64 = 1;

/// How a tier does, for those who look.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// Which it is.
    pub kind: TierKind,
    /// What it holds.
    pub usage: Usage,
    /// Is it asked?
    pub reads: bool,
    /// Is it written to?
    pub writes: bool,
}

// === impl Tiers ===

impl Tiers {
    /// These, each with how long a read may take, the nearest first. Must be called within a runtime, where it writes.
    pub fn new(tiers: Vec<(Arc<dyn Tier>, Duration)>, metrics: Metrics) -> Self {
        if tiers.is_empty() {
            return Self::default();
        }
        let rungs: Arc<[Rung]> =
            tiers.into_iter().map(|(tier, patience)| Rung::new(tier, patience)).collect();
        let queue = Queue::start(rungs.clone(), metrics.clone());
        Self(Some(Arc::new(Inner { rungs, queue, metrics, era: AtomicU64::new(FIRST_ERA) })))
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn rungs(&self) -> &[Rung] {
        self.0.as_ref().map_or(&[], |inner| &inner.rungs)
    }

    /// The text of a part of the block with this hash. It is not checked yet: if it turns out wrong, it should be
    /// [dropped](Self::reject).
    pub async fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Option<Found<Bytes>> {
        let inner = self.0.as_ref()?;
        for rung in &*inner.rungs {
            let kind = rung.tier.kind();
            let Some(sealed) = inner.read(rung, |tier| tier.get(chain, part, hash)).await else { continue };
            match sealed.open() {
                Ok(value) => return Some(Found { value, tier: kind }),
                Err(damaged) => {
                    inner.metrics.damaged(kind);
                    rung.say("damaged", &damaged);
                    inner.queue.remove(chain, part, hash, kind);
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
        self.told(Word::Any, |tier| tier.place_of(chain, transaction)).await
    }

    /// The highest final block that any of them was told of.
    pub async fn finalized(&self, chain: ChainKey) -> Option<(BlockNumber, BlockHash)> {
        let inner = self.0.as_ref()?;
        let mut highest: Option<(BlockNumber, BlockHash)> = None;
        for rung in inner.rungs.iter().filter(|rung| rung.counts(Word::Any)) {
            let told = inner.read(rung, |tier| tier.finalized(chain)).await;
            highest = highest.into_iter().chain(told).max_by_key(|(number, _)| *number);
        }
        highest
    }

    /// What was found under this hash there is not what it should be.
    pub fn reject(&self, chain: ChainKey, part: Part, hash: BlockHash, tier: TierKind) {
        let Some(inner) = &self.0 else { return };
        inner.metrics.rejected(tier);
        if let Some(rung) = inner.rungs.iter().find(|rung| rung.tier.kind() == tier) {
            rung.say("rejected", &"a value is not what its hash says: it is dropped");
            inner.queue.remove(chain, part, hash, tier);
        }
    }

    /// The era that it is. To be asked for before it is looked whether something is final.
    pub fn era(&self) -> Era {
        Era(self.0.as_ref().map_or(FIRST_ERA, |inner| inner.era.load(SeqCst)))
    }

    /// Has a part of a block kept that was final in this era, when there is time for it. Dropped where too much waits already.
    pub fn put(&self, parcel: Parcel, era: Era) {
        if let Some(inner) = &self.0 {
            inner.queue.put(parcel, era, &inner.metrics);
        }
    }

    /// This was the highest final block in this era; noted behind what was put before.
    pub fn note_finalized(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash, era: Era) {
        if let Some(inner) = &self.0 {
            inner.queue.note_finalized(chain, number, hash, era);
        }
    }

    /// Nothing that tiers say of numbers, transactions and finality counts any more, from this moment; they are told to
    /// forget it.
    pub fn forget_canonicity(&self, chain: ChainKey) {
        if let Some(inner) = &self.0 {
            inner.disown(|_| true);
            inner.queue.forget_canonicity(chain);
        }
    }

    /// Does everybody's word on numbers count?
    pub fn is_confirmed(&self) -> bool {
        self.rungs().iter().all(|rung| rung.counts(Word::Confirmed))
    }

    /// Those whose word on numbers does not count yet and who can be asked for what was final, each with what it says. None of
    /// them is written to before it is [confirmed](Self::confirm).
    pub async fn unconfirmed(&self, chain: ChainKey) -> Vec<Unconfirmed> {
        let mut unconfirmed = Vec::new();
        let Some(inner) = &self.0 else { return unconfirmed };
        for rung in inner.rungs.iter().filter(|rung| !rung.counts(Word::Confirmed)) {
            if !rung.counts(Word::Any) {
                // First it has to forget, and it is told so again.
                inner.queue.forget_canonicity(chain);
                continue;
            }
            let since = rung.since.load(SeqCst);
            if let Some(finalized) = inner.ask(rung, |tier| tier.finalized(chain)).await {
                let (tier, is_new) = (rung.tier.kind(), since > FIRST_ERA);
                unconfirmed.push(Unconfirmed { tier, finalized, era: Era(since), is_new });
            }
        }
        unconfirmed
    }

    /// What this tier was told is so: from here on its word counts. One that does not know what was final is first told to
    /// forget what it was told before the start, for there is nothing that it could be held to.
    pub async fn confirm(&self, chain: ChainKey, unconfirmed: Unconfirmed) {
        let Unconfirmed { tier, finalized, era, is_new } = unconfirmed;
        let Some(inner) = &self.0 else { return };
        let Some(rung) = inner.rungs.iter().find(|rung| rung.tier.kind() == tier) else { return };
        let is_ready = finalized.is_some()
            || is_new
            || rung.within(rung.patience, |tier| tier.forget_canonicity(chain)).await.is_ok();
        if is_ready {
            rung.confirmed.fetch_max(era.0, SeqCst);
        }
    }

    /// What this tier was told is not so: it has to forget it.
    pub fn forget_one(&self, chain: ChainKey, tier: TierKind) {
        if let Some(inner) = &self.0 {
            inner.disown(|rung| rung.tier.kind() == tier);
            inner.queue.forget_canonicity(chain);
        }
    }

    /// Nobody's word counts any more before it is held against the upstream again.
    pub fn doubt(&self) {
        self.rungs().iter().for_each(Rung::doubt);
    }

    /// The chain that was last followed here, if one of them remembers.
    pub async fn last_chain(&self) -> Option<ChainKey> {
        self.told(Word::Any, |tier| tier.last_chain()).await.map(|found| found.value)
    }

    /// From here on this chain is followed, or one that is not kept in tiers.
    pub fn follow(&self, chain: Option<ChainKey>) {
        if let Some(inner) = &self.0 {
            inner.queue.follow(chain);
        }
    }

    /// Whose turn it is to ask the upstream for what no tier has. Ours, wherever that is not known.
    pub async fn turn(&self, chain: ChainKey, part: Part, wanted: Wanted) -> Turn {
        let Some(inner) = &self.0 else { return Turn::Ours(None) };
        let mut ours = None;
        for rung in &*inner.rungs {
            match inner.ask(rung, |tier| tier.turn(chain, part, wanted)).await {
                Some(Turn::Theirs) => return Turn::Theirs,
                Some(Turn::Ours(lease)) => ours = ours.or(lease),
                None => {}
            }
        }
        Turn::Ours(ours)
    }

    /// How they do.
    pub fn status(&self) -> Vec<TierStatus> {
        self.rungs().iter().map(Rung::status).collect()
    }

    /// Resolves when all that was put before has been written, or given up.
    pub async fn settle(&self) {
        if let Some(inner) = &self.0 {
            inner.queue.settle().await;
        }
    }

    /// The first that has something to say. Not for those whose word does not count now.
    async fn told<T>(
        &self,
        word: Word,
        ask: impl Fn(&dyn Tier) -> Tiered<'_, Option<T>>,
    ) -> Option<Found<T>> {
        let inner = self.0.as_ref()?;
        for rung in inner.rungs.iter().filter(|rung| rung.counts(word)) {
            if let Some(value) = inner.read(rung, &ask).await {
                return Some(Found { value, tier: rung.tier.kind() });
            }
        }
        None
    }
}

// === impl Inner ===

impl Inner {
    /// Begins another era, for these.
    fn disown(&self, which: impl Fn(&Rung) -> bool) {
        let era = self.era.fetch_add(1, SeqCst) + 1;
        for rung in self.rungs.iter().filter(|rung| which(rung)) {
            rung.since.fetch_max(era, SeqCst);
        }
    }

    /// Looks for something in one tier.
    async fn read<T>(&self, rung: &Rung, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, Option<T>>) -> Option<T> {
        let begun = Instant::now();
        let found = self.ask(rung, ask).await?;
        self.metrics.read(rung.tier.kind(), found.is_some(), begun.elapsed());
        found
    }

    async fn ask<T>(&self, rung: &Rung, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>) -> Option<T> {
        let kind = rung.tier.kind();
        if !rung.reads.lets_pass(Instant::now()) {
            self.metrics.skipped(kind);
            return None;
        }
        match rung.within(rung.patience, ask).await {
            Ok(found) => {
                rung.reads.succeed();
                Some(found)
            }
            Err(error) => {
                rung.reads.fail(Instant::now());
                self.metrics.failed(kind);
                rung.say("read", &error);
                None
            }
        }
    }
}

// === impl Rung ===

impl Rung {
    fn new(tier: Arc<dyn Tier>, patience: Duration) -> Self {
        Self {
            tier,
            patience,
            reads: Breaker::default(),
            writes: Breaker::default(),
            since: AtomicU64::new(FIRST_ERA),
            forgot: AtomicU64::new(FIRST_ERA),
            confirmed: AtomicU64::new(0),
            said: Seldom::default(),
        }
    }

    /// Does what it says of numbers count?
    fn counts(&self, word: Word) -> bool {
        let since = self.since.load(SeqCst);
        let is_confirmed = word == Word::Any || self.confirmed.load(SeqCst) >= since;
        is_confirmed && self.forgot.load(SeqCst) >= since
    }

    /// Does what was known in this era still?
    fn takes(&self, era: Era) -> bool {
        self.counts(Word::Confirmed) && era.0 >= self.since.load(SeqCst)
    }

    fn doubt(&self) {
        self.confirmed.store(0, SeqCst);
    }

    /// Has it forget, if it has to.
    async fn forget(&self, chain: ChainKey) {
        let since = self.since.load(SeqCst);
        if self.forgot.load(SeqCst) < since && self.write(|tier| tier.forget_canonicity(chain)).await {
            self.forgot.fetch_max(since, SeqCst);
        }
    }

    /// Tells whether it was done.
    async fn write<T>(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, T>) -> bool {
        if !self.writes.lets_pass(Instant::now()) {
            return false;
        }
        match self.within(WRITE_PATIENCE, write).await {
            Ok(_) => {
                self.writes.succeed();
                true
            }
            Err(TierError::Forgotten) => {
                // Somebody found that what was final is not. It may be so here too.
                self.writes.succeed();
                self.doubt();
                false
            }
            Err(error) => {
                self.writes.fail(Instant::now());
                self.say("write", &error);
                false
            }
        }
    }

    async fn within<T>(
        &self,
        patience: Duration,
        ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>,
    ) -> Result<T, TierError> {
        timeout(patience, ask(&*self.tier)).await.unwrap_or(Err(TierError::TimedOut(patience)))
    }

    fn say(&self, what: &'static str, why: &dyn fmt::Display) {
        let tier = self.tier.kind().as_str();
        if self.said.is_due(what) {
            warn!(tier, what, "a tier fails, and is done without: {why}");
        } else {
            debug!(tier, what, "a tier fails: {why}");
        }
    }

    fn status(&self) -> TierStatus {
        let now = Instant::now();
        TierStatus {
            kind: self.tier.kind(),
            usage: self.tier.usage(),
            reads: !self.reads.is_open(now),
            writes: !self.writes.is_open(now),
        }
    }
}

#[cfg(test)]
mod tests;

//! All tiers, in the order of lookup.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;

use super::{
    guarded::Guarded,
    metrics::{Metrics, Wrote},
    status::TierStatus,
    writer::{Packet, Parcel, Work, Writer},
};
use crate::{
    blocking,
    budget::{ByteBudget, ByteLease},
    cache::tier::{ChainKey, Damaged, Part, Sealed, Tier, TierKind},
    context::CallContext,
    eth::{BlockHash, BlockNumber, Home, TxHash},
    timeout::timeout,
};

/// Longest text, in bytes, to decompress on the calling thread. For such a short text, the switch to another thread
/// would take longer than the decompression.
const SHORT: usize = 16 << 10;

/// Longest wait for the queued writes of a tier. After this time, Holdfast reports a removal as failed.
const SETTLE: Duration = Duration::from_secs(2);

/// All tiers together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tiers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    rungs: Box<[Rung]>,
    /// Whether the tiers store blocks of the chain that the upstreams serve.
    stores: AtomicBool,
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

/// Greatest number of hints that one call to a tier reads.
const AT_ONCE: usize = 128;

// === impl Tiers ===

impl Tiers {
    /// Creates the tiers, in lookup order, each with its read timeout. Call it in a Tokio runtime, because it spawns
    /// the writers.
    pub fn new(tiers: Vec<(Arc<dyn Tier>, Duration)>, budget: ByteBudget, metrics: Metrics) -> Self {
        if tiers.is_empty() {
            return Self::default();
        }
        let rungs = tiers.into_iter().map(|(tier, patience)| {
            let tier = Arc::new(Guarded::new(tier, patience, metrics.clone()));
            Rung { writer: Writer::start(tier.clone(), metrics.clone()), tier }
        });
        Self(Some(Arc::new(Inner { rungs: rungs.collect(), stores: AtomicBool::default(), budget, metrics })))
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

    /// Returns the hash that the first tier with a hint for this number has, and that tier.
    pub async fn hint(&self, chain: ChainKey, number: BlockNumber) -> Option<(TierKind, BlockHash)> {
        for Rung { tier, .. } in self.rungs() {
            let hint =
                tier.ask(|tier| tier.hints(chain, number, 1)).await.and_then(|hints| *hints.first()?);
            if let Some(hash) = hint {
                return Some((tier.kind(), hash));
            }
        }
        None
    }

    /// Returns a tier's hints for up to `count` numbers from `from` on. Stops at the first number without one.
    pub async fn hints(
        &self,
        chain: ChainKey,
        tier: TierKind,
        from: BlockNumber,
        count: usize,
    ) -> Vec<BlockHash> {
        let (mut all, Some(Rung { tier, .. })) = (Vec::new(), self.rung(tier)) else { return Vec::new() };
        while all.len() < count {
            let next = BlockNumber(from.0.saturating_add(all.len() as u64));
            let (wanted, before) = ((count - all.len()).min(AT_ONCE), all.len());
            let hints = tier.ask(|tier| tier.hints(chain, next, wanted)).await.unwrap_or_default();
            all.extend(hints.into_iter().map_while(|hint| hint));
            if all.len() - before < wanted {
                break;
            }
        }
        all
    }

    /// Returns the headers of these blocks in RLP, as far as the tier has them. They are not verified. The caller asks for
    /// at most a hundred or so.
    pub async fn headers(&self, chain: ChainKey, tier: TierKind, blocks: &[BlockHash]) -> Vec<Option<Bytes>> {
        let (Some(inner), Some(Rung { tier, writer })) = (&self.0, self.rung(tier)) else {
            return Vec::new();
        };
        let wanted = blocks.to_vec();
        let read = tier.look(|tier| {
            Box::pin(async move {
                let headers = tier.headers(chain, wanted).await?;
                Ok(headers.iter().any(Option::is_some).then_some(headers))
            })
        });
        let open = |(hash, header): (&BlockHash, Option<Sealed>)| {
            let header = header?;
            let opened = Some(&header).filter(|it| it.takes() <= SHORT).and_then(|it| it.open().ok());
            if opened.is_none() {
                // A tier does not replace a value that it has, so remove the damaged one.
                inner.metrics.damaged(tier.kind());
                tier.say("damaged", &Damaged);
                writer.tell(Work::Remove(chain, Part::Header, *hash));
            }
            opened
        };
        blocks.iter().zip(read.await.unwrap_or_default()).map(open).collect()
    }

    /// Returns the block that may hold a transaction. This is a hint: the caller must check that the block is canonical
    /// and holds the transaction.
    pub async fn home_of(&self, chain: ChainKey, transaction: TxHash) -> Option<Home> {
        for Rung { tier, .. } in self.rungs() {
            if let Some(home) = tier.look(|tier| tier.home_of(chain, transaction)).await {
                return Some(home);
            }
        }
        None
    }

    /// Reports that the content a tier returned for `hash` is wrong. Queues the removal of this content.
    pub fn reject(&self, chain: ChainKey, part: Part, hash: BlockHash, tier: TierKind) {
        let (Some(inner), Some(rung)) = (&self.0, self.rung(tier)) else { return };
        inner.metrics.rejected(tier);
        rung.tier.say("rejected", &"stored value does not match its hash; removing it");
        rung.writer.tell(Work::Remove(chain, part, hash));
    }

    /// Queues the removal of the hints for these blocks, which turned out not to be canonical at their numbers. If `only`
    /// is given, other tiers keep theirs.
    pub fn drop_hints(&self, chain: ChainKey, only: Option<TierKind>, blocks: &[Home]) {
        for blocks in blocks.chunks(AT_ONCE) {
            let blocks: Arc<[Home]> = blocks.into();
            let named = |rung: &&Rung| only.is_none_or(|only| rung.tier.kind() == only);
            for Rung { writer, .. } in self.rungs().iter().filter(named) {
                writer.tell(Work::DropHints(chain, blocks.clone()));
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

    /// Returns the blocks that may hold a transaction, and the tiers that did not answer.
    pub async fn homes_of(&self, chain: ChainKey, transaction: TxHash) -> (Vec<BlockHash>, Vec<TierKind>) {
        let (mut homes, mut unsure) = (Vec::new(), Vec::new());
        for Rung { tier, .. } in self.rungs() {
            match tier.ask(|tier| tier.home_of(chain, transaction)).await {
                Some(home) => homes.extend(home.map(|home| home.block)),
                None => unsure.push(tier.kind()),
            }
        }
        (homes, unsure)
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

    /// Returns the chain last passed to [`follow`](Self::follow), if a tier remembers it.
    pub async fn last_chain(&self) -> Option<ChainKey> {
        for Rung { tier, .. } in self.rungs() {
            if let Some(Some(chain)) = tier.ask(|tier| tier.last_chain()).await {
                return Some(chain);
            }
        }
        None
    }

    /// Queues a note of the chain that the upstreams serve; `None` for a chain that tiers do not store.
    pub fn follow(&self, chain: Option<ChainKey>) {
        if let Some(inner) = &self.0 {
            inner.stores.store(chain.is_some(), Relaxed);
        }
        for Rung { writer, .. } in self.rungs() {
            writer.tell(Work::Follow(chain));
        }
    }

    /// Returns the status of each tier.
    pub fn status(&self) -> Vec<TierStatus> {
        let stores = self.0.as_ref().is_some_and(|inner| inner.stores.load(Relaxed));
        self.rungs().iter().map(|rung| rung.tier.status(stores)).collect()
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

//! Writes behind the answers: nobody waits for it, and what is too much is dropped. Each tier has its own, so that one that
//! hangs holds up no other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::{
    sync::{OnceCell, mpsc, oneshot},
    task,
};

use super::{
    checkpoint::Checkpoint,
    guarded::Guarded,
    metrics::{Metrics, Wrote},
    trust::Generation,
};
use crate::{
    cache::tier::{ChainKey, Part, Record, Sealed, TierKind},
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// So many bytes of text may wait: some hundred blocks with their receipts.
const MOST_BYTES: u64 = 128 << 20;

/// So many things may wait, however small.
const MOST: usize = 4096;

/// A part of a final block, to be written.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The block.
    pub home: Home,
    /// Which part it is.
    pub part: Part,
    /// The hashes of its transactions, with the block itself.
    pub transactions: Vec<TxHash>,
    /// Its JSON.
    pub text: Bytes,
    /// The finalized block by which this one is final. It is noted before this is written: without it there would be nothing
    /// to confirm the tier by.
    pub checkpoint: Checkpoint,
    /// The tier that it came from, if it did: those before it get it, it and those behind have it.
    pub from: Option<TierKind>,
}

/// A parcel for several tiers, packed once.
#[derive(Debug)]
pub(super) struct Packet {
    parcel: Parcel,
    packed: OnceCell<Option<Sealed>>,
}

/// What one tier is to be told. Nothing is, once this is dropped and what still waits was.
#[derive(Debug)]
pub(super) struct Writer {
    sender: mpsc::Sender<Work>,
    bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(super) enum Work {
    Put(Arc<Packet>),
    NoteFinalized(Checkpoint),
    Forget(ChainKey),
    Follow(Option<ChainKey>),
    Remove(ChainKey, Part, BlockHash),
    /// All that there is of a block; and who waits for it is told whether that could be done.
    RemoveAll(ChainKey, BlockHash, oneshot::Sender<bool>),
    /// This block does not stand at this number.
    DropFinal(ChainKey, BlockNumber, BlockHash),
    /// Tells that all work before it is done.
    Settle(oneshot::Sender<()>),
}

/// What does it.
struct Worker {
    tier: Arc<Guarded>,
    metrics: Metrics,
    /// Bytes of text that wait.
    bytes: Arc<AtomicU64>,
    /// The highest finalized block that was noted, of which chain, in which generation.
    noted: Option<(ChainKey, Generation, BlockNumber)>,
}

// === impl Packet ===

impl Packet {
    pub(super) fn new(parcel: Parcel) -> Self {
        Self { parcel, packed: OnceCell::new() }
    }

    fn size(&self) -> u64 {
        self.parcel.text.len() as u64
    }

    /// `None` for what is too long to be kept.
    async fn record(&self) -> Option<Record> {
        let Parcel { home: Home { block, number }, part, transactions, text, .. } = &self.parcel;
        let text = text.clone();
        // Where nobody waits for the thread.
        let pack = || async { task::spawn_blocking(move || Sealed::new(&text)).await.unwrap_or(None) };
        let value = self.packed.get_or_init(pack).await.clone()?;
        Some(Record { number: *number, hash: *block, part: *part, transactions: transactions.clone(), value })
    }
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(tier: Arc<Guarded>, metrics: Metrics) -> Self {
        let (sender, mut works) = mpsc::channel(MOST);
        let bytes = Arc::new(AtomicU64::new(0));
        let writer = Self { sender, bytes: bytes.clone() };
        let mut worker = Worker { tier, metrics, bytes, noted: None };
        tokio::spawn(async move {
            while let Some(next) = works.recv().await {
                worker.work(next).await;
            }
        });
        writer
    }

    /// Tells whether there is room for it.
    pub(super) fn put(&self, packet: Arc<Packet>) -> bool {
        let size = packet.size();
        let fits = self.bytes.fetch_add(size, Relaxed) + size <= MOST_BYTES;
        let is_taken = fits && self.sender.try_send(Work::Put(packet)).is_ok();
        if !is_taken {
            self.bytes.fetch_sub(size, Relaxed);
        }
        is_taken
    }

    /// Nothing of this is lost for good where it does not fit: what has to be forgotten is told again before anything counts,
    /// what is final goes with the next that is put, and what is damaged is found out again.
    pub(super) fn tell(&self, work: Work) {
        let _ = self.sender.try_send(work);
    }

    /// Removes a block, behind all that came before; tells whether that could be done. It is, though nobody waits for it.
    pub(super) async fn remove(&self, chain: ChainKey, block: BlockHash) -> bool {
        let (removed, wait) = oneshot::channel();
        let work = Work::RemoveAll(chain, block, removed);
        self.sender.send(work).await.is_ok() && wait.await.unwrap_or(false)
    }

    /// Resolves when all before is written, or given up.
    pub(super) async fn settle(&self) {
        let (settled, wait) = oneshot::channel();
        if self.sender.send(Work::Settle(settled)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

// === impl Worker ===

impl Worker {
    async fn put(&mut self, packet: &Packet) -> Wrote {
        let Parcel { checkpoint, .. } = packet.parcel;
        let Checkpoint { chain, generation, .. } = checkpoint;
        if !self.tier.trust.accepts(generation) || self.tier.is_left_alone() {
            return Wrote::Skipped;
        }
        let Some(record) = packet.record().await else { return Wrote::Skipped };
        // Once more: to pack takes time.
        if !self.tier.trust.accepts(generation) {
            return Wrote::Skipped;
        }
        let is_written =
            self.note(checkpoint).await && self.tier.write_if_needed(|tier| tier.put(chain, record)).await;
        if is_written { Wrote::Written } else { Wrote::Failed }
    }

    async fn work(&mut self, work: Work) {
        match work {
            Work::Put(packet) => {
                let outcome = self.put(&packet).await;
                self.metrics.wrote(self.tier.kind(), outcome);
                self.bytes.fetch_sub(packet.size(), Relaxed);
            }
            Work::NoteFinalized(checkpoint) => {
                if self.tier.trust.accepts(checkpoint.generation) {
                    self.note(checkpoint).await;
                }
            }
            Work::Forget(chain) => self.tier.forget(chain).await,
            Work::Follow(chain) => {
                self.tier.write(|tier| tier.follow(chain)).await;
            }
            Work::Remove(chain, part, hash) => {
                self.tier.write_if_needed(|tier| tier.remove(chain, part, hash)).await;
            }
            Work::RemoveAll(chain, hash, removed) => {
                let mut all = true;
                for part in Part::ALL {
                    all &= self.tier.write_if_needed(|tier| tier.remove(chain, part, hash)).await;
                }
                let _ = removed.send(all);
            }
            Work::DropFinal(chain, number, hash) => {
                self.tier.write(|tier| tier.forget_number(chain, number)).await;
                for part in Part::ALL {
                    self.tier.write_if_needed(|tier| tier.remove(chain, part, hash)).await;
                }
            }
            Work::Settle(settled) => {
                let _ = settled.send(());
            }
        }
    }

    /// Sees to it that this, or a higher one, is noted as final.
    async fn note(&mut self, checkpoint: Checkpoint) -> bool {
        let Checkpoint { chain, block: (number, hash), generation } = checkpoint;
        let is_noted = |(of, then, highest)| (of, then) == (chain, generation) && highest >= number;
        if self.noted.is_some_and(is_noted) {
            return true;
        }
        let is_written = self.tier.write(|tier| tier.note_finalized(chain, number, hash)).await;
        if is_written {
            self.noted = Some((chain, generation, number));
        }
        is_written
    }
}

//! Background writes to one tier. No client waits for them, and a full queue drops them. Each tier has its own writer,
//! so a tier that hangs does not delay the others.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::{
    checkpoint::Checkpoint,
    guarded::Guarded,
    metrics::{Metrics, Wrote},
    trust::Generation,
};
use crate::{
    blocking,
    cache::tier::{ChainKey, Part, Record, Sealed, TierKind},
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// Maximum number of bytes of text in the queue, which is enough for about a hundred blocks with their receipts.
const MOST_BYTES: u64 = 128 << 20;

/// Maximum number of items in the queue, of any size.
const MOST: usize = 4096;

/// A part of a finalized block, to be written to the tiers.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The block.
    pub home: Home,
    /// The part.
    pub part: Part,
    /// Hashes of the block's transactions for [`Part::Block`], otherwise empty.
    pub transactions: Vec<TxHash>,
    /// The JSON text.
    pub text: Bytes,
    /// The finalized block that makes this block final. Before the writer writes this part to a tier, it notes the
    /// finalized block there, because the upstream later confirms the tier by confirming the noted block.
    pub checkpoint: Checkpoint,
    /// The tier that the text came from, if any. Only the tiers before that tier receive this part.
    pub from: Option<TierKind>,
}

/// A [`Parcel`] for several tiers. The first writer that needs the compressed text compresses it for all.
#[derive(Debug)]
pub(super) struct Packet {
    parcel: Parcel,
    packed: OnceCell<Option<Sealed>>,
}

/// Queue of work for one tier. When it is dropped, the worker finishes the queued work and ends.
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
    /// Removes all parts of a block and reports whether that succeeded.
    RemoveAll(ChainKey, BlockHash, oneshot::Sender<bool>),
    /// Removes a block, and its number from the index, because the block is not canonical at that number.
    DropFinal(ChainKey, BlockNumber, BlockHash),
    /// Reports that all work queued before is done.
    Settle(oneshot::Sender<()>),
}

/// Carries out the queued work.
struct Worker {
    tier: Arc<Guarded>,
    metrics: Metrics,
    /// Bytes of text in the queue.
    bytes: Arc<AtomicU64>,
    /// Chain, generation and number of the highest finalized block noted so far.
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

    /// Returns the record to store; `None` if the text is too long.
    async fn record(&self) -> Option<Record> {
        let Parcel { home: Home { block, number }, part, transactions, text, .. } = &self.parcel;
        let text = text.clone();
        // Compress on a blocking thread, because it takes milliseconds.
        let pack = || async { blocking::run(move || Sealed::new(&text)).await.unwrap_or(None) };
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

    /// Queues a packet. Returns `false` if the queue is full.
    pub(super) fn put(&self, packet: Arc<Packet>) -> bool {
        let size = packet.size();
        let fits = self.bytes.fetch_add(size, Relaxed) + size <= MOST_BYTES;
        let is_taken = fits && self.sender.try_send(Work::Put(packet)).is_ok();
        if !is_taken {
            self.bytes.fetch_sub(size, Relaxed);
        }
        is_taken
    }

    /// Queues work, or drops it if the queue is full. Use it for work that is queued again later: `Forget` before the
    /// tier is confirmed, the finalized block with the next `Put`, and `Remove` when the next lookup finds the damaged
    /// value.
    pub(super) fn tell(&self, work: Work) {
        let _ = self.sender.try_send(work);
    }

    /// Same as [`tell`](Self::tell), for work that is not queued again later. Returns `false` if the queue is full and
    /// the work is lost.
    #[must_use]
    pub(super) fn try_tell(&self, work: Work) -> bool {
        self.sender.try_send(work).is_ok()
    }

    /// Removes a block, after all work queued before. Returns whether the removal succeeded. Once queued, the removal
    /// happens even if the caller stops waiting.
    pub(super) async fn remove(&self, chain: ChainKey, block: BlockHash) -> bool {
        let (removed, wait) = oneshot::channel();
        let work = Work::RemoveAll(chain, block, removed);
        self.sender.send(work).await.is_ok() && wait.await.unwrap_or(false)
    }

    /// Waits until all work queued so far has succeeded or failed.
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
        // Check again, because the confirmation may have been withdrawn during the compression.
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
                let mut is_dropped = self.tier.write(|tier| tier.forget_number(chain, number)).await;
                for part in Part::ALL {
                    is_dropped &= self.tier.write_if_needed(|tier| tier.remove(chain, part, hash)).await;
                }
                if !is_dropped {
                    // The index may still have the number, so it must not answer until the tier has forgotten it.
                    self.tier.trust.forget();
                    self.tier.forget(chain).await;
                }
            }
            Work::Settle(settled) => {
                let _ = settled.send(());
            }
        }
    }

    /// Ensures that the tier has noted this finalized block or a higher one. Returns whether that succeeded.
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

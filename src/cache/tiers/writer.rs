//! Background writes to one tier. No client waits for them, and a full queue drops them. Each tier has its own writer,
//! so a tier that hangs does not delay the others.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::{
    guarded::Guarded,
    metrics::{Metrics, Wrote},
};
use crate::{
    blocking,
    cache::tier::{ChainKey, Part, Record, Sealed, TierKind},
    eth::{BlockHash, Home, TxHash},
    verify::prove,
};

/// Maximum number of bytes of text in the queue, which is enough for about a hundred blocks with their receipts.
const MOST_BYTES: u64 = 128 << 20;

/// Maximum number of items in the queue, of any size.
const MOST: usize = 4096;

/// A part of a finalized block, to be written to the tiers.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The chain.
    pub chain: ChainKey,
    /// The block.
    pub home: Home,
    /// The part.
    pub part: Part,
    /// Hashes of the block's transactions for [`Part::Block`], otherwise empty.
    pub transactions: Vec<TxHash>,
    /// The JSON text.
    pub text: Bytes,
    /// The tier that the text came from, if any. Only the tiers before that tier receive this part.
    pub from: Option<TierKind>,
}

/// A [`Parcel`] for several tiers. The first writer that needs the compressed text compresses it for all.
#[derive(Debug)]
pub(super) struct Packet {
    parcel: Parcel,
    packed: OnceCell<Vec<(Part, Sealed)>>,
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
    Follow(Option<ChainKey>),
    Remove(ChainKey, Part, BlockHash),
    /// Removes all parts of a block and reports whether that succeeded.
    RemoveAll(ChainKey, BlockHash, oneshot::Sender<bool>),
    DropHints(ChainKey, Arc<[Home]>),
    /// Reports that all work queued before is done.
    Settle(oneshot::Sender<()>),
}

/// Carries out the queued work.
struct Worker {
    tier: Arc<Guarded>,
    metrics: Metrics,
    /// Bytes of text in the queue.
    bytes: Arc<AtomicU64>,
}

// === impl Packet ===

impl Packet {
    pub(super) fn new(parcel: Parcel) -> Self {
        Self { parcel, packed: OnceCell::new() }
    }

    fn size(&self) -> u64 {
        self.parcel.text.len() as u64
    }

    /// Returns the records to store, in this order; none if the text is too long.
    async fn records(&self) -> Vec<Record> {
        let Parcel { home, part, transactions, text, .. } = &self.parcel;
        let (part, text) = (*part, text.clone());
        let pack = move || {
            let mut packed = vec![(part, Sealed::new(&text)?)];
            if part == Part::Block {
                // The header comes last: a hint without its block would cost a call for nothing.
                let header = prove::raw::header(&text).unwrap_or_default();
                packed.push((Part::Header, Sealed::new(&header)?));
            }
            Some(packed)
        };
        let pack = || async { blocking::run(pack).await.ok().flatten().unwrap_or_default() };
        let packed = self.packed.get_or_init(pack).await.iter().cloned();
        let record = |(part, value)| {
            let transactions = if part == Part::Header { Vec::new() } else { transactions.clone() };
            Record { home: *home, part, transactions, value }
        };
        packed.map(record).collect()
    }
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(tier: Arc<Guarded>, metrics: Metrics) -> Self {
        let (sender, mut works) = mpsc::channel(MOST);
        let bytes = Arc::new(AtomicU64::new(0));
        let writer = Self { sender, bytes: bytes.clone() };
        let worker = Worker { tier, metrics, bytes };
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

    /// Queues work, or drops it if the queue is full: the next lookup finds the same wrong value or hint.
    pub(super) fn tell(&self, work: Work) {
        let _ = self.sender.try_send(work);
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
    async fn put(&self, packet: &Packet) -> Wrote {
        if self.tier.is_left_alone() {
            return Wrote::Skipped;
        }
        let (records, chain) = (packet.records().await, packet.parcel.chain);
        if records.is_empty() {
            return Wrote::Skipped;
        }
        for record in records {
            if !self.tier.write_if_needed(|tier| tier.put(chain, record)).await {
                return Wrote::Failed;
            }
        }
        Wrote::Written
    }

    async fn work(&self, work: Work) {
        match work {
            Work::Put(packet) => {
                let outcome = self.put(&packet).await;
                self.metrics.wrote(self.tier.kind(), outcome);
                self.bytes.fetch_sub(packet.size(), Relaxed);
            }
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
            Work::DropHints(chain, blocks) => {
                self.tier.write_if_needed(|tier| tier.drop_hints(chain, blocks)).await;
            }
            Work::Settle(settled) => {
                let _ = settled.send(());
            }
        }
    }
}

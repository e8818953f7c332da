//! Writes behind the answers: nobody waits for it, and what is too much is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    task,
};

use super::{Era, Metrics, Rung, metrics::Wrote};
use crate::{
    cache::tier::{ChainKey, Part, Record, Sealed, TierKind},
    eth::{BlockHash, BlockNumber, TxHash},
};

/// So many bytes of text may wait: some hundred blocks with their receipts.
const MOST_BYTES: u64 = 128 << 20;

/// So many things may wait, however small.
const MOST: usize = 4096;

/// A part of a final block, to be written.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Whose block it is.
    pub chain: ChainKey,
    /// Its number.
    pub number: BlockNumber,
    /// Its hash.
    pub hash: BlockHash,
    /// Which part it is.
    pub part: Part,
    /// The hashes of its transactions, with the block itself.
    pub transactions: Vec<TxHash>,
    /// Its JSON.
    pub text: Bytes,
    /// The tier that it came from, if it did: those before it get it, it and those behind have it.
    pub from: Option<TierKind>,
}

/// What waits to be written.
#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Work>,
    bytes: Arc<AtomicU64>,
    rungs: Arc<[Rung]>,
}

#[derive(Debug)]
enum Work {
    Put(Parcel, Era),
    NoteFinalized(ChainKey, BlockNumber, BlockHash, Era),
    ForgetCanonicity(ChainKey),
    Follow(Option<ChainKey>),
    Remove(ChainKey, Part, BlockHash, TierKind),
    Settle(oneshot::Sender<()>),
}

// === impl Queue ===

impl Queue {
    /// Writes until it is dropped, and then what still waits.
    pub(super) fn start(rungs: Arc<[Rung]>, metrics: Metrics) -> Self {
        let (sender, mut work) = mpsc::channel(MOST);
        let bytes = Arc::new(AtomicU64::new(0));
        let queue = Self { sender, bytes: bytes.clone(), rungs: rungs.clone() };
        tokio::spawn(async move {
            while let Some(next) = work.recv().await {
                match next {
                    Work::Put(parcel, era) => {
                        let size = parcel.text.len() as u64;
                        write(&rungs, parcel, era, &metrics).await;
                        bytes.fetch_sub(size, Relaxed);
                    }
                    Work::NoteFinalized(chain, number, hash, era) => {
                        for rung in rungs.iter().filter(|rung| rung.takes(era)) {
                            if !rung.write(|tier| tier.note_finalized(chain, number, hash)).await {
                                // Nothing higher may be there without it: it could not be held to anything.
                                rung.doubt();
                            }
                        }
                    }
                    Work::ForgetCanonicity(chain) => {
                        for rung in &*rungs {
                            rung.forget(chain).await;
                        }
                    }
                    Work::Follow(chain) => {
                        for rung in &*rungs {
                            rung.write(|tier| tier.follow(chain)).await;
                        }
                    }
                    Work::Remove(chain, part, hash, kind) => {
                        for rung in rungs.iter().filter(|rung| rung.tier.kind() == kind) {
                            rung.write(|tier| tier.remove(chain, part, hash)).await;
                        }
                    }
                    Work::Settle(settled) => {
                        let _ = settled.send(());
                    }
                }
            }
        });
        queue
    }

    pub(super) fn put(&self, parcel: Parcel, era: Era, metrics: &Metrics) {
        let size = parcel.text.len() as u64;
        let fits = self.bytes.fetch_add(size, Relaxed) + size <= MOST_BYTES;
        if !fits || self.sender.try_send(Work::Put(parcel, era)).is_err() {
            self.bytes.fetch_sub(size, Relaxed);
            for rung in &*self.rungs {
                metrics.wrote(rung.tier.kind(), Wrote::Dropped);
            }
        }
    }

    pub(super) fn note_finalized(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash, era: Era) {
        if self.sender.try_send(Work::NoteFinalized(chain, number, hash, era)).is_err() {
            // Nothing higher may be there without it: it could not be held to anything.
            self.rungs.iter().for_each(Rung::doubt);
        }
    }

    pub(super) fn forget_canonicity(&self, chain: ChainKey) {
        // Not lost if it does not fit: it is made up for before anything counts again.
        let _ = self.sender.try_send(Work::ForgetCanonicity(chain));
    }

    pub(super) fn follow(&self, chain: Option<ChainKey>) {
        let _ = self.sender.try_send(Work::Follow(chain));
    }

    /// Nobody waits for it: what is found again meanwhile is found out again.
    pub(super) fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash, tier: TierKind) {
        let _ = self.sender.try_send(Work::Remove(chain, part, hash, tier));
    }

    pub(super) async fn settle(&self) {
        let (settled, wait) = oneshot::channel();
        if self.sender.send(Work::Settle(settled)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

async fn write(rungs: &[Rung], parcel: Parcel, era: Era, metrics: &Metrics) {
    let Parcel { chain, number, hash, part, transactions, text, from } = parcel;
    let above = from.and_then(|from| rungs.iter().position(|rung| rung.tier.kind() == from));
    let rungs = &rungs[..above.unwrap_or(rungs.len())];
    if rungs.is_empty() {
        return;
    }
    // Packed once for all, where nobody waits for the thread.
    let Ok(Some(value)) = task::spawn_blocking(move || Sealed::new(&text)).await else { return };
    let record = Record { number, hash, part, transactions, value };
    for rung in rungs {
        let kind = rung.tier.kind();
        // What was known before it had to forget must not be there after it.
        if !rung.takes(era) || rung.writes.is_open(tokio::time::Instant::now()) {
            metrics.wrote(kind, Wrote::Skipped);
            continue;
        }
        let written = rung.write(|tier| tier.put(chain, record.clone())).await;
        metrics.wrote(kind, if written { Wrote::Written } else { Wrote::Failed });
    }
}

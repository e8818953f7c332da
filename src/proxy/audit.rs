//! Asks once more for what was answered from memory, now and then, and compares.
//!
//! Off by default, since it costs upstream calls. Nobody waits for it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use tokio::{sync::Semaphore, task};
use tracing::error;

use super::{
    Source,
    derive::is_same,
    fetch::{Fetch, Fetcher},
    want::Want,
};
use crate::{
    eth::{
        Block, BlockHash, Extra, LoneReceipt, LoneTransaction, Operation, Receipts, ThinBlock, TxPosition,
        ops,
    },
    jsonrpc::Answer,
    verify::Share,
};

/// Audits at a time. More hits than that are not audited: an upstream that is slow is no reason to
/// pile up what nobody waits for.
const AT_A_TIME: usize = 4;

/// Chooses hits, and has them asked for once more.
#[derive(Debug)]
pub(super) struct Audit {
    every: Option<u64>,
    hits: AtomicU64,
    places: Arc<Semaphore>,
}

/// What came of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audited {
    /// The upstream says the same.
    Same,
    /// It says something else.
    Different,
    /// It says nothing to compare with: it has forgotten, moved on, or fails.
    Unknown,
}

/// What was served, and how to ask for it by what cannot change.
struct Subject {
    fetch: Fetch,
    block: BlockHash,
    index: Option<TxPosition>,
}

// === impl Audit ===

impl Audit {
    pub(super) fn new(share: Share) -> Self {
        Self { every: share.every(), hits: AtomicU64::new(0), places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// Something was answered from memory: perhaps it is asked for once more.
    pub(super) fn consider(&self, fetcher: &Arc<Fetcher>, want: Want, served: &Bytes, source: Source) {
        let Some(every) = self.every else { return };
        // What is said of the chain is not content.
        if matches!(source, Source::View | Source::Identity)
            || !self.hits.fetch_add(1, Relaxed).is_multiple_of(every)
        {
            return;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        let (fetcher, served) = (fetcher.clone(), served.clone());
        tokio::spawn(async move {
            if let Some(subject) = subject(want, &served) {
                let audited = audit(&fetcher, &subject, &served).await;
                fetcher.metrics.audited(audited);
            }
            drop(place);
        });
    }
}

// === impl Audited ===

impl Audited {
    pub(super) const ALL: [Self; 3] = [Self::Same, Self::Different, Self::Unknown];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Unknown => "unknown",
        }
    }
}

async fn audit(fetcher: &Fetcher, subject: &Subject, served: &Bytes) -> Audited {
    let result = match fetcher.upstream.call(subject.fetch.call()).await {
        Ok(Answer::Result(result)) if result != "null" => result,
        Ok(Answer::Result(_) | Answer::Error(_)) | Err(_) => return Audited::Unknown,
    };
    let (said, told) = (result.clone(), served.clone());
    // A block's receipts can be megabytes.
    match task::spawn_blocking(move || is_same(&said, &told)).await {
        Ok(true) => return Audited::Same,
        Ok(false) => {}
        Err(_) => return Audited::Unknown,
    }
    if subject.has_moved(&result) {
        return Audited::Unknown;
    }
    fetcher.cache.remove(subject.block, subject.index);
    let left_in = fetcher.remove_from_tiers(subject.block).await;
    // It may have come back from there meanwhile.
    fetcher.cache.remove(subject.block, subject.index);
    error!(
        asked = %subject.fetch.asked(),
        block = %subject.block,
        ?left_in,
        "AUDIT: the upstream says something else now than what was served from memory; it is forgotten"
    );
    Audited::Different
}

fn subject(want: Want, served: &Bytes) -> Option<Subject> {
    let bytes = served.clone();
    let (fetch, block, index) = match want {
        Want::Operation(
            Operation::BlockByHash(ops::BlockByHash { full, .. })
            | Operation::BlockByNumber(ops::BlockByNumber { full, .. }),
        ) => {
            let hash =
                if full { Block::read(bytes).ok()?.0.hash() } else { ThinBlock::read(bytes).ok()?.hash() };
            (if full { Fetch::Block(hash) } else { Fetch::Thin(hash) }, hash, None)
        }
        Want::Operation(
            Operation::TransactionByHash(_)
            | Operation::TransactionByBlockHash(_)
            | Operation::TransactionByBlockNumber(_),
        ) => {
            let place = LoneTransaction::read(bytes).ok()?.place()?;
            (Fetch::TransactionIn(place.block, place.index), place.block, Some(place.index))
        }
        Want::Operation(Operation::Receipt(_)) => {
            let receipt = LoneReceipt::read(bytes).ok()?;
            (Fetch::Receipt(receipt.hash()), receipt.place().block, Some(receipt.place().index))
        }
        Want::Extra(Extra::BlockReceipts(_)) => {
            let block = Receipts::read(bytes).ok()?.0.block()?;
            (Fetch::Receipts(block), block, None)
        }
        // Counted out of content that is audited itself.
        Want::Extra(Extra::BlockNumber | Extra::TransactionCount(_) | Extra::UncleCount(_)) => return None,
    };
    Some(Subject { fetch, block, index })
}

// === impl Subject ===

impl Subject {
    /// A receipt is asked for by its transaction, which may be in another block by now.
    fn has_moved(&self, result: &Bytes) -> bool {
        matches!(self.fetch, Fetch::Receipt(_))
            && LoneReceipt::read(result.clone()).is_ok_and(|receipt| receipt.place().block != self.block)
    }
}

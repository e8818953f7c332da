//! The components that find logs.

use std::sync::Arc;

use super::found::Joined;
use crate::{
    cache::IndexedLogs,
    chain::{Link, Stamp},
    eth::{BlockHash, BlockNumber, Receipts, Tag},
    proxy::{
        call::{client_limit::ClientConcurrency, outcome::Answered, packet::PacketContext},
        config::LogsConfig,
        error::CallError,
        head::{HeadTracker, SharedView},
        lookup::{CacheLookup, CacheState, TagMeaning},
        miss::{fetcher::Fetcher, forward::Forwarder, load::Loader},
    },
    upstream::UpstreamError,
    verify::{Kind, Verified, Verifier},
    workers::{Patience, Workers},
};

/// Size in bytes of an answer that is joined in the calling task.
const SMALL: usize = 256 << 10;

/// The components that find logs.
#[derive(Clone, Debug)]
pub(crate) struct LogTools {
    pub(crate) limits: LogsConfig,
    pub(crate) lookup: Arc<CacheLookup>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) forwarder: Forwarder,
    pub(crate) loader: Arc<Loader>,
    pub(crate) concurrency: ClientConcurrency,
    pub(crate) workers: Arc<Workers>,
}

// === impl LogTools ===

impl LogTools {
    pub(super) fn head(&self) -> &Arc<HeadTracker> {
        self.fetcher.canon().head()
    }

    pub(super) fn view(&self) -> &SharedView {
        self.fetcher.view()
    }

    pub(super) fn state(&self) -> &CacheState {
        self.fetcher.state()
    }

    pub(super) fn verifier(&self) -> &Verifier {
        self.fetcher.verifier()
    }

    /// Returns whether the answers must be proved.
    pub(super) fn demands_proof(&self) -> bool {
        self.verifier().demands_proof(Kind::Receipts)
    }

    /// Returns whether clients get proved logs only.
    pub(super) fn must_prove(&self) -> bool {
        self.demands_proof() && self.verifier().rejects()
    }

    /// Returns whether a number is among those of the newest blocks, as many as the window has.
    pub(super) fn is_new(&self, number: BlockNumber) -> bool {
        let tracker = self.view().tracker();
        let window = tracker.rules().window as u64;
        tracker.head().is_some_and(|head| head.number.0 < number.0.saturating_add(window))
    }

    /// Runs a computation on threads that clients use in turn, so that it delays no hit.
    ///
    /// # Errors
    /// If it panicked.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        self.workers.run(size, Patience::Unlimited, work).await.map_err(|_| CallError::Overloaded)
    }

    /// Returns the answer that has these logs. Copying many of them takes milliseconds.
    pub(super) async fn answer(&self, joined: Joined) -> Result<Answered, CallError> {
        match joined.len() {
            ..=SMALL => Ok(joined.answer()),
            size => self.apart(size, || joined.answer()).await,
        }
    }

    /// Indexes the logs of receipts, and stores the indexes. Receipts in an unknown form get none.
    pub(super) async fn index(&self, receipts: Vec<Arc<Verified<Receipts>>>) {
        // One block at a time, so that clients take turns, and an abandoned call stops soon.
        for receipts in receipts {
            let (cache, size) = (self.state().cache.clone(), receipts.all().len());
            let index = move || {
                if let Ok(index) = IndexedLogs::new(&receipts) {
                    cache.insert_log_index(&receipts, &Arc::new(index));
                }
            };
            // Without an index, the block stays cold.
            let _ = self.apart(size, index).await;
        }
    }

    /// Refreshes the head, for a call that arrived at `arrival`.
    ///
    /// # Errors
    /// If the upstream does not show its head, unless it denies the finalized block: then it answers for itself.
    pub(super) async fn refresh(&self, arrival: Stamp) -> Result<(), CallError> {
        self.refresh_with(arrival, false, self.head().refresh(Tag::Latest, arrival)).await
    }

    /// Looks at the head once more: earlier requests do not count, even those in flight.
    ///
    /// # Errors
    /// As for [`refresh`](Self::refresh). Also if the upstream answers with an error: after a search, nothing else shows
    /// that its logs are of one branch.
    pub(super) async fn renew(&self) -> Result<(), CallError> {
        self.renew_after(self.view().clock().now()).await
    }

    /// Like [`renew`](Self::renew), but requests that were sent after `since` count.
    ///
    /// # Errors
    /// As for [`renew`](Self::renew).
    pub(super) async fn renew_after(&self, since: Stamp) -> Result<(), CallError> {
        self.refresh_with(since, true, self.head().renew(Tag::Latest, since)).await
    }

    async fn refresh_with(
        &self,
        arrival: Stamp,
        must_show: bool,
        refresh: impl Future<Output = Result<(), UpstreamError>>,
    ) -> Result<(), CallError> {
        self.forwarder.confirm_chain().await?;
        let has_head = self.view().tracker().head().is_some();
        let refreshed = match has_head {
            true => refresh.await,
            false => self.head().establish(arrival).await,
        };
        match refreshed {
            Err(error)
                if (must_show && has_head || error.is_failure()) && !self.view().tracker().is_suspended() =>
            {
                Err(CallError::Upstream(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the block that a tag stands for in the packet, if the view knows it.
    pub(super) fn meaning(&self, tag: Tag, packet: &PacketContext) -> Option<Link> {
        match self.lookup.meaning(tag, packet) {
            TagMeaning::Block(link) => Some(link),
            _ => None,
        }
    }

    /// Returns whether blocks above the finalized block left the chain since `since`, down to which number is unknown.
    pub(super) fn has_left(&self, last: BlockNumber, since: Stamp) -> bool {
        let tracker = self.view().tracker();
        tracker.is_suspended() || (!tracker.is_final(last) && tracker.has_left(since))
    }

    /// Returns whether a block may have left the chain since `since`, or is above the head now.
    pub(super) fn may_have_left(
        &self,
        blocks: impl Iterator<Item = (BlockNumber, BlockHash)>,
        since: Stamp,
    ) -> bool {
        let tracker = self.view().tracker();
        // While the upstream denies the finalized block, nothing is known to be canonical.
        let mut blocks = blocks;
        tracker.is_suspended()
            || blocks.any(|(number, hash)| {
                // A lower head of a replica that lags does not count.
                (tracker.is_above_head(number) && !tracker.lags())
                    || tracker.may_have_left(number, hash, since)
            })
    }
}

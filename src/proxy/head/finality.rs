//! FinalityTracker: fetches the finalized block, and draws the consequences.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{error, warn};

use super::{
    source::{HeaderSource, NotShown, Shown},
    view::{FinalizedRequest, SharedView},
};
use crate::{
    chain::{Denied, Finalized, Link, Lookup, Stamp},
    eth::{BlockHash, BlockNumber, Tag},
    proxy::{metrics::Metrics, parts::ProxyParts},
    upstream::{EndpointId, Upstream, UpstreamError},
};

/// Without a call that needs it, the finalized block is requested after so many blocks …
const FINALIZED_BLOCKS: u64 = 32;
/// … and this much time, whichever is longer.
const FINALIZED_TIME: Duration = Duration::from_secs(60);
/// Pause after a finality update that was deferred.
const DEFERRED: Duration = Duration::from_secs(10);
/// Deferred updates in a row after which one warning is logged.
const WARN_AFTER: u32 = 3;

/// Least time between two requests for the finalized block because an answer contradicts a final one.
const RECHECKED: Duration = Duration::from_secs(1);

/// What an endpoint shows at the number of the finalized block.
pub(super) enum FinalCheck {
    /// The endpoint has that block, or has pruned it.
    Stands,
    /// The endpoint denies the block: canonicity is suspended.
    Suspended,
    /// The endpoint has another block there: all canonicity is forgotten.
    Alarm,
}

/// Follows the finalized block.
#[derive(Debug)]
pub(crate) struct FinalityTracker {
    view: Arc<SharedView>,
    source: HeaderSource,
    upstream: Upstream,
    metrics: Metrics,
    times: Mutex<FinalityTimes>,
}

#[derive(Debug, Default)]
struct FinalityTimes {
    /// Time of the last finality update that was deferred because the previous finalized block could not be confirmed, and the
    /// number of such updates in a row.
    deferred: Option<(Instant, u32)>,
    /// Time of the last request because an answer contradicted a final block.
    rechecked: Option<Instant>,
}

// === impl FinalityTracker ===

impl FinalityTracker {
    pub(super) fn new(source: HeaderSource, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, metrics, .. } = parts.clone();
        Self { view: source.view.clone(), source, upstream, metrics, times: Mutex::default() }
    }

    /// Requests the block at the finalized number from this endpoint, whose head is at `head`, and draws the consequences.
    /// Without an endpoint, the primary answers.
    pub(super) async fn check(
        &self,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let shown = match self.source.request_from(by, number).await {
            Err(error @ UpstreamError::Rejected(_)) => {
                // A block that cannot be right may be another chain's.
                self.source.check_chain(by).await?;
                return Err(error);
            }
            Err(UpstreamError::Empty) => return Err(unshown()),
            shown => shown?,
        };
        match shown {
            Ok(shown) if shown.block.hash() == hash => Ok(FinalCheck::Stands),
            Ok(shown) => {
                self.source.check_chain(shown.by).await?;
                let now = self.view.clock().now();
                // Not if another task was faster.
                let is_news = self.view.change(|tracker| {
                    let is_news = tracker.finalized() == Some(finalized);
                    if is_news {
                        tracker.forget(now);
                    }
                    is_news
                });
                if is_news {
                    self.alarm(number, &format!("{hash} became {}", shown.block.hash()));
                }
                Ok(FinalCheck::Alarm)
            }
            Err(NotShown::Absent(by)) => self.denied(finalized, head, by).await,
            // Nodes word it in many ways that they have pruned a block; an error denies nothing.
            Err(NotShown::Refused(by)) => match self.fetch_own(by).await? {
                Some(own) if own.number > number => {
                    self.source.check_chain(by).await?;
                    Ok(FinalCheck::Stands)
                }
                _ => Err(unshown()),
            },
            Err(NotShown::Broken | NotShown::Other) => Err(unshown()),
        }
    }

    /// Fetches the finalized block of this endpoint; `None` if it shows none.
    async fn fetch_own(&self, by: Option<EndpointId>) -> Result<Option<Link>, UpstreamError> {
        match self.source.request_from(by, Tag::Finalized).await? {
            Ok(own) => Ok(Some(own.link())),
            // Some nodes without finality answer with an error.
            Err(NotShown::Absent(_) | NotShown::Refused(_) | NotShown::Broken) => Ok(None),
            Err(NotShown::Other) => Err(unshown()),
        }
    }

    /// Handles an endpoint, with its head at `head`, that has no block at the finalized number. If its own finalized block is
    /// higher, it has pruned that history; if that is the very block, a replica behind the same URL denied it.
    async fn denied(
        &self,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let own = self.fetch_own(by).await?;
        if own.is_some_and(|own| (own.number, own.hash) == finalized) {
            return Ok(FinalCheck::Stands);
        }
        let has_pruned = own.is_some_and(|own| own.number > number);
        let was_suspended = self.view.tracker().is_suspended();
        if has_pruned || !was_suspended {
            self.source.check_chain(by).await?;
        }
        if has_pruned {
            return Ok(FinalCheck::Stands);
        }
        let now = self.view.clock().now();
        match self.view.change(|tracker| tracker.deny_finalized(finalized, head, now)) {
            Denied::Suspended => {
                // Another endpoint may have the block.
                if let Some(by) = by {
                    self.upstream.demote(by);
                }
                if !was_suspended {
                    warn!(
                        finalized = number.0,
                        %hash,
                        head = head.0,
                        "the upstream denies the finalized block; forwarding all calls by number, tag and transaction \
                         until it shows that block again"
                    );
                }
                Ok(FinalCheck::Suspended)
            }
            Denied::Alarm => {
                self.alarm(number, &format!("{hash} is denied"));
                Ok(FinalCheck::Alarm)
            }
        }
    }

    /// Checks the finalized block again, at most once a second: an answer contradicts a block that is linked to it.
    pub(crate) async fn recheck(&self) {
        let Some(finalized) = self.view.tracker().finalized() else { return };
        let Some(head) = self.view.tracker().head() else { return };
        {
            let mut times = self.times.lock();
            if times.rechecked.is_some_and(|rechecked| rechecked.elapsed() < RECHECKED) {
                return;
            }
            times.rechecked = Some(Instant::now());
        }
        // The next contradiction tries again.
        let _ = self.check(finalized, head.number, None).await;
    }

    /// Advances finality to this block. Fails if that must wait.
    pub(super) async fn advance(
        &self,
        mut link: Link,
        mut sent: Stamp,
        before: Option<FinalizedRequest>,
    ) -> Result<Finalized, UpstreamError> {
        if self.view.tracker().is_suspended() {
            return Ok(Finalized::Unchanged);
        }
        let is_above = self.view.tracker().head().is_none_or(|head| head.number < link.number);
        if is_above || !self.view.tracker().hears_of_finality(sent) {
            // The answer does not count, and neither does its request.
            self.view.restore_finalized_request(before);
        }
        let listener = self.view.listener();
        if let Some(listener) = &listener {
            let counts = !is_above && {
                let tracker = self.view.tracker();
                tracker.hears_of_finality(sent) && !tracker.excludes(link.number, link.hash)
            };
            if !listener.finality_advances((link.number, link.hash), counts).await {
                // An alarm, or another doubt: an answer from before it may be wrong by now.
                sent = self.view.clock().now();
                let again = self.fetch(sent).await?.ok_or(UpstreamError::Empty)?;
                link = again.link();
                self.source.store(again);
            }
        }
        if self.replaces_finalized(link.number).await? {
            return Ok(Finalized::Unchanged);
        }
        let (now, epoch) = (self.view.clock().now(), listener.as_ref().map(|listener| listener.epoch()));
        let finalized =
            self.view.learn(|tracker, find| tracker.observe_finalized(Some(link), sent, now, find));
        match finalized {
            Finalized::Advanced { previous } => {
                if let (Some(listener), Some(epoch)) = (&listener, epoch) {
                    let block = (link.number, link.hash);
                    listener.finality_advanced(previous.map(|(number, _)| number), block, epoch);
                }
            }
            Finalized::Alarm => self.alarm(link.number, &format!("it is {} now", link.hash)),
            Finalized::Contrary | Finalized::Unchanged => {}
        }
        Ok(finalized)
    }

    /// Returns whether the previous finalized block was replaced, which is an alarm. Asked anew, not remembered, and before
    /// the listener notes the higher one: after a kill it could not be compared any more.
    async fn replaces_finalized(&self, higher: BlockNumber) -> Result<bool, UpstreamError> {
        let before = self.view.tracker().finalized().filter(|(number, _)| *number < higher);
        let Some((number, hash)) = before else { return Ok(false) };
        let Some(found) = self.replaced_by(number, hash, higher).await? else { return Ok(false) };
        let now = self.view.clock().now();
        let is_alarm =
            self.view.change(|tracker| tracker.confirm_final(number, found, now)) == Finalized::Alarm;
        if is_alarm {
            self.alarm(number, &format!("{hash} became {found}"));
        }
        Ok(is_alarm)
    }

    /// Notes that an update succeeded.
    pub(super) fn note_success(&self) {
        self.times.lock().deferred = None;
    }

    /// Defers an update that failed: the finalized block is requested again, but not with every head.
    pub(super) fn defer(&self, error: &UpstreamError) {
        self.view.drop_finalized_request();
        let mut times = self.times.lock();
        let count = times.deferred.map_or(0, |(_, count)| count) + 1;
        times.deferred = Some((Instant::now(), count));
        drop(times);
        if count == WARN_AFTER {
            warn!(%error, "it cannot be told whether what was final still is: nothing more is taken as final until it can be");
        }
    }

    /// Fetches the finalized block. One that contradicts a final block may be of another chain.
    pub(super) async fn fetch(&self, sent: Stamp) -> Result<Option<Shown>, UpstreamError> {
        let shown = self.source.fetch(Tag::Finalized, sent).await?;
        if let Some(shown) = &shown {
            let link = shown.link();
            let known = self.view.tracker().lookup(link.number, sent);
            if matches!(known, Lookup::Final(hash) if hash != link.hash) {
                self.source.check_chain(shown.by).await?;
            }
        }
        Ok(shown)
    }

    /// Reports that a finalized block changed, after the tracker forgot it.
    pub(crate) fn alarm(&self, number: BlockNumber, what: &str) {
        error!(
            number = number.0,
            "ALARM: a finalized block changed: {what}; all that was known of canonicity is forgotten"
        );
        self.metrics.alarm();
        self.view.forget_finalized();
    }

    /// Returns whether the finalized block should be requested under this head.
    pub(super) fn is_due(&self, head: BlockNumber, now: Stamp) -> bool {
        if !self.view.tracker().rules().finality {
            return false;
        }
        if self.times.lock().deferred.is_some_and(|(since, _)| since.elapsed() < DEFERRED) {
            return false;
        }
        self.view.finalized_request().is_none_or(|(asked, under)| {
            now.time.duration_since(asked.time) >= FINALIZED_TIME
                && head.0 >= under.0.saturating_add(FINALIZED_BLOCKS)
        })
    }

    /// Returns the hash that replaced this block; `None` if the block still stands. Fails if the upstream does not tell, or
    /// serves another chain.
    ///
    /// A block below the finalized one that the node does not have is taken to stand: the node has pruned it. But the node
    /// must have reached the finalized block: one that is behind has no such block either.
    pub(crate) async fn replaced_by(
        &self,
        number: BlockNumber,
        hash: BlockHash,
        final_now: BlockNumber,
    ) -> Result<Option<BlockHash>, UpstreamError> {
        match self.source.request(number, self.view.clock().now()).await? {
            Ok(shown) if shown.block.hash() == hash => Ok(None),
            Ok(shown) => self.source.check_chain(shown.by).await.map(|()| Some(shown.block.hash())),
            Err(NotShown::Absent(Some(by)))
                if number < final_now && self.upstream.has_reached(by, final_now) =>
            {
                self.source.check_chain(Some(by)).await.map(|()| None)
            }
            Err(_) => Err(UpstreamError::Empty),
        }
    }
}

/// The finalized block was neither shown nor denied. It is as if the head had not been shown, either: the node could show that
/// head to a client that asks past the view.
pub(super) fn unshown() -> UpstreamError {
    UpstreamError::Malformed {
        method: "eth_getBlockByNumber",
        expected: "the finalized block",
        got: "an error".to_owned(),
    }
}

//! Tracks the finalized block: fetches and checks it, and raises an alarm if another block replaced it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{self, Instant};
use tracing::{error, info, warn};

use super::{
    background::SingleTask,
    source::{HeaderSource, NotShown, Shown},
    view::{FinalizedRequest, SharedView},
};
use crate::{
    chain::{Denied, Finalized, Link, Lookup, Stamp, Tracker},
    eth::{BlockHash, BlockNumber, Tag},
    log_throttle::LogThrottle,
    proxy::{metrics::Metrics, parts::ProxyParts},
    timeout::timeout,
    upstream::{EndpointId, Upstream, UpstreamError},
};

/// Number of new blocks after which a head refresh also requests the finalized block, if [`FINALIZED_TIME`] has passed.
const FINALIZED_BLOCKS: u64 = 32;
/// Shortest time between two requests that head refreshes make for the finalized block.
const FINALIZED_TIME: Duration = Duration::from_secs(60);
/// Pause before a head refresh requests the finalized block again after a deferred finality update.
const DEFERRED: Duration = Duration::from_secs(10);
/// Number of deferred updates in a row after which to log one warning.
const WARN_AFTER: u32 = 3;

/// Shortest time between two rechecks of the finalized block after contradicting answers.
const RECHECKED: Duration = Duration::from_secs(1);

/// Pause between two requests for a finalized block that an answer contradicted.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for these requests: longer than contradictions need to count.
const DOUBT: Duration = Duration::from_secs(20);

/// Result of a check of the finalized block at an endpoint.
pub(super) enum FinalCheck {
    /// The endpoint has the finalized block, or has pruned it.
    Stands,
    /// The endpoint contradicts the finalized block, perhaps because it is a replica that lags. The view stays as it is.
    Doubted,
    /// The endpoint denies the finalized block. The view is suspended: it names no canonical block until an endpoint
    /// shows the finalized block again.
    Suspended,
    /// The chain no longer contains the finalized block, so the view has forgotten all canonicity.
    Alarm,
}

/// Tracks the finalized block.
#[derive(Debug)]
pub(crate) struct FinalityTracker {
    view: Arc<SharedView>,
    source: HeaderSource,
    upstream: Upstream,
    metrics: Metrics,
    times: Mutex<FinalityTimes>,
    /// The running task that requests a finalized block that an answer contradicted.
    settling: SingleTask,
    log: LogThrottle,
}

#[derive(Debug, Default)]
struct FinalityTimes {
    /// Time of the last deferred finality update, and the number of such updates in a row. The tracker defers an
    /// update if it cannot confirm the previous finalized block.
    deferred: Option<(Instant, u32)>,
    /// Time of the last recheck after a contradicting answer.
    rechecked: Option<Instant>,
}

// === impl FinalityTracker ===

impl FinalityTracker {
    pub(super) fn new(source: HeaderSource, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, metrics, .. } = parts.clone();
        let (view, times, settling) = (source.view.clone(), Mutex::default(), SingleTask::default());
        Self { view, source, upstream, metrics, times, settling, log: LogThrottle::default() }
    }

    /// Checks whether the endpoint `by`, whose head is at `head`, still has the finalized block, and updates the view.
    /// If `by` is `None`, checks the primary endpoint.
    pub(super) async fn check(
        self: &Arc<Self>,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let (mut shown, mut own) = (self.request_final(number, by).await?, None);
        let is_higher = |own: Option<Link>| own.is_some_and(|own| own.number > number);
        if let Err(NotShown::Absent(by) | NotShown::Refused(by)) = shown {
            own = self.fetch_own(by).await?;
            if is_higher(own) {
                // Ask again: the endpoint may have reached this number after the first request.
                shown = self.request_final(number, by).await?;
            }
        }
        let checked = match shown {
            Ok(shown) if shown.link.hash == hash => FinalCheck::Stands,
            Ok(shown) => {
                self.check_chain_once(shown.by).await?;
                self.contradicted(finalized, shown.link.hash)
            }
            // The endpoint has pruned the block.
            Err(NotShown::Absent(by) | NotShown::Refused(by)) if is_higher(own) => {
                self.source.check_chain(by).await?;
                FinalCheck::Stands
            }
            // The denial came from another replica behind the same URL.
            Err(NotShown::Absent(_)) if own.is_some_and(|own| (own.number, own.hash) == finalized) => {
                FinalCheck::Stands
            }
            Err(NotShown::Absent(by)) => self.denied(finalized, head, by).await?,
            // An error does not deny the block, because nodes report pruned blocks with many different errors.
            Err(_) => return Err(finalized_not_shown()),
        };
        if let FinalCheck::Stands = checked {
            self.view.change(Tracker::end_doubt);
        }
        Ok(checked)
    }

    /// Requests the block at the finalized number from this endpoint.
    async fn request_final(
        &self,
        number: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<Result<Shown, NotShown>, UpstreamError> {
        match self.source.request_from(by, number).await {
            Err(error @ UpstreamError::Rejected(_)) => {
                // The block may be invalid because the endpoint serves another chain.
                self.source.check_chain(by).await?;
                Err(error)
            }
            Err(UpstreamError::Empty) => Err(finalized_not_shown()),
            shown => shown,
        }
    }

    /// Checks that an endpoint that contradicts the finalized block serves the right chain, unless earlier contradictions
    /// have led to this check.
    async fn check_chain_once(&self, by: Option<EndpointId>) -> Result<(), UpstreamError> {
        let is_first = {
            let tracker = self.view.tracker();
            !tracker.is_doubted() && !tracker.is_suspended()
        };
        if is_first { self.source.check_chain(by).await } else { Ok(()) }
    }

    /// Requests the finalized block once a second, until an endpoint shows it, contradictions count, or the time is up.
    fn settle(self: &Arc<Self>) {
        let this = self.clone();
        self.settling.begin(|| async move {
            if this.view.tracker().is_doubted() && this.log.is_due("contradicted") {
                let finalized = this.view.tracker().finalized().map(|(number, _)| number.0);
                info!(finalized, "an answer contradicts the finalized block; keeping it while asking again");
            }
            let doubted = || {
                let tracker = this.view.tracker();
                tracker.finalized().filter(|_| tracker.is_doubted()).zip(tracker.head())
            };
            let asking = async {
                time::sleep(DOUBT_PAUSE).await;
                while let Some((finalized, head)) = doubted() {
                    // Ignore an error: the next request may get an answer.
                    let _ = this.check(finalized, head.number, None).await;
                    time::sleep(DOUBT_PAUSE).await;
                }
            };
            let _ = timeout(DOUBT, asking).await;
            this.view.change(Tracker::end_doubt);
        });
    }

    /// Handles an answer with another block at the finalized number. If that counts, forgets all canonicity and raises the
    /// alarm; else requests the finalized block in the background until the matter is settled.
    fn contradicted(
        self: &Arc<Self>,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        found: BlockHash,
    ) -> FinalCheck {
        let now = self.view.clock().now();
        let counts = self.view.change(|tracker| {
            // Another task may have handled the replacement already.
            let counts = tracker.doubt_finalized(finalized, now);
            if counts {
                tracker.forget(now);
            }
            counts
        });
        if !counts {
            self.settle();
            return FinalCheck::Doubted;
        }
        self.alarm(number, &format!("{hash} became {found}"));
        FinalCheck::Alarm
    }

    /// Fetches the finalized block of this endpoint; `None` if the endpoint shows none.
    async fn fetch_own(&self, by: Option<EndpointId>) -> Result<Option<Link>, UpstreamError> {
        match self.source.request_from(by, Tag::Finalized).await? {
            Ok(own) => Ok(Some(own.link)),
            // Some nodes without finality answer with an error.
            Err(NotShown::Absent(_) | NotShown::Refused(_) | NotShown::Broken) => Ok(None),
            Err(NotShown::Other) => Err(finalized_not_shown()),
        }
    }

    /// Handles an endpoint whose head is at `head` and that has no block at the finalized number.
    async fn denied(
        self: &Arc<Self>,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let was_suspended = self.view.tracker().is_suspended();
        self.check_chain_once(by).await?;
        let now = self.view.clock().now();
        match self.view.change(|tracker| tracker.deny_finalized(finalized, head, now)) {
            Denied::Doubted => {
                self.settle();
                Ok(FinalCheck::Doubted)
            }
            Denied::Suspended => {
                // Prefer other endpoints, which may have the block.
                if let Some(by) = by {
                    self.upstream.demote(by);
                }
                if !was_suspended {
                    warn!(
                        finalized = number.0,
                        %hash,
                        head = head.0,
                        "the upstream no longer has the finalized block; forwarding all calls by number, tag and \
                         transaction until it shows that block again"
                    );
                }
                Ok(FinalCheck::Suspended)
            }
            Denied::Alarm => {
                self.alarm(number, &format!("the upstream no longer has {hash}"));
                Ok(FinalCheck::Alarm)
            }
        }
    }

    /// Checks the finalized block again, at most once a second. Called when an answer contradicts a block that links to
    /// the finalized block.
    pub(crate) async fn recheck(self: &Arc<Self>) {
        let Some(finalized) = self.view.tracker().finalized() else { return };
        let Some(head) = self.view.tracker().head() else { return };
        {
            let mut times = self.times.lock();
            if times.rechecked.is_some_and(|rechecked| rechecked.elapsed() < RECHECKED) {
                return;
            }
            times.rechecked = Some(Instant::now());
        }
        // Ignore an error, because the next contradicting answer causes another check.
        let _ = self.check(finalized, head.number, None).await;
    }

    /// Advances finality to `link`, which the upstream showed for a request at `sent`. `before` is the previous request
    /// for the finalized block. Fails if finality cannot advance yet.
    pub(super) async fn advance(
        self: &Arc<Self>,
        link: Link,
        sent: Stamp,
        before: Option<FinalizedRequest>,
    ) -> Result<Finalized, UpstreamError> {
        if self.view.tracker().is_suspended() {
            return Ok(Finalized::Unchanged);
        }
        let is_above = self.view.tracker().head().is_none_or(|head| head.number < link.number);
        if is_above || !self.view.tracker().hears_of_finality(sent) {
            // The tracker will ignore this answer, so the next request must not wait because of this one.
            self.view.restore_finalized_request(before);
        }
        if self.replaces_finalized(link.number).await? {
            return Ok(Finalized::Unchanged);
        }
        let now = self.view.clock().now();
        let finalized =
            self.view.learn(|tracker, find| tracker.observe_finalized(Some(link), sent, now, find));
        if !self.view.tracker().hears_of_finality(sent) {
            // A reorg came in between, so the tracker has ignored this answer.
            self.view.restore_finalized_request(before);
        }
        match finalized {
            Finalized::Advanced { previous } => {
                if let Some(listener) = self.view.listener() {
                    let above = previous.map(|(number, _)| number);
                    let passed = self.view.tracker().final_blocks(above, link.number);
                    listener.blocks_finalized(&passed);
                }
            }
            Finalized::Alarm => self.alarm(link.number, &format!("it is now {}", link.hash)),
            Finalized::Doubted => {
                self.settle();
                return Err(finalized_not_shown());
            }
            Finalized::Contrary | Finalized::Unchanged => {}
        }
        Ok(finalized)
    }

    /// Fetches the previous finalized block again, and returns whether another block has replaced it, which raises an
    /// alarm. Fails if that is in doubt.
    async fn replaces_finalized(self: &Arc<Self>, higher: BlockNumber) -> Result<bool, UpstreamError> {
        let before = self.view.tracker().finalized().filter(|(number, _)| *number < higher);
        let Some((number, hash)) = before else { return Ok(false) };
        let Some(found) = self.replaced_by(number, hash, higher).await? else {
            self.view.change(Tracker::end_doubt);
            return Ok(false);
        };
        let now = self.view.clock().now();
        let confirmed = self.view.change(|tracker| tracker.confirm_final(number, found, now));
        if confirmed == Finalized::Doubted {
            self.settle();
            return Err(finalized_not_shown());
        }
        let is_alarm = confirmed == Finalized::Alarm;
        if is_alarm {
            self.alarm(number, &format!("{hash} became {found}"));
        }
        Ok(is_alarm)
    }

    /// Records a successful finality update, which ends a series of deferred updates.
    pub(super) fn note_success(&self) {
        self.times.lock().deferred = None;
    }

    /// Defers a failed finality update: a later head refresh requests the finalized block again, after a pause.
    pub(super) fn defer(&self, error: &UpstreamError) {
        self.view.drop_finalized_request();
        let mut times = self.times.lock();
        let count = times.deferred.map_or(0, |(_, count)| count) + 1;
        times.deferred = Some((Instant::now(), count));
        drop(times);
        if count == WARN_AFTER {
            warn!(%error, "cannot confirm the last finalized block; finality updates are paused until the upstream confirms it");
        }
    }

    /// Fetches the finalized block. If it contradicts a final block in the view, checks which chain the endpoint
    /// serves.
    pub(super) async fn fetch(&self, sent: Stamp) -> Result<Option<Shown>, UpstreamError> {
        let shown = self.source.fetch(Tag::Finalized, sent).await?;
        if let Some(shown) = &shown {
            let link = shown.link;
            let known = self.view.tracker().lookup(link.number, sent);
            if matches!(known, Lookup::Final(hash) if hash != link.hash) {
                self.source.check_chain(shown.by).await?;
            }
        }
        Ok(shown)
    }

    /// Reports that a finalized block changed. The caller has made the tracker forget all canonicity before.
    pub(super) fn alarm(&self, number: BlockNumber, what: &str) {
        error!(
            number = number.0,
            "ALARM: a finalized block changed: {what}; discarding all knowledge of the canonical chain"
        );
        self.metrics.alarm();
        self.view.forget_finalized();
    }

    /// Returns whether a refresh that showed the head at `head` must also request the finalized block.
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

    /// Returns the hash of the block that replaced this block; `None` if this block is still canonical. Fails if the
    /// upstream gives no clear answer, or serves another chain.
    ///
    /// If a node has no block at `number`, the node may have pruned it, and the block is still canonical. This holds
    /// only if `number` is below the finalized block `final_now` and the node has reached `final_now`: a node that is
    /// behind does not have the block either. It does not hold in a doubt: the node may have gone back since it reached
    /// `final_now`.
    async fn replaced_by(
        &self,
        number: BlockNumber,
        hash: BlockHash,
        final_now: BlockNumber,
    ) -> Result<Option<BlockHash>, UpstreamError> {
        match self.source.request(number, self.view.clock().now()).await? {
            Ok(shown) if shown.link.hash == hash => Ok(None),
            Ok(shown) => self.source.check_chain(shown.by).await.map(|()| Some(shown.link.hash)),
            Err(NotShown::Absent(Some(by)))
                if number < final_now
                    && self.upstream.has_reached(by, final_now)
                    && !self.view.tracker().is_doubted() =>
            {
                self.source.check_chain(Some(by)).await?;
                // A doubt may have begun meanwhile.
                if self.view.tracker().is_doubted() { Err(UpstreamError::Empty) } else { Ok(None) }
            }
            Err(_) => Err(UpstreamError::Empty),
        }
    }
}

/// Returns the error for a finalized block that the endpoint neither showed nor denied. It is a failure of the
/// upstream, so that calls for the head fail. If the proxy forwarded these calls instead, the node could show clients a
/// head that the view has not accepted.
pub(super) fn finalized_not_shown() -> UpstreamError {
    UpstreamError::Malformed {
        method: "eth_getBlockByNumber",
        expected: "the finalized block",
        got: "an error".to_owned(),
    }
}

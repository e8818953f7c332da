//! Keeps the canonical view fresh.
//!
//! This module does not poll; the [follower](crate::proxy::Follower) does. A call that needs a fresh view starts a
//! refresh or joins one. Calls with the tags `safe` and `finalized` refresh the blocks of these tags. From time to
//! time, a head refresh also fetches the finalized block, so that old blocks become final.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, info};

use super::{
    background::{RunningTask, SingleTask},
    finality::{FinalCheck, FinalityTracker, finalized_not_shown},
    full_heads::{FullHeads, StoreHead},
    source::{FullHead, HeaderSource, Shown},
    stall::Pace,
    view::SharedView,
};
use crate::{
    chain::{Finalized, HeadChange, Link, Stamp},
    context::CallContext,
    eth::{BlockHash, BlockNumber, Part, Tag},
    proxy::{
        call::{single_flight::Coalesce, waited},
        metrics::Metrics,
        parts::ProxyParts,
        reorgs::Reorgs,
    },
    timeout::timeout,
    upstream::{EndpointId, Upstream, UpstreamError},
};

/// Longest wait for the finalized block; after that, calls go on without it.
const FINALITY_PATIENCE: Duration = Duration::from_secs(2);
/// Pause before the next wait for the finalized block if the node said that it has none. If the node did not answer,
/// the pause begins at [`FINALITY_PATIENCE`] and doubles up to this value.
const FINALITY_AGAIN: Duration = Duration::from_secs(60);

/// Longest wait of a call for a finality update.
const UPDATE_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of gaps to fill before the tracker judges one head. There is a second gap if another refresh moved
/// the window while the first was filled.
const MOST_GAPS: usize = 2;

/// Maximum number of parents to fetch by hash before the tracker judges one head. Deeper reorgs are rare; for them, one
/// call for the finalized block decides whether the head is acceptable.
const MOST_PARENTS: usize = 8;

/// Refreshes the canonical view.
#[derive(Debug)]
pub(crate) struct HeadTracker {
    view: Arc<SharedView>,
    source: HeaderSource,
    finality: Arc<FinalityTracker>,
    upstream: Upstream,
    metrics: Metrics,
    /// The running refreshes. Each returns whether it made an upstream call.
    refreshes: Coalesce<Tag, Result<bool, UpstreamError>>,
    updating: SingleTask,
    times: Mutex<RefreshTimes>,
    /// Notifies one task of a head change, even if the change happens before that task waits.
    moved: Notify,
    establishing: SingleTask,
    reorgs: Reorgs,
}

#[derive(Debug, Default)]
struct RefreshTimes {
    /// Time of the last failed wait for the finalized block, and the pause before the next wait.
    no_finality: Option<(Instant, Duration)>,
    /// Block interval of the chain.
    pace: Pace,
    full_heads: FullHeads,
}

/// A head, with the blocks that show how it relates to the view.
struct ShownHead {
    shown: Shown,
    /// Blocks between the head and the window, as far as the endpoint returned them.
    between: Vec<Link>,
    /// The finalized block, if the head does not link to it and the endpoint has shown or pruned it.
    finalized: Option<(BlockNumber, BlockHash)>,
}

// === impl HeadTracker ===

impl HeadTracker {
    pub(crate) fn new(view: Arc<SharedView>, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, metrics, .. } = parts.clone();
        let source = HeaderSource::new(view.clone(), parts);
        Self {
            view,
            finality: Arc::new(FinalityTracker::new(source.clone(), parts)),
            source,
            upstream,
            metrics,
            refreshes: Coalesce::default(),
            updating: SingleTask::default(),
            times: Mutex::default(),
            moved: Notify::new(),
            establishing: SingleTask::default(),
            reorgs: Reorgs::default(),
        }
    }

    pub(crate) fn view(&self) -> &Arc<SharedView> {
        &self.view
    }

    pub(crate) fn finality(&self) -> &Arc<FinalityTracker> {
        &self.finality
    }

    pub(crate) fn source(&self) -> &HeaderSource {
        &self.source
    }

    /// Resolves when the head has changed since the last call. Only one task may wait.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Fetches the head if the view has none, and then the finalized block if the chain has finality and no request for
    /// that block was sent yet.
    pub(crate) async fn establish(self: &Arc<Self>, arrival: Stamp) -> Result<(), UpstreamError> {
        if self.view.tracker().head().is_some() {
            return Ok(());
        }
        // Fetch the head first, because the tracker accepts a finalized block only at or below the head.
        self.refresh(Tag::Latest, arrival).await?;
        if self.view.finalized_request().is_none() && self.view.tracker().rules().finality {
            // Ignore an error, because a node without finality answers with one.
            let _ = self.refresh(Tag::Finalized, arrival).await;
        }
        Ok(())
    }

    /// Like [`establish`](Self::establish), but also waits for the finalized block if the chain has finality and that
    /// block is unknown. After a failed wait, calls do not wait again until a pause is over.
    pub(crate) async fn establish_finality(self: &Arc<Self>, arrival: Stamp) -> Result<(), UpstreamError> {
        self.establish(arrival).await?;
        let is_wanted = {
            let tracker = self.view.tracker();
            tracker.rules().finality && tracker.finalized().is_none()
        };
        let failed = self.times.lock().no_finality;
        if is_wanted && failed.is_none_or(|(since, pause)| since.elapsed() >= pause) {
            let refreshed = timeout(FINALITY_PATIENCE, self.refresh(Tag::Finalized, arrival)).await;
            let is_known = self.view.tracker().finalized().is_some();
            let says_so = matches!(refreshed, Ok(Err(UpstreamError::Empty)));
            let twice = failed.map_or(FINALITY_PATIENCE, |(_, pause)| pause * 2);
            let pause = if says_so { FINALITY_AGAIN } else { twice.min(FINALITY_AGAIN) };
            self.times.lock().no_finality = (!is_known).then(|| (Instant::now(), pause));
        }
        Ok(())
    }

    /// Fetches the block of `tag`, or joins a refresh that is recent enough for a call that arrived at `arrival`.
    pub(crate) async fn refresh(self: &Arc<Self>, tag: Tag, arrival: Stamp) -> Result<(), UpstreamError> {
        self.refresh_as(None, tag, arrival, |_| true).await
    }

    /// Fetches the block of `tag` with a request that is sent after `since`.
    pub(crate) async fn renew(self: &Arc<Self>, tag: Tag, since: Stamp) -> Result<(), UpstreamError> {
        self.refresh_as(None, tag, since, move |sent| !sent.is_before(since)).await
    }

    /// Like [`refresh`](Self::refresh), for a call that asks for `part` of the block. Fetches the head in full if the
    /// call asks for that, or if calls for the full block of a new head are expected. `store` then stores the block.
    pub(crate) async fn refresh_for(
        self: &Arc<Self>,
        part: Part,
        tag: Tag,
        arrival: Stamp,
        store: Arc<dyn StoreHead>,
    ) -> Result<(), UpstreamError> {
        self.refresh_as(Some((part, store)), tag, arrival, |_| true).await
    }

    /// Records that a client's call fetched this full block. If it is the head, the next heads may be read in full, too.
    pub(crate) fn note_full_fetch(&self, block: BlockHash) {
        if self.view.tracker().head().is_some_and(|head| head.hash == block) {
            self.times.lock().full_heads.expect();
        }
    }

    /// Refreshes a tag for a call that asks for a part of the block. `wanted` is `None` if the caller cannot store full
    /// blocks. `may_join` decides by the time of a request whether to join it.
    // The future is boxed, because a refresh of one tag can start a refresh of another.
    fn refresh_as(
        self: &Arc<Self>,
        wanted: Option<(Part, Arc<dyn StoreHead>)>,
        tag: Tag,
        arrival: Stamp,
        may_join: impl Fn(Stamp) -> bool + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let this = self.clone();
        Box::pin(async move {
            let now = this.view.clock().now();
            let asking = this.clone();
            let refreshed = this.refreshes.run(
                tag,
                now,
                |sent| may_join(sent) && this.view.may_join(sent, arrival),
                move || {
                    // A refresh serves all clients, so the limits of a single client do not apply.
                    let context = CallContext { client: None, ..CallContext::current() };
                    context.scope(async move {
                        let metrics = asking.metrics.clone();
                        let refreshed = match tag {
                            // The upstream denied the finalized block less than a second ago, so do not ask again yet.
                            Tag::Latest if !asking.view.tracker().may_refresh(now) => return Ok(false),
                            Tag::Latest => asking.refresh_head(wanted, now).await,
                            Tag::Safe => asking.refresh_safe(now).await,
                            Tag::Finalized => asking.refresh_finalized(now).await,
                            Tag::Earliest | Tag::Pending => return Ok(false),
                        };
                        metrics.refreshed(tag, refreshed.is_ok());
                        refreshed.map(|()| true)
                    })
                },
            );
            let landed = refreshed.await.map_err(|_| UpstreamError::Abandoned)?;
            if !matches!(landed.value, Ok(false)) {
                waited::note_refresh(landed.joined);
            }
            landed.value.map(drop)
        })
    }

    /// Returns the block that the upstream shows for a tag, which the view may not accept; `None` if there is none.
    pub(crate) async fn show(&self, tag: Tag) -> Result<Option<Link>, UpstreamError> {
        let shown = self.source.fetch(tag, self.view.clock().now()).await?;
        waited::note_refresh(false);
        Ok(shown.map(|shown| shown.link))
    }

    /// Ensures in the background that the view has a head. Only one task at a time does so, so that tasks do not pile up
    /// while an upstream hangs. Returns that task.
    pub(crate) fn establish_in_background(self: &Arc<Self>, arrival: Stamp) -> RunningTask {
        let this = self.clone();
        self.establishing.begin(|| async move {
            // Ignore an error: the next call tries again.
            let _ = this.establish(arrival).await;
        })
    }

    pub(crate) fn head_age(&self) -> Option<Duration> {
        self.times.lock().pace.age(self.view.clock().now().time)
    }

    pub(crate) fn reorgs(&self) -> &Reorgs {
        &self.reorgs
    }

    /// Returns the reason to fetch the head in full, for a call that asks for this part of it; `None` if transaction
    /// hashes are enough.
    fn full_head(&self, part: Part, now: Stamp) -> Option<FullHead> {
        if part == Part::Block {
            return Some(FullHead::Asked);
        }
        let primary = self.upstream.primary()?;
        let mut times = self.times.lock();
        let is_expected = times.pace.expects_block(now.time) && times.full_heads.try_once(now.time);
        is_expected.then_some(FullHead::Expected(primary))
    }

    async fn refresh_head(
        self: Arc<Self>,
        wanted: Option<(Part, Arc<dyn StoreHead>)>,
        sent: Stamp,
    ) -> Result<(), UpstreamError> {
        let generation = self.view.generation();
        let full = wanted.as_ref().and_then(|(part, _)| self.full_head(*part, sent));
        self.view.change(|tracker| tracker.begin_refresh(sent));
        let (wall, mut sent) = (self.view.wall(), sent);
        let mut shown = self.fetch_head(full, sent).await;
        let is_alarm = || !self.view.tracker().is_suspended();
        // After this error another endpoint is primary. After an alarm the view is empty. In both cases the view ignores
        // answers to earlier requests, so send a new request.
        if matches!(&shown, Err(UpstreamError::WrongChain(_))) || (matches!(&shown, Ok(None)) && is_alarm()) {
            sent = self.view.clock().now();
            shown = self.fetch_head(full, sent).await;
        }
        let Some(ShownHead { shown, between, finalized }) = shown? else { return Ok(()) };
        let link = shown.link;
        let now = self.view.clock().now();
        let (change, links, alarmed, was_suspended) = self.view.change(|tracker| {
            let (final_before, was_suspended) = (tracker.finalized(), tracker.is_suspended());
            let links = !tracker.is_detached(link, &between);
            let change = tracker.observe_head(link, &between, finalized, sent, now);
            let alarmed = final_before.filter(|_| tracker.finalized().is_none());
            (change, links, alarmed, was_suspended && !tracker.is_suspended())
        });
        if let Some((number, hash)) = alarmed {
            self.finality.alarm(number, &format!("{hash} left the chain"));
        }
        if was_suspended {
            info!(head = link.number.0, "finalized block confirmed again; serving from the cache resumes");
        }
        if change == HeadChange::Unlinked {
            // Finality advanced while this refresh ran. The next refresh asks the endpoint for the new finalized block.
            self.metrics.head_observed(change);
            return Err(finalized_not_shown());
        }
        self.view.note_refresh(sent, wall);
        self.metrics.head_observed(change);
        if let Some(reorg) = self.reorgs.note(change, link, links, SystemTime::now()) {
            self.metrics.reorganised(&reorg);
        }
        let shown_by = shown.by;
        self.report(change, link, shown_by);
        if let (Some(block), Some((_, store))) = (self.source.store(shown), wanted)
            && self.view.generation() == generation
        {
            // Before the notification below, so that the follower does not fetch the block again.
            store.store_head(block).await;
        }
        self.view.clear_since(generation);
        if !matches!(change, HeadChange::Outdated | HeadChange::Same | HeadChange::Lag) {
            self.view.note_move(now);
            let mut times = self.times.lock();
            times.pace.record_head(link.number, now.time);
            times.full_heads.record_head();
            drop(times);
            self.moved.notify_one();
        }
        if let (HeadChange::Same | HeadChange::Extended(_), Some(by)) = (change, shown_by) {
            self.look_elsewhere(by, link.number, now);
        }
        if !self.updating.is_under_way() && self.finality.is_due(link.number, now) {
            let this = self.clone();
            tokio::spawn(async move { this.refresh(Tag::Finalized, now).await });
        }
        Ok(())
    }

    /// If a comparison is due, compares the head of the primary endpoint `by` with the head of another endpoint, in the
    /// background. Makes the other endpoint primary if it is ahead, because the primary may have stalled or be far
    /// behind.
    fn look_elsewhere(self: &Arc<Self>, by: EndpointId, head: BlockNumber, now: Stamp) {
        if self.upstream.is_single() {
            return;
        }
        let Some(margin) = self.times.lock().pace.comparison_due(now.time) else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let Some((other, further)) = this.source.fetch_head_elsewhere(by, now).await else { return };
            let Some(now) = this.view.tracker().head() else { return };
            // A margin of 1 means that the head had stalled. If the head has changed meanwhile, the primary stays.
            let is_due = margin > 1 || now.number == head;
            if is_due && further >= Some(BlockNumber(now.number.0.saturating_add(margin))) {
                this.upstream.switch_primary(by, other);
                let _ = this.refresh(Tag::Latest, this.view.clock().now()).await;
            }
        });
    }

    /// Fetches the head, the blocks between the head and the window as far as they arrive, and the finalized block if
    /// the head does not link to it. Returns `None` if the view must not accept the head, because the endpoint denied
    /// the finalized block or showed another block in its place.
    async fn fetch_head(
        self: &Arc<Self>,
        full: Option<FullHead>,
        sent: Stamp,
    ) -> Result<Option<ShownHead>, UpstreamError> {
        let Some(shown) = self.source.fetch_head(full, sent).await? else {
            return Err(UpstreamError::Empty);
        };
        let shown_number = shown.link.number;
        let shown = self.source.or_higher(shown, sent).await?;
        let link = shown.link;
        let mut between = Vec::new();
        let mut closed = None;
        // Compute the gap again after each fetch, because another refresh may have moved the window.
        for _ in 0..MOST_GAPS {
            let gap = self.view.tracker().gap(link);
            match gap.filter(|gap| closed != Some(*gap)) {
                Some(gap) => between.extend(self.source.fetch_gap(gap, sent).await),
                None => break,
            }
            closed = gap;
        }
        for _ in 0..MOST_PARENTS {
            let Some(parent) = self.view.tracker().missing_parent(link, &between) else { break };
            match self.source.fetch_parent(parent, sent).await {
                Ok(Some(parent)) => between.push(parent),
                // Try again, because another replica behind the same URL may have the parent.
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let (must_show, is_detached) = {
            let (tracker, now) = (self.view.tracker(), self.view.clock().now());
            (tracker.must_show(link, &between, now), tracker.is_detached(link, &between))
        };
        let Some(finalized) = must_show else {
            if is_detached {
                self.source.check_chain(shown.by).await?;
            }
            return Ok(Some(ShownHead { shown, between, finalized: None }));
        };
        Ok(match self.finality.check(finalized, shown_number, shown.by).await? {
            FinalCheck::Stands => Some(ShownHead { shown, between, finalized: Some(finalized) }),
            FinalCheck::Doubted => Some(ShownHead { shown, between, finalized: None }),
            FinalCheck::Suspended | FinalCheck::Alarm => None,
        })
    }

    fn report(&self, change: HeadChange, head: Link, by: Option<EndpointId>) {
        match change {
            HeadChange::Reorg(depth) => {
                info!(head = head.number.0, hash = %head.hash, depth, "chain reorganized");
            }
            HeadChange::Rollback(depth) => {
                info!(head = head.number.0, hash = %head.hash, depth, "chain rolled back to an ancestor");
            }
            HeadChange::Restarted => {
                debug!(head = head.number.0, "new head links to no known block; tracking restarts from it");
            }
            HeadChange::Lag => {
                debug!(
                    head = head.number.0,
                    "upstream's head lags or contradicts finality; keeping the known head"
                );
                // Prefer other endpoints, which may be ahead.
                if let Some(by) = by {
                    self.upstream.demote(by);
                }
            }
            _ => {}
        }
    }

    async fn refresh_safe(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let Some(shown) = self.source.fetch(Tag::Safe, sent).await? else {
            self.view.note_no_block(Tag::Safe, sent);
            return Err(UpstreamError::Empty);
        };
        let link = shown.link;
        let now = self.view.clock().now();
        self.view.change(|tracker| tracker.observe_safe(link, sent, now));
        self.source.store(shown);
        Ok(())
    }

    async fn refresh_finalized(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let head = self.view.tracker().head().map_or(BlockNumber(0), |head| head.number);
        let before = self.view.request_finalized((sent, head));
        let mut sent = sent;
        let shown = match self.finality.fetch(sent).await {
            // After this error another endpoint is primary. Request the finalized block from that endpoint.
            Err(UpstreamError::WrongChain(_)) => {
                sent = self.view.clock().now();
                self.finality.fetch(sent).await
            }
            shown => shown,
        };
        let Some(shown) = shown? else {
            self.view.note_no_block(Tag::Finalized, sent);
            return Err(UpstreamError::Empty);
        };
        let link = shown.link;
        let now = self.view.clock().now();
        self.view.change(|tracker| tracker.observe_finalized_tag(link, sent, now));
        self.source.store(shown);
        // The view now has the block of the tag, so the caller waits only briefly for the finality update.
        let updating = self.updating.begin(|| {
            let this = self.clone();
            async move {
                // The tracker accepts a finalized block only at or below its head. If this block is above the head, the
                // head is outdated.
                if this.view.tracker().head().is_none_or(|head| head.number < link.number) {
                    let _ = this.refresh(Tag::Latest, this.view.clock().now()).await;
                }
                match this.finality.advance(link, sent, before).await {
                    Ok(Finalized::Contrary) => {
                        let _ = this.refresh(Tag::Latest, this.view.clock().now()).await;
                        this.finality.note_success();
                    }
                    Ok(_) => this.finality.note_success(),
                    Err(error) => this.finality.defer(&error),
                }
            }
        });
        if !updating.is_ours {
            // Another finality update is still running, so this answer did not start one.
            self.view.restore_finalized_request(before);
        }
        updating.wait(UPDATE_PATIENCE).await;
        Ok(())
    }
}

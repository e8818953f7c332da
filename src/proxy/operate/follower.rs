//! Follows the chain without waiting for calls: refreshes the view, and fetches new blocks and receipts.
//!
//! The follower uses the same refreshes and fetches as ordinary calls: it makes answers faster, not different. A
//! `newHeads` notification only triggers a refresh. The follower does not trust the content of the notification, and
//! the notification alone does not make the view fresh. The follower waits while the chain of the upstream is not
//! confirmed. With [`Follow::Off`], it only makes the view adopt that chain.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{self, Instant},
};
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    chain::Link,
    display::seconds,
    eth::{BlockHash, BlockNumber, Part, Query, Tag},
    proxy::{
        call::single_flight::Shared,
        config::{ChainConfig, Follow},
        error::CallError,
        head::{HeadTracker, SharedView},
        lookup::CacheState,
        metrics::Metrics,
        miss::fetcher::{Fetched, Fetcher},
        parts::ProxyParts,
    },
    upstream::{FeedError, HeadFeed, Identity, UpstreamError},
    verify::Content,
};

/// Maximum number of blocks to fetch after an interruption, newest first. The tracker closes gaps of the same size,
/// about a quarter of an hour on Ethereum.
const MOST_BEHIND: usize = 64;

/// Number of fetched blocks to remember: enough for the current branch and a few branches that it replaced.
const REMEMBERED: usize = 4 * MOST_BEHIND;

/// Longest pause before a retry after an upstream failure, unless the poll interval is longer.
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// Pause before the first attempt to restore a lost subscription. The pause doubles with each further attempt.
const FIRST_RECONNECT: Duration = Duration::from_millis(250);

/// Follows the chain.
#[derive(Debug)]
pub struct Follower {
    head: Arc<HeadTracker>,
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    fetcher: Arc<Fetcher>,
    identity: Identity,
    metrics: Metrics,
    follow: Follow,
    interval: Duration,
    news: HeadNotifications,
}

/// State of the `newHeads` subscription.
#[derive(Debug)]
struct HeadNotifications {
    /// Whether a subscription is active.
    subscribed: watch::Sender<bool>,
    /// Wakes the refresh loop when a notification arrives. Several notifications during one refresh wake the loop once.
    notified: Notify,
}

/// Blocks that the follower has fetched, so that it fetches each only once.
#[derive(Debug, Default)]
struct Followed {
    /// Lowest number of a head so far. The follower fetches no block below this number; calls fetch older blocks on
    /// demand.
    floor: Option<BlockNumber>,
    /// Fetched blocks, in the order of the fetches. The link is `None` if the fetch returned no usable block, so that
    /// the parent is unknown.
    blocks: VecDeque<(BlockHash, Option<Link>)>,
}

// === impl Follower ===

impl Follower {
    pub(crate) fn new(
        head: Arc<HeadTracker>,
        state: Arc<CacheState>,
        fetcher: Arc<Fetcher>,
        parts: &ProxyParts,
        config: &ChainConfig,
    ) -> Self {
        let ProxyParts { upstream, metrics, .. } = parts.clone();
        Self {
            view: head.view().clone(),
            head,
            state,
            fetcher,
            identity: upstream.identity(),
            metrics,
            follow: config.follow,
            interval: config.follow_interval,
            news: HeadNotifications::new(),
        }
    }

    /// Follows the chain until the future is dropped. Notifications come from the current value of `feed`. With
    /// [`Follow::Off`], returns as soon as the chain of the upstream is known.
    pub async fn run(self, feed: watch::Receiver<Option<HeadFeed>>) {
        self.identity.wait_known().await;
        if let Ok(who) = self.identity.confirm().await {
            // Adopt the chain before the first call arrives, because entries that were loaded from tiers earlier may be
            // of another chain.
            self.view.adopt(&who);
        }
        if self.follow != Follow::Off {
            tokio::join!(self.refresh_loop(), self.listen(feed), self.fetch_loop());
        }
    }

    // ## The view

    /// Refreshes the view on each notification and, without a subscription, at each interval.
    async fn refresh_loop(&self) {
        let mut backoff = Backoff::new(self.interval, LAST_PAUSE);
        let mut told = false;
        loop {
            self.identity.wait_known().await;
            let asked = Instant::now();
            let head = self.view.tracker().head();
            match self.refresh(told).await {
                Ok(()) => {
                    backoff.reset();
                    // If the head has not changed, the replica that answered does not have the announced head yet:
                    // refresh once more after the interval.
                    let unseen = told && self.view.tracker().head() == head;
                    told = self.next(asked, unseen).await;
                }
                Err(error) => {
                    debug!(%error, "refresh of the head failed; retrying");
                    time::sleep(backoff.next_pause()).await;
                }
            }
        }
    }

    async fn refresh(&self, told: bool) -> Result<(), CallError> {
        let view = &self.view;
        view.adopt(&self.identity.confirm().await?);
        let now = view.clock().now();
        let known = view.tracker().head().is_some();
        // A notification announces a new head. A poll usually finds the old one, which is not worth a full block.
        let wants_full = told && self.follow >= Follow::Blocks;
        let part = if wants_full { Part::Block } else { Part::BlockWithHashes };
        let mut refreshed = match known {
            true if told => self.fetcher.refresh_for(part, Tag::Latest, now).await,
            true => self.head.refresh(Tag::Latest, now).await,
            false => self.head.establish(now).await,
        };
        // If this refresh joined one that was sent before the notification, the answer may not show the new head:
        // refresh again.
        let before_news = view.tracker().refreshed().is_some_and(|sent| sent.is_before(now));
        if told && before_news && refreshed.is_ok() {
            refreshed = self.fetcher.refresh_for(part, Tag::Latest, view.clock().now()).await;
        }
        refreshed.map_err(CallError::Upstream)
    }

    /// Resolves when a refresh is due; returns whether a notification is the reason.
    async fn next(&self, asked: Instant, unseen: bool) -> bool {
        let polled = async {
            if !unseen {
                let _ = self.news.subscribed.subscribe().wait_for(|subscribed| !subscribed).await;
            }
            self.due(asked).await;
        };
        tokio::select! {
            biased;
            () = self.news.notified.notified() => true,
            () = polled => false,
        }
    }

    /// Resolves one interval after the last refresh of the view, whether the follower or a call sent that refresh.
    async fn due(&self, asked: Instant) {
        loop {
            let refreshed = self.view.tracker().refreshed();
            let due = refreshed.map_or(asked, |stamp| stamp.time.max(asked)) + self.interval;
            if due <= Instant::now() {
                return;
            }
            time::sleep_until(due).await;
        }
    }

    // ## Notifications

    /// Keeps a subscription to the current feed.
    async fn listen(&self, mut feeds: watch::Receiver<Option<HeadFeed>>) {
        loop {
            let feed = feeds.borrow_and_update().clone();
            tokio::select! {
                biased;
                changed = feeds.changed() => {
                    // The new feed may not repeat the old feed's notifications; poll until the new subscription is
                    // active.
                    self.news.subscribed.send_replace(false);
                    if changed.is_err() {
                        // The sender is gone: the feed cannot change any more.
                        let feed = feeds.borrow().clone();
                        return self.listen_to(feed).await;
                    }
                }
                () = self.listen_to(feed) => {}
            }
        }
    }

    /// Keeps a subscription to this feed, forever.
    async fn listen_to(&self, feed: Option<HeadFeed>) {
        let Some(feed) = feed else { return std::future::pending().await };
        let mut backoff = Backoff::new(FIRST_RECONNECT, LAST_PAUSE);
        let mut lost = None;
        loop {
            self.identity.wait_known().await;
            let Err(error) = self.forward_notifications(&feed, &mut backoff, &mut lost).await;
            self.news.subscribed.send_replace(false);
            if lost.is_some() {
                debug!(%error, feed = %feed.url(), "newHeads subscription still unavailable");
            } else {
                warn!(%error, feed = %feed.url(), "newHeads subscription unavailable; polling until it is restored");
            }
            lost.get_or_insert_with(Instant::now);
            time::sleep(backoff.next_pause()).await;
        }
    }

    /// Passes on notifications until the subscription ends. `lost` is the time since which there was no subscription.
    async fn forward_notifications(
        &self,
        feed: &HeadFeed,
        backoff: &mut Backoff,
        lost: &mut Option<Instant>,
    ) -> Result<Infallible, FeedError> {
        let mut subscription = feed.subscribe().await?;
        debug!(feed = %feed.url(), "newHeads subscription established");
        self.news.subscribed.send_replace(true);
        // Cause one refresh now, because the subscription does not announce heads from before it began.
        self.news.notified.notify_one();
        loop {
            subscription.event().await?;
            self.news.notified.notify_one();
            // Reset the backoff only after an event. Otherwise a server that accepts each subscription and then
            // disconnects would get retries at the shortest pause forever.
            backoff.reset();
            if let Some(since) = lost.take() {
                let outage_seconds = seconds(since.elapsed());
                info!(feed = %feed.url(), outage_seconds, "newHeads subscription restored");
            }
        }
    }

    // ## Content

    /// Fetches the content of each new head.
    async fn fetch_loop(&self) {
        if self.follow < Follow::Blocks {
            return;
        }
        let mut followed = Followed::default();
        let mut backoff = Backoff::new(self.interval, LAST_PAUSE);
        loop {
            let head = self.view.tracker().head();
            let stocked = match head {
                Some(head) => self.fetch_branch(head, &mut followed).await,
                None => Ok(()),
            };
            match stocked {
                Ok(()) => {
                    backoff.reset();
                    self.head.moved().await;
                }
                Err(error) => {
                    debug!(%error, "fetch of a new block failed; retrying");
                    time::sleep(backoff.next_pause()).await;
                }
            }
        }
    }

    /// Fetches the head and then, newest first, its ancestors that were not fetched yet.
    async fn fetch_branch(&self, head: Link, followed: &mut Followed) -> Result<(), CallError> {
        let floor = followed.begin(head.number);
        let mut hash = head.hash;
        for _ in 0..MOST_BEHIND {
            let link = match followed.get(hash) {
                Some(link) => link,
                None => {
                    if self.view.tracker().head() != Some(head) {
                        // The head has changed. The next round begins at the new head, and its parent links lead to the
                        // blocks skipped here.
                        return Ok(());
                    }
                    let link = self.fetch(hash).await?.or((hash == head.hash).then_some(head));
                    followed.add(hash, link);
                    link
                }
            };
            match link {
                Some(link) if link.number > floor => hash = link.parent,
                _ => break,
            }
        }
        Ok(())
    }

    /// Fetches a block and, if configured, its receipts. Returns `None` if the fetch returns no usable block; the
    /// follower does not retry that block.
    async fn fetch(&self, hash: BlockHash) -> Result<Option<Link>, CallError> {
        let cache = &self.state.cache;
        let block = match cache.block(hash) {
            Some(block) => block,
            None => match self.fetch_one(Query::new(Part::Block, hash)).await? {
                Fetched::Content(Content::Block(block)) => block,
                _ => return Ok(None),
            },
        };
        let wants_receipts = self.follow == Follow::Full && self.state.node.has_block_receipts();
        // Fetch the receipts after the block, because the block proves them.
        if wants_receipts && cache.receipts(hash).is_none() {
            self.fetch_one(Query::new(Part::Receipts, hash)).await?;
        }
        Ok(Some(Link::from(block.header())))
    }

    async fn fetch_one(&self, fetch: Query) -> Result<Fetched, CallError> {
        self.identity.wait_known().await;
        self.identity.confirm().await?;
        let now = self.view.clock().now();
        let Shared { value, joined, .. } =
            self.fetcher.fetch(fetch, now).await.map_err(CallError::Upstream)?;
        if !joined {
            self.metrics.followed();
        }
        match value {
            // The view names the block, so the block exists, and the answer comes from a replica that does not have it
            // yet.
            Fetched::Other(answer) if answer.is_null() => Err(CallError::Upstream(UpstreamError::Empty)),
            value => Ok(value),
        }
    }
}

// === impl HeadNotifications ===

impl HeadNotifications {
    fn new() -> Self {
        Self { subscribed: watch::Sender::new(false), notified: Notify::new() }
    }
}

// === impl Followed ===

impl Followed {
    /// Records the number of a head. Returns the number below which the follower fetches nothing.
    fn begin(&mut self, head: BlockNumber) -> BlockNumber {
        *self.floor.insert(self.floor.map_or(head, |floor| floor.min(head)))
    }

    fn get(&self, hash: BlockHash) -> Option<Option<Link>> {
        self.blocks.iter().rev().find(|(known, _)| *known == hash).map(|(_, link)| *link)
    }

    fn add(&mut self, hash: BlockHash, link: Option<Link>) {
        if self.blocks.len() == REMEMBERED {
            self.blocks.pop_front();
        }
        self.blocks.push_back((hash, link));
    }
}

//! Follows the chain before anybody asks: keeps the view new, and fetches what new heads bring.
//!
//! Only what an ordinary call could have caused happens here, through the same refreshes and fetches:
//! a follower makes answers quicker, and none of them different. Where a node tells of new heads, that
//! is the moment to ask; what it tells is not believed, nor does it make the view any fresher. It does nothing at all while the
//! upstream is not known to be who it should be, nor ever with [`Follow::Off`].

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{self, Instant},
};
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    chain::Link,
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

/// Of blocks that came while nobody looked, the newest so many are fetched. As many as a gap that is
/// closed; on Ethereum, a quarter of an hour.
const MOST_BEHIND: usize = 64;

/// Blocks remembered as fetched: those of a branch, and of a few that it has replaced.
const REMEMBERED: usize = 4 * MOST_BEHIND;

/// An upstream that fails is asked again after at most so long (or the interval, if that is longer).
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// A subscription that was lost is tried again after this, and ever later.
const FIRST_RECONNECT: Duration = Duration::from_millis(250);

/// Who follows the chain.
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
    news: News,
}

/// What a node tells by itself.
#[derive(Debug)]
struct News {
    /// Is there a subscription?
    subscribed: watch::Sender<bool>,
    /// Something has happened. Told twice before anybody listens, it is heard once.
    heard: Notify,
}

/// Which blocks were fetched, so that none is twice.
#[derive(Debug, Default)]
struct Followed {
    /// Where following began: what is older is left to those who ask for it.
    floor: Option<BlockNumber>,
    /// The newest last; without a link, if what came for the hash is nothing to go on from.
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
            news: News::new(),
        }
    }

    /// Follows until dropped, by what `feed` tells while there is one, which may change; ends when it is known whose chain it
    /// is, if nothing is to be followed.
    pub async fn run(self, feed: watch::Receiver<Option<HeadFeed>>) {
        self.identity.wait_known().await;
        if let Ok(who) = self.identity.confirm().await {
            // Whether anybody asks or not: what tiers answered before may be another's.
            self.view.adopt(&who);
        }
        if self.follow != Follow::Off {
            tokio::join!(self.keep_new(), self.listen(feed), self.keep_stocked());
        }
    }

    // ## The view

    /// Refreshes the view whenever there is news and, while nobody tells any, at each interval.
    async fn keep_new(&self) {
        let mut backoff = Backoff::new(self.interval, LAST_PAUSE);
        let mut told = false;
        loop {
            self.identity.wait_known().await;
            let asked = Instant::now();
            let head = self.view.tracker().head();
            match self.refresh(told).await {
                Ok(()) => {
                    backoff.reset();
                    // Told of a head that is not to be seen: another replica has it. Once more, then.
                    let unseen = told && self.view.tracker().head() == head;
                    told = self.next(asked, unseen).await;
                }
                Err(error) => {
                    debug!(%error, "the chain cannot be followed for now");
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
        let mut refreshed =
            if known { self.head.refresh(Tag::Latest, now).await } else { self.head.establish(now).await };
        // One that was under way when the news came, and was joined, need not know of it.
        let before_news = view.tracker().refreshed().is_some_and(|sent| sent.is_before(now));
        if told && before_news && refreshed.is_ok() {
            refreshed = self.head.refresh(Tag::Latest, view.clock().now()).await;
        }
        refreshed.map_err(CallError::Upstream)
    }

    /// Resolves when it is time to refresh; tells whether it is because of news.
    async fn next(&self, asked: Instant, unseen: bool) -> bool {
        let polled = async {
            if !unseen {
                let _ = self.news.subscribed.subscribe().wait_for(|subscribed| !subscribed).await;
            }
            self.due(asked).await;
        };
        tokio::select! {
            biased;
            () = self.news.heard.notified() => true,
            () = polled => false,
        }
    }

    /// Resolves an interval after the view was last refreshed, by whomever.
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

    // ## News

    /// Keeps a subscription to whatever the feed is.
    async fn listen(&self, mut feeds: watch::Receiver<Option<HeadFeed>>) {
        loop {
            let feed = feeds.borrow_and_update().clone();
            tokio::select! {
                () = self.listen_to(feed) => {}
                changed = feeds.changed() => {
                    // What the one before told, this one need not; until it does, nobody tells anything.
                    self.news.subscribed.send_replace(false);
                    if changed.is_err() {
                        // Nobody is left who could change it.
                        let feed = feeds.borrow().clone();
                        return self.listen_to(feed).await;
                    }
                }
            }
        }
    }

    /// Keeps a subscription to this feed, for ever.
    async fn listen_to(&self, feed: Option<HeadFeed>) {
        let Some(feed) = feed else { return std::future::pending().await };
        let mut backoff = Backoff::new(FIRST_RECONNECT, LAST_PAUSE);
        let mut warned = false;
        loop {
            self.identity.wait_known().await;
            let Err(error) = self.hear(&feed, &mut backoff, &mut warned).await;
            self.news.subscribed.send_replace(false);
            if warned {
                debug!(%error, feed = %feed.url(), "new heads are still not told of");
            } else {
                warn!(%error, feed = %feed.url(), "new heads are not told of: asking for them until they are");
            }
            warned = true;
            time::sleep(backoff.next_pause()).await;
        }
    }

    /// Hears what there is to hear until the subscription ends.
    async fn hear(
        &self,
        feed: &HeadFeed,
        backoff: &mut Backoff,
        warned: &mut bool,
    ) -> Result<Infallible, FeedError> {
        let mut subscription = feed.subscribe().await?;
        debug!(feed = %feed.url(), "new heads are told of");
        self.news.subscribed.send_replace(true);
        // Of what happened until now nothing was told.
        self.news.heard.notify_one();
        loop {
            subscription.event().await?;
            self.news.heard.notify_one();
            // Not before: one that accepts and hangs up would be tried again at once, for ever.
            backoff.reset();
            if std::mem::take(warned) {
                info!(feed = %feed.url(), "new heads are told of again");
            }
        }
    }

    // ## Content

    /// Fetches what each new head brings.
    async fn keep_stocked(&self) {
        if self.follow < Follow::Blocks {
            return;
        }
        let mut followed = Followed::default();
        let mut backoff = Backoff::new(self.interval, LAST_PAUSE);
        loop {
            let head = self.view.tracker().head();
            let stocked = match head {
                Some(head) => self.stock(head, &mut followed).await,
                None => Ok(()),
            };
            match stocked {
                Ok(()) => {
                    backoff.reset();
                    self.head.moved().await;
                }
                Err(error) => {
                    debug!(%error, "a new block cannot be had for now");
                    time::sleep(backoff.next_pause()).await;
                }
            }
        }
    }

    /// Fetches the head and, newest first, what came before it and was not fetched yet.
    async fn stock(&self, head: Link, followed: &mut Followed) -> Result<(), CallError> {
        let floor = followed.begin(head.number);
        let mut hash = head.hash;
        for _ in 0..MOST_BEHIND {
            let link = match followed.get(hash) {
                Some(link) => link,
                None => {
                    if self.view.tracker().head() != Some(head) {
                        // The newer head first; what is left out here is found again below it.
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

    /// Fetches a block, and what belongs to it. `None` if what came may not be kept: once is enough,
    /// the rest is for those who ask.
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
        // After the block, against which they are held.
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
            // The view named it, so it is there: a replica that has not got it yet was asked.
            Fetched::Other(answer) if answer.is_null() => Err(CallError::Upstream(UpstreamError::Empty)),
            value => Ok(value),
        }
    }
}

// === impl News ===

impl News {
    fn new() -> Self {
        Self { subscribed: watch::Sender::new(false), heard: Notify::new() }
    }
}

// === impl Followed ===

impl Followed {
    /// The number below which nothing is fetched.
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

//! Follows the chain before anybody asks: keeps the view new, and fetches what new heads bring.
//!
//! Only what an ordinary call could have caused happens here, through the same refreshes and fetches:
//! a follower makes answers quicker, and none of them different. It does nothing at all while the
//! upstream is not known to be who it should be, nor ever with [`Follow::Off`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{self, Instant};
use tracing::debug;

use super::{
    CallError, ChainConfig, Follow,
    coalesce::Landed,
    fetch::{Fetch, Fetched, Fetcher},
};
use crate::{
    chain::Link,
    eth::{BlockHash, BlockNumber, Tag},
    jsonrpc::Answer,
    upstream::UpstreamError,
};

/// Of blocks that came while nobody looked, the newest so many are fetched. As many as a gap that is
/// closed; on Ethereum, a quarter of an hour.
const MOST_BEHIND: usize = 64;

/// Blocks remembered as fetched: those of a branch, and of a few that it has replaced.
const REMEMBERED: usize = 4 * MOST_BEHIND;

/// An upstream that fails is asked again after at most so long (or the interval, if that is longer).
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// Who follows the chain.
#[derive(Debug)]
pub struct Follower {
    fetcher: Arc<Fetcher>,
    follow: Follow,
    interval: Duration,
}

/// Which blocks were fetched, so that none is twice.
#[derive(Debug, Default)]
struct Followed {
    /// Where following began: what is older is left to those who ask for it.
    floor: Option<BlockNumber>,
    /// The newest last; without a link, if what came for the hash is nothing to go on from.
    blocks: VecDeque<(BlockHash, Option<Link>)>,
}

/// Pauses that double.
#[derive(Debug)]
struct Backoff {
    first: Duration,
    next: Duration,
}

// === impl Follower ===

impl Follower {
    pub(super) fn new(fetcher: Arc<Fetcher>, config: &ChainConfig) -> Self {
        Self { fetcher, follow: config.follow, interval: config.follow_interval }
    }

    /// Follows until dropped; ends at once if nothing is to be followed.
    pub async fn run(self) {
        match self.follow {
            Follow::Off => {}
            Follow::Heads => self.keep_new().await,
            Follow::Blocks | Follow::Full => {
                tokio::join!(self.keep_new(), self.keep_stocked());
            }
        }
    }

    // ## The view

    /// Refreshes the view at each interval.
    async fn keep_new(&self) {
        let mut backoff = Backoff::new(self.interval);
        loop {
            self.fetcher.identity.known().await;
            let asked = Instant::now();
            match self.refresh().await {
                Ok(()) => {
                    backoff.reset();
                    self.due(asked).await;
                }
                Err(error) => {
                    debug!(%error, "the chain cannot be followed for now");
                    backoff.pause().await;
                }
            }
        }
    }

    async fn refresh(&self) -> Result<(), CallError> {
        let view = &self.fetcher.view;
        view.follow(&self.fetcher.identity.confirm().await?);
        let now = view.clock().now();
        let known = view.tracker().head().is_some();
        let refreshed = if known { view.refresh(Tag::Latest, now).await } else { view.establish(now).await };
        refreshed.map_err(|error| {
            if error.lost_contact() {
                self.fetcher.identity.doubt();
            }
            CallError::Upstream(error)
        })
    }

    /// Resolves an interval after the view was last refreshed, by whomever.
    async fn due(&self, asked: Instant) {
        loop {
            let refreshed = self.fetcher.view.tracker().refreshed();
            let due = refreshed.map_or(asked, |stamp| stamp.time.max(asked)) + self.interval;
            if due <= Instant::now() {
                return;
            }
            time::sleep_until(due).await;
        }
    }

    // ## Content

    /// Fetches what each new head brings.
    async fn keep_stocked(&self) {
        let mut followed = Followed::default();
        let mut backoff = Backoff::new(self.interval);
        loop {
            let head = self.fetcher.view.tracker().head();
            let stocked = match head {
                Some(head) => self.stock(head, &mut followed).await,
                None => Ok(()),
            };
            match stocked {
                Ok(()) => {
                    backoff.reset();
                    self.fetcher.view.moved().await;
                }
                Err(error) => {
                    debug!(%error, "a new block cannot be had for now");
                    backoff.pause().await;
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
                    if self.fetcher.view.tracker().head() != Some(head) {
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
        let cache = &self.fetcher.cache;
        let block = match cache.block(hash) {
            Some(block) => block,
            None => match self.fetch_one(Fetch::Block(hash)).await? {
                Fetched::Block(block) => block,
                _ => return Ok(None),
            },
        };
        let wants_receipts = self.follow == Follow::Full && self.fetcher.has_block_receipts();
        // After the block, against which they are held.
        if wants_receipts && cache.receipts(hash).is_none() {
            self.fetch_one(Fetch::Receipts(hash)).await?;
        }
        let header = block.header();
        Ok(Some(Link { number: header.number, hash: header.hash, parent: header.parent }))
    }

    async fn fetch_one(&self, fetch: Fetch) -> Result<Fetched, CallError> {
        let fetcher = &self.fetcher;
        fetcher.identity.known().await;
        fetcher.identity.confirm().await?;
        let now = fetcher.view.clock().now();
        let Landed { value, joined } = fetcher.fetch(fetch, now).await.map_err(CallError::Upstream)?;
        if !joined {
            fetcher.metrics.followed();
        }
        match value {
            // The view named it, so it is there: a replica that has not got it yet was asked.
            Fetched::Other(Answer::Result(null)) if null == Bytes::from_static(b"null") => {
                Err(CallError::Upstream(UpstreamError::Empty))
            }
            value => Ok(value),
        }
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

// === impl Backoff ===

impl Backoff {
    fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    fn reset(&mut self) {
        self.next = self.first;
    }

    async fn pause(&mut self) {
        time::sleep(self.next).await;
        self.next = (self.next * 2).min(LAST_PAUSE.max(self.first));
    }
}

//! Fetches blocks into the cache on request of an operator.
//!
//! A warm request uses the same fetches as a client call: the proxy verifies and caches the answer, equal fetches share
//! one upstream call, and the rate limits of the endpoints apply.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use crate::{
    cache::Held,
    chain::Lookup,
    eth::{BlockHash, BlockNumber, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::single_flight::Shared,
        error::CallError,
        head::{HeadTracker, SharedView},
        lookup::CacheState,
        metrics::Metrics,
        miss::{
            fetcher::{Fetched, Fetcher},
            load::Loader,
        },
        parts::ProxyParts,
    },
    timeout::timeout,
    upstream::{Identity, UpstreamError},
    verify::{Content, Demand, Kind, Level, Verifier},
};

/// Maximum number of concurrent warm requests. The limit leaves upstream capacity for clients.
const AT_A_TIME: usize = 16;

/// Longest wait for writes to tiers.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Fetches blocks into the cache. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Warmer {
    head: Arc<HeadTracker>,
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    fetcher: Arc<Fetcher>,
    loader: Arc<Loader>,
    identity: Identity,
    verifier: Verifier,
    metrics: Metrics,
    places: Arc<Semaphore>,
}

/// Block to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// The block at this number.
    Number(BlockNumber),
    /// The head.
    Latest,
}

/// Result of a warm request.
#[derive(Clone, Debug)]
pub struct Warmed {
    /// Block number.
    pub number: BlockNumber,
    /// Hash of the block at that number, if known.
    pub hash: Option<BlockHash>,
    /// Result for the block.
    pub block: Piece,
    /// Result for the receipts, if requested.
    pub receipts: Option<Piece>,
}

/// Result for a block or its receipts.
#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Piece {
    /// The content was already in memory or in a cache tier.
    Present(Held),
    /// The warmer fetched the content, and it is cached now.
    Fetched(Held),
    /// The content is not cached, for this reason. An immediate retry would not help.
    Unkept(String),
    /// The requested number is above the head. This is the number of the head.
    Above(BlockNumber),
}

/// Error of a warm request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WarmError {
    /// Too many concurrent warm requests.
    #[error("{AT_A_TIME} warm requests are running already; retry when one has finished")]
    Crowded,
    /// The upstream call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Lookup of a block number in the view, with the query that fetches the block.
enum Target {
    Known(BlockHash, Query),
    Ask(Query),
    Above(BlockNumber),
}

// === impl Piece ===

impl Piece {
    /// Returns the name of this result.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

// === impl Warmer ===

impl Warmer {
    pub(crate) fn new(
        head: Arc<HeadTracker>,
        state: Arc<CacheState>,
        fetcher: Arc<Fetcher>,
        loader: Arc<Loader>,
        parts: &ProxyParts,
    ) -> Self {
        let ProxyParts { upstream, verifier, metrics, .. } = parts.clone();
        Self {
            view: head.view().clone(),
            head,
            state,
            fetcher,
            loader,
            identity: upstream.identity(),
            verifier,
            metrics,
            places: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    /// Ensures that a block, and its receipts if requested, are cached. Makes no upstream call for cached content.
    ///
    /// # Errors
    /// Fails if too many warm requests are running, or if an upstream call fails.
    pub async fn warm(&self, wanted: Warm, receipts: bool) -> Result<Warmed, WarmError> {
        let _place = self.places.try_acquire().map_err(|_| WarmError::Crowded)?;
        self.view.adopt(&self.identity.confirm().await.map_err(CallError::from)?);
        // Confirm the tiers first, because an unconfirmed tier drops writes.
        self.loader.sync().confirm().await;
        let number = match wanted {
            Warm::Number(number) => number,
            Warm::Latest => self.latest().await.map_err(CallError::Upstream)?,
        };
        let (hash, block) = self.block(number).await.map_err(CallError::Upstream)?;
        let receipts = match (receipts, hash, &block) {
            (false, ..) => None,
            (true, Some(hash), Piece::Present(_) | Piece::Fetched(_)) => {
                Some(self.receipts(hash).await.map_err(CallError::Upstream)?)
            }
            (true, _, Piece::Above(head)) => Some(Piece::Above(*head)),
            (true, ..) => Some(Piece::Unkept("the block is not cached".to_owned())),
        };
        // Wait until the tiers have written the entries. Otherwise a series of warm requests could fill the write
        // queue, and the tiers would drop entries.
        let _ = timeout(WRITE_PATIENCE, self.loader.sync().tiers().settle()).await;
        Ok(Warmed { number, hash, block, receipts })
    }

    async fn latest(&self) -> Result<BlockNumber, UpstreamError> {
        let view = &self.view;
        let now = view.clock().now();
        self.head.establish(now).await?;
        if !view.tracker().is_fresh(now) {
            self.head.refresh(Tag::Latest, now).await?;
        }
        let head = view.tracker().head().map(|head| head.number);
        head.ok_or(UpstreamError::Empty)
    }

    async fn block(&self, number: BlockNumber) -> Result<(Option<BlockHash>, Piece), UpstreamError> {
        let (known, fetch) = match self.target(number).await? {
            Target::Above(head) => return Ok((None, Piece::Above(head))),
            Target::Known(hash, fetch) => (Some(hash), fetch),
            Target::Ask(fetch) => (None, fetch),
        };
        if let Some((hash, held)) = known.and_then(|hash| Some((hash, self.state.cache.held_block(hash)?))) {
            // Write the block to the tiers again, because a tier may have dropped the first write.
            if let Some(block) = self.state.cache.block(hash) {
                self.loader.sync().write_back().write_block(&block, None);
            }
            return Ok((Some(hash), Piece::Present(held)));
        }
        if let Some(Content::Block(block)) = self.loader.recover(fetch).await
            && let Some(held) = self.state.cache.held_block(block.hash())
        {
            return Ok((Some(block.hash()), Piece::Present(held)));
        }
        let unkept = |hash, why: &str| Ok((hash, Piece::Unkept(why.to_owned())));
        let block = match self.fetch(fetch).await? {
            Ok(Fetched::Content(Content::Block(block))) => block,
            Ok(_) => return unkept(known, UNVERIFIED),
            Err(why) => return unkept(known, &why),
        };
        let hash = Some(block.hash());
        match self.state.cache.held_block(block.hash()) {
            Some(held) => Ok((hash, Piece::Fetched(held))),
            None if !block.is_proved() && self.verifier.demands(Kind::Transactions) == Demand::Auto => {
                unkept(hash, "the block cannot be proved")
            }
            None => unkept(hash, self.why_unkept(Kind::Transactions, block.level())),
        }
    }

    async fn receipts(&self, block: BlockHash) -> Result<Piece, UpstreamError> {
        if let Some(held) = self.state.cache.held_receipts(block) {
            if let Some(receipts) = self.state.cache.receipts(block) {
                self.loader.sync().write_back().write_receipts(&receipts, None);
            }
            return Ok(Piece::Present(held));
        }
        if self.loader.recover(Query::new(Part::Receipts, block)).await.is_some()
            && let Some(held) = self.state.cache.held_receipts(block)
        {
            return Ok(Piece::Present(held));
        }
        if !self.state.node.has_block_receipts() {
            return Ok(Piece::Unkept("the node has no eth_getBlockReceipts".to_owned()));
        }
        let receipts = match self.fetch(Query::new(Part::Receipts, block)).await? {
            Ok(Fetched::Content(Content::Receipts(receipts))) => receipts,
            Ok(_) => return Ok(Piece::Unkept(UNVERIFIED.to_owned())),
            Err(why) => return Ok(Piece::Unkept(why)),
        };
        Ok(match self.state.cache.held_receipts(block) {
            Some(held) => Piece::Fetched(held),
            None => Piece::Unkept(self.why_unkept(Kind::Receipts, receipts.level()).to_owned()),
        })
    }

    /// Returns the query for the block at `number`. Refreshes a stale view only if `number` is above the head, because
    /// a block at a lower number may be cached already.
    async fn target(&self, number: BlockNumber) -> Result<Target, UpstreamError> {
        let view = &self.view;
        let arrival = view.clock().now();
        // Learn the finalized block first: if the proxy requests a block without knowing that the block is final, an
        // unproved answer needs a second fetch.
        self.head.establish_finality(arrival).await?;
        let look = || view.tracker().lookup(number, arrival);
        let mut found = look();
        if let Lookup::Above { fresh: false } = found {
            self.head.refresh(Tag::Latest, arrival).await?;
            found = look();
        }
        Ok(match found {
            Lookup::Final(hash) | Lookup::Tracked { hash, fresh: true } => {
                Target::Known(hash, Query::new(Part::Block, hash))
            }
            Lookup::Tracked { hash, fresh: false } | Lookup::Asked(hash) => {
                Target::Known(hash, Query::new(Part::Block, number))
            }
            Lookup::Above { .. } => {
                Target::Above(view.tracker().head().map_or(BlockNumber(0), |head| head.number))
            }
            Lookup::Unknown => Target::Ask(Query::new(Part::Block, number)),
        })
    }

    /// Fetches content. The inner error says why the answer cannot be cached.
    async fn fetch(&self, fetch: Query) -> Result<Result<Fetched, String>, UpstreamError> {
        if self.state.uncacheable.contains(fetch) {
            return Ok(Err("fetched less than a minute ago and could not be cached".to_owned()));
        }
        let Shared { value, joined, .. } = self.fetcher.fetch_ahead(fetch, self.view.clock().now()).await?;
        if !joined {
            self.metrics.followed();
        }
        Ok(match value {
            Fetched::Other(Answer::Error(error)) => Err(UpstreamError::node_error(&error).to_string()),
            Fetched::Other(answer) if answer.is_null() => Err("the node does not have this data".to_owned()),
            Fetched::Other(Answer::Result(_)) => Err(UNVERIFIED.to_owned()),
            value => Ok(value),
        })
    }

    fn why_unkept(&self, kind: Kind, level: Level) -> &'static str {
        if level < Level::Proved && self.verifier.demands_proof(kind) {
            return "the answer cannot be proved, and verify.level = \"full\" requires proof";
        }
        "the answer contradicts the view of the chain, or the cache has no room for it"
    }
}

const UNVERIFIED: &str = "the answer failed verification; see the log for details";

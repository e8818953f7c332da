//! Has blocks in memory before anybody asks for them, because somebody says so.
//!
//! Only what an ordinary call could have caused happens here, through the same fetches: checked, kept, joined with
//! others', at the rate that an endpoint may be asked.

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

/// So many blocks at a time, whoever wants them: the rest of the upstream's places is for clients.
const AT_A_TIME: usize = 16;

/// So long it is waited for what tiers are to have.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Fetches what somebody wants to have in memory. Cheap to clone.
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

/// Which block to have in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// The one at this height.
    Number(BlockNumber),
    /// The newest.
    Latest,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Warmed {
    /// The height.
    pub number: BlockNumber,
    /// What stands there, if that is known now.
    pub hash: Option<BlockHash>,
    /// The block.
    pub block: Piece,
    /// Its receipts, if they were wanted.
    pub receipts: Option<Piece>,
}

/// What came of a block, or of its receipts.
#[derive(Clone, Debug)]
pub enum Piece {
    /// It was in memory, or in a tier behind it.
    Present(Held),
    /// It is in memory now.
    Fetched(Held),
    /// It is not, and this is why; to try again at once would not help.
    Unkept(String),
    /// There is no such block yet: the chain ends here.
    Above(BlockNumber),
}

/// Why nothing came of it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WarmError {
    /// As many as may are at it already.
    #[error("{AT_A_TIME} blocks are being fetched so already; come back when one is there")]
    Crowded,
    /// The upstream did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Where a number stands, and how what stands there is fetched.
enum Target {
    Known(BlockHash, Query),
    Ask(Query),
    Above(BlockNumber),
}

// === impl Piece ===

impl Piece {
    /// Its name for people and programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Present(_) => "present",
            Self::Fetched(_) => "fetched",
            Self::Unkept(_) => "unkept",
            Self::Above(_) => "above",
        }
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

    /// Sees to it that a block is in memory, and its receipts if they are wanted. Costs no upstream call for what is.
    ///
    /// # Errors
    /// If as many are at it as may, or the upstream does not answer.
    pub async fn warm(&self, wanted: Warm, receipts: bool) -> Result<Warmed, WarmError> {
        let _place = self.places.try_acquire().map_err(|_| WarmError::Crowded)?;
        self.view.adopt(&self.identity.confirm().await.map_err(CallError::from)?);
        // An unconfirmed tier would drop the block.
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
            (true, ..) => Some(Piece::Unkept("their block is not in memory".to_owned())),
        };
        // Whoever wants much at once is not to be faster than what it is written to: that would be left out.
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
            // It may have been left out when it came.
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
                unkept(hash, "it is unprovable")
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

    /// What to fetch for a number, by what is known of it. What is in memory is not worth a refresh of the view.
    async fn target(&self, number: BlockNumber) -> Result<Target, UpstreamError> {
        let view = &self.view;
        let arrival = view.clock().now();
        // What is not known to be final when it comes is asked for again before it is kept.
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

    /// Fetches; the inner error says why what came is nothing to be kept.
    async fn fetch(&self, fetch: Query) -> Result<Result<Fetched, String>, UpstreamError> {
        if self.state.uncacheable.contains(fetch) {
            return Ok(Err("it was fetched less than a minute ago, and could not be kept".to_owned()));
        }
        let Shared { value, joined, .. } = self.fetcher.fetch(fetch, self.view.clock().now()).await?;
        if !joined {
            self.metrics.followed();
        }
        Ok(match value {
            Fetched::Other(Answer::Error(error)) => Err(UpstreamError::node_error(&error).to_string()),
            Fetched::Other(answer) if answer.is_null() => Err("the node does not have it".to_owned()),
            Fetched::Other(Answer::Result(_)) => Err(UNVERIFIED.to_owned()),
            value => Ok(value),
        })
    }

    fn why_unkept(&self, kind: Kind, level: Level) -> &'static str {
        if level < Level::Proved && self.verifier.demands_proof(kind) {
            return "it cannot be proved, and verify.level = \"full\" demands that";
        }
        "it contradicts what is known of the chain, or the cache has no room for it"
    }
}

const UNVERIFIED: &str = "what came failed its checks; the log says how";

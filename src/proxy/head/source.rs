//! Fetches the headers that show which blocks are canonical.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{known::KnownAt, view::SharedView};
use crate::{
    cache::Cache,
    chain::{Gap, Link, Stamp},
    eth::{At, Block, BlockHash, BlockNumber, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{metrics::Metrics, parts::ProxyParts},
    timeout::timeout,
    upstream::{
        AcceptedAnswer, Call, EndpointId, Identity, IdentityError, Requirements, Upstream, UpstreamError,
        is_absence, is_internal, is_rate_limit,
    },
    verify::{Check, Content, Kind, Level, Verdict, Verified, Verifier},
};

/// Longest wait for the full head, if a call asks for it. All clients that need the head wait for it.
const FULL_HEAD_PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for the full head, if no call asks for it. It is longer than most providers take for a full block, and
/// short enough for clients that read only the number.
const EXPECTED_HEAD_PATIENCE: Duration = Duration::from_millis(500);

/// Time without requests for a full head, after the upstream did not show one.
const FULL_HEAD_AGAIN: Duration = Duration::from_secs(60);

/// A block that an endpoint showed.
pub(crate) struct Shown {
    pub(crate) link: Link,
    /// The block itself, if it may be stored in the cache.
    storable: Option<Content>,
    /// The endpoint that showed the block.
    pub(crate) by: Option<EndpointId>,
}

/// Reason why an endpoint showed no block.
pub(crate) enum NotShown {
    /// The endpoint has no such block, or has pruned it.
    Absent(Option<EndpointId>),
    /// The endpoint answered with a JSON-RPC error that is neither an absence nor an internal error nor a rate limit.
    Refused(Option<EndpointId>),
    /// The endpoint answered with an internal error.
    Broken,
    /// The answer says nothing about the block: it is a rate limit, or a block that failed verification.
    Other,
}

/// Fetches blocks with hashes for the canonical view.
#[derive(Clone, Debug)]
pub(crate) struct HeaderSource {
    pub(super) view: Arc<SharedView>,
    cache: Cache,
    upstream: Upstream,
    identity: Identity,
    verifier: Verifier,
    metrics: Metrics,
    /// Time of the last head that the upstream showed with hashes, but not in full.
    no_full_head: Arc<Mutex<Option<Instant>>>,
}

/// Reason to fetch the head in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullHead {
    /// A call asks for it.
    Asked,
    /// A call will probably ask for it. Only this endpoint, the primary, is asked, and its failure does not make
    /// another endpoint the primary: no client needs the answer yet.
    Expected(EndpointId),
}

// === impl HeaderSource ===

impl HeaderSource {
    pub(crate) fn new(view: Arc<SharedView>, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, cache, verifier, metrics, .. } = parts.clone();
        let identity = upstream.identity();
        Self { view, cache, identity, upstream, verifier, metrics, no_full_head: Arc::default() }
    }

    /// Fetches a block by number, tag or hash, with transaction hashes; `None` if the endpoint shows none.
    pub(super) async fn fetch(&self, at: impl Into<At>, sent: Stamp) -> Result<Option<Shown>, UpstreamError> {
        Ok(self.request(at, sent).await?.ok())
    }

    /// Fetches the head, with full transactions if `full` says so. If the upstream does not show it so in time, or shows
    /// wrong or unprovable transactions, fetches it with hashes: the view must follow the chain in any case.
    pub(super) async fn fetch_head(
        &self,
        full: Option<FullHead>,
        sent: Stamp,
    ) -> Result<Option<Shown>, UpstreamError> {
        let failed = *self.no_full_head.lock();
        let full = full.filter(|_| failed.is_none_or(|since| since.elapsed() >= FULL_HEAD_AGAIN));
        let shown = match full {
            Some(FullHead::Asked) => {
                timeout(FULL_HEAD_PATIENCE, self.show_head(None, Part::Block, sent)).await
            }
            Some(FullHead::Expected(primary)) => {
                let showing = self.show_head(Some(primary), Part::Block, sent);
                timeout(EXPECTED_HEAD_PATIENCE, showing).await
            }
            None => return self.show_head(None, Part::BlockWithHashes, sent).await,
        };
        match shown {
            Ok(Ok(Some(shown))) if shown.is_storable() => return Ok(Some(shown)),
            // Asking for hashes would fail in the same way.
            Ok(Err(
                error @ (UpstreamError::WrongChain(_)
                | UpstreamError::RateLimited { .. }
                | UpstreamError::RateUsedUp { .. }
                | UpstreamError::Connect(_)
                | UpstreamError::NotSent(_)),
            )) if full == Some(FullHead::Asked) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let shown = self.show_head(None, Part::BlockWithHashes, sent).await?;
        if shown.is_some() {
            *self.no_full_head.lock() = Some(Instant::now());
        }
        Ok(shown)
    }

    /// Returns the head that the node shows, or a higher block, unless one node answers: the block of `safe` or `finalized`,
    /// or a block that an answer named and that the node still shows at its number.
    pub(super) async fn or_higher(&self, shown: Shown, sent: Stamp) -> Result<Shown, UpstreamError> {
        let tagged = self.view.tracker().tagged_above(shown.link, sent);
        let shown = match tagged {
            Some(link) => Shown { link, storable: None, by: shown.by },
            None => shown,
        };
        loop {
            let told = self.view.tracker().told(sent);
            let Some(told) = told.filter(|told| shown.link.number < told.number) else { return Ok(shown) };
            match self.fetch(told.number, sent).await {
                Ok(Some(higher)) if higher.link.hash == told.hash => return Ok(higher),
                _ => self.view.change(|tracker| tracker.forget_told(told)),
            }
        }
    }

    async fn show_head(
        &self,
        endpoint: Option<EndpointId>,
        part: Part,
        sent: Stamp,
    ) -> Result<Option<Shown>, UpstreamError> {
        Ok(self.request_by(endpoint, Query::new(part, Tag::Latest), sent).await?.ok())
    }

    /// Requests a block from the primary endpoint. The inner error says why the endpoint showed no block.
    pub(crate) async fn request(
        &self,
        at: impl Into<At>,
        sent: Stamp,
    ) -> Result<Result<Shown, NotShown>, UpstreamError> {
        self.request_by(None, with_hashes(at), sent).await
    }

    /// Requests a block from `endpoint`, or from the primary endpoint if `endpoint` is `None`.
    pub(super) async fn request_from(
        &self,
        endpoint: Option<EndpointId>,
        at: impl Into<At>,
    ) -> Result<Result<Shown, NotShown>, UpstreamError> {
        self.request_by(endpoint, with_hashes(at), self.view.clock().now()).await
    }

    async fn request_by(
        &self,
        endpoint: Option<EndpointId>,
        query: Query,
        sent: Stamp,
    ) -> Result<Result<Shown, NotShown>, UpstreamError> {
        let call = self.call(query, sent);
        let (is_finalized, is_tag) = (query.at == At::Tag(Tag::Finalized), query.tag().is_some());
        self.metrics.upkeep(1);
        let asked_call = call.clone();
        let answering = match endpoint {
            Some(endpoint) => self.upstream.call_one(endpoint, call).await,
            None => self.upstream.call(call).await,
        };
        let AcceptedAnswer { answer, verdict, by } = match answering {
            // Some nodes report a missing block with an HTTP error.
            Err(UpstreamError::Refused { error, .. }) if is_absence(&error) && !is_tag => {
                AcceptedAnswer::unverified(Answer::Error(error))
            }
            answering => answering?,
        };
        Ok(match (answer, verdict) {
            (Answer::Result(_), Some(Verdict::Overdue(_))) => return Err(UpstreamError::Busy),
            (answer, _) if answer.is_null() => Err(NotShown::Absent(by)),
            (Answer::Result(_), verdict) => {
                let shown = self.shown(verdict, is_finalized).ok_or(NotShown::Other);
                shown.map(|shown| Shown { by, ..shown })
            }
            (Answer::Error(error), _) if is_absence(&error) => Err(NotShown::Absent(by)),
            (Answer::Error(error), _) if is_rate_limit(&asked_call, &error) => Err(NotShown::Other),
            (Answer::Error(error), _) if is_internal(&error) => Err(NotShown::Broken),
            (Answer::Error(_), _) => Err(NotShown::Refused(by)),
        })
    }

    /// Fetches the blocks of a gap in one batch, and returns the blocks that arrive.
    pub(crate) async fn fetch_gap(&self, gap: Gap, sent: Stamp) -> Vec<Link> {
        let numbers = (gap.from.0..=gap.to.0).map(BlockNumber);
        let calls: Vec<_> = numbers.map(|number| self.call(with_hashes(number), sent)).collect();
        self.metrics.upkeep(calls.len() as u64);
        let answers = self.upstream.call_all(calls).await;
        let shown = answers.into_iter().flatten().filter_map(|accepted| self.shown(accepted.verdict, false));
        shown.map(|shown| self.stored(shown)).collect()
    }

    /// Returns the block with this hash from the cache or the primary endpoint; `None` if neither has it.
    pub(super) async fn fetch_parent(
        &self,
        hash: BlockHash,
        sent: Stamp,
    ) -> Result<Option<Link>, UpstreamError> {
        if let Some(cached) = self.view.cached_link(hash) {
            return Ok(Some(cached));
        }
        let shown = self.fetch(hash, sent).await?;
        Ok(shown.map(|shown| self.stored(shown)))
    }

    /// Stores the block if that is possible, and returns its link.
    fn stored(&self, shown: Shown) -> Link {
        let link = shown.link;
        self.store(shown);
        link
    }

    /// Checks that this endpoint serves the right chain. A block that does not link to the view may be of another
    /// chain, and must then not change the view.
    pub(super) async fn check_chain(&self, by: Option<EndpointId>) -> Result<(), UpstreamError> {
        self.identity.require_recheck();
        let by = by.ok_or(UpstreamError::Empty)?;
        let who = self.identity.confirm_endpoint(by).await.map_err(|error| match error {
            IdentityError::WrongChain(wrong) => UpstreamError::WrongChain(wrong),
            // The details are not needed here: the client call also confirms the identity, and reports the upstream's
            // error.
            IdentityError::Upstream(_) => UpstreamError::Empty,
        })?;
        self.view.adopt(&who);
        Ok(())
    }

    /// Fetches the head from another endpoint than `than`. Returns the other endpoint, and the number of its head if it
    /// showed a usable block.
    pub(super) async fn fetch_head_elsewhere(
        &self,
        than: EndpointId,
        sent: Stamp,
    ) -> Option<(EndpointId, Option<BlockNumber>)> {
        let call = self.call(with_hashes(Tag::Latest), sent);
        self.metrics.upkeep(1);
        let (other, verdict) = self.upstream.call_another(than, call).await?;
        Some((other, self.shown(verdict, false).map(|shown| shown.link.number)))
    }

    fn call(&self, query: Query, sent: Stamp) -> Call {
        let known = KnownAt::new(self.cache.clone(), self.view.clone(), sent);
        let check = Check::new(self.verifier.clone(), query, Arc::new(known));
        let (block, is_head) = (query.number(), query.at == At::Tag(Tag::Latest));
        let closes = self.view.tracker().is_doubted();
        let need =
            Requirements { block, primary: true, for_view: true, is_head, closes, ..Requirements::default() };
        Call::of(query).with_check(check).with_requirements(need)
    }

    /// Returns the block of a verdict, if the view may use it. The view may use an unprovable block that the cache does
    /// not store, because the proxy must follow a chain even after a fork that this program does not know. But on a
    /// chain whose headers can be proved, the finalized block needs a proof, and so do all blocks if the configuration
    /// demands full proof.
    fn shown(&self, verdict: Option<Verdict>, is_finalized: bool) -> Option<Shown> {
        match verdict? {
            Verdict::Passed(content) => {
                Some(Shown { link: link(&content)?, storable: Some(content), by: None })
            }
            Verdict::Unproved(_, Some(content)) => {
                let waits = is_finalized || self.verifier.demands_proof(Kind::Header);
                // `Partial` is enough, because the view uses only the header. The rest of the block may follow rules
                // that this program does not know.
                let is_enough = content.level() >= Level::Partial || !waits || !self.verifier.is_sure();
                let link = link(&content)?;
                is_enough.then_some(Shown { link, storable: None, by: None })
            }
            _ => None,
        }
    }

    /// Stores a block with hashes in the cache, unless the configuration demands a proof and the block has none.
    /// Returns a block with full transactions, which the caller must store.
    pub(crate) fn store(&self, shown: Shown) -> Option<Arc<Verified<Block>>> {
        match shown.storable? {
            Content::Block(block) => return Some(block),
            // This header passed before the first proof showed that headers can be proved.
            Content::BlockWithHashes(with_hashes)
                if with_hashes.level() == Level::Structural && self.verifier.is_sure() => {}
            Content::BlockWithHashes(with_hashes)
                if with_hashes.is_proved() || !self.verifier.demands_proof(Kind::Transactions) =>
            {
                self.cache.insert_block_with_hashes(&with_hashes);
            }
            _ => {}
        }
        None
    }
}

// === impl Shown ===

impl Shown {
    /// Returns whether the block passed all checks, so that the cache may store it.
    pub(crate) fn is_storable(&self) -> bool {
        self.storable.is_some()
    }
}

fn with_hashes(at: impl Into<At>) -> Query {
    Query::new(Part::BlockWithHashes, at)
}

/// Returns number, hash and parent of a block in either form.
fn link(content: &Content) -> Option<Link> {
    match content {
        Content::Block(block) => Some(block.header().into()),
        Content::BlockWithHashes(with_hashes) => Some(with_hashes.header().into()),
        Content::Receipts(_) | Content::Transaction(_) | Content::Receipt(_) => None,
    }
}

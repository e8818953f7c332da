//! Fetches content for a call, and slices the answer out of it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time;
use tracing::debug;

use super::{
    changes::ViewBefore,
    existing::{Known, KnownToExist},
    fetcher::{Fetched, Fetcher, canonical},
    forward::Forwarder,
    load::Loader,
    prefetch::Prefetcher,
    prove::Prover,
    store::Store,
};
use crate::{
    chain::Stamp,
    eth::{At, BlockHash, BlockNumber, Home, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            query_call::QueryCall,
            single_flight::Shared,
            slice::slice,
        },
        error::CallError,
        head::{HeadTracker, SharedView},
        lookup::CacheState,
    },
    timeout::timeout,
    upstream::{UpstreamError, is_unknown_block},
    verify::Content,
};

/// Pauses before each further request for data that must exist: replicas behind a load balancer rarely lag by more.
const INSIST: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

/// Longest time that a fetched answer waits for the prefetch of its block.
const PREFETCH_PATIENCE: Duration = Duration::from_secs(1);

/// Fetches content for calls, and slices the answers out of it.
#[derive(Debug)]
pub(crate) struct AnswerFetcher {
    pub(crate) head: Arc<HeadTracker>,
    pub(crate) view: Arc<SharedView>,
    pub(crate) state: Arc<CacheState>,
    pub(crate) store: Store,
    pub(crate) existing: KnownToExist,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) prover: Prover,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) forwarder: Forwarder,
    pub(crate) loader: Arc<Loader>,
}

/// Result of a fetch for a call.
pub(super) enum FetchResult {
    /// The answer.
    Answer(Answered),
    /// The chain changed meanwhile: look up again.
    Changed,
    /// The upstream does not have a block that the view named.
    Denied,
}

/// Returns whether the query fetches a block by hash.
fn is_block_by_hash(fetch: Query) -> bool {
    fetch.names_hash() && matches!(fetch.part, Part::Block | Part::BlockWithHashes)
}

/// Returns whether an answer is an empty list.
fn is_empty_list(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result == "[]")
}

/// Returns whether an answer says that there is no such block.
pub(in crate::proxy) fn denies(answer: &Answer) -> bool {
    match answer {
        Answer::Result(_) => answer.is_null(),
        Answer::Error(error) => is_unknown_block(error),
    }
}

/// Returns the number in the query and the hash of the fetched block, if the block has another number.
fn misnumbered(query: Query, fetched: &Fetched) -> Option<(BlockNumber, BlockHash)> {
    let asked = query.number()?;
    let Fetched::Content(content) = fetched else { return None };
    let home = content.named_home().filter(|_| !content.is_single())?;
    (home.number != asked).then_some((asked, home.block))
}

// === impl AnswerFetcher ===

impl AnswerFetcher {
    /// Fetches content, and slices the answer out of it.
    pub(super) async fn fetch(
        &self,
        asked: &QueryCall,
        fetch: Query,
        arrival: Stamp,
    ) -> Result<FetchResult, CallError> {
        if self.state.uncacheable.is_lacking(fetch) && self.existing.known(asked, fetch).is_some() {
            return Err(CallError::Lacking { what: fetch });
        }
        if let Some(block) = self.state.uncacheable.gone_from(fetch, asked.query.part)
            && self.existing.known(asked, fetch).is_some_and(|known| known.block == Some(block))
        {
            let forwarded = Box::pin(self.forwarder.forward_as_asked(asked, arrival)).await?;
            // With any other answer, an endpoint has the data after all.
            if forwarded.answered.answer.is_null() {
                return Ok(FetchResult::Answer(forwarded.answered));
            }
        }
        let before = ViewBefore::new(&self.view, asked.query);
        let Shared { value, joined, sent } = match self.fetcher.fetch(fetch, arrival).await {
            Ok(shared) => shared,
            // The fetch asks for more than the client did, so a forwarded call may succeed where it failed.
            Err(error @ (UpstreamError::TooLarge { .. } | UpstreamError::Status { .. }))
                if !asked.takes(fetch) =>
            {
                if let (UpstreamError::TooLarge { .. }, Part::Block) = (error, fetch.part) {
                    self.store.note_uncacheable(fetch);
                }
                return self.forward_instead(asked, arrival).await;
            }
            Err(error) => return Err(CallError::Upstream(error)),
        };
        let known = match &value {
            Fetched::Short(_) => self.existing.known(asked, fetch),
            Fetched::Other(answer) if answer.is_null() => self.existing.known(asked, fetch),
            Fetched::Other(answer) if is_empty_list(answer) => match self.existing.known(asked, fetch) {
                Some(known) => self.lists_some(known).await.then_some(known),
                None => None,
            },
            _ => None,
        };
        let (value, joined, sent) = match known {
            None => (value, joined, sent),
            Some(known) => match Box::pin(self.insist(asked, fetch, known)).await? {
                Some(Shared { value, joined, sent }) => (value, joined, sent),
                None => return Ok(FetchResult::Changed),
            },
        };
        if let Some((number, hash)) = misnumbered(asked.query, &value) {
            // The view has this block at a wrong number. Drop it from the view, and refresh.
            self.view.learn(|tracker, _| tracker.remove(number, hash));
            return Ok(FetchResult::Denied);
        }
        let place = match &value {
            Fetched::Content(content) => content.named_home(),
            Fetched::Short(_) | Fetched::Other(_) => None,
        };
        let is_error = matches!(value, Fetched::Other(Answer::Error(_)));
        if !is_error && self.is_overtaken(asked, place, before, sent) {
            return Ok(FetchResult::Changed);
        }
        let outcome = |kept| Outcome::of_fetch(joined, kept);
        let content = match value {
            Fetched::Content(content) => content,
            Fetched::Short(answer) => {
                // On a development chain, pass on the node's answer.
                let is_development = self.view.tracker().rules().development;
                let answered = Answered::new(answer, outcome(false));
                return Ok(if is_development { FetchResult::Answer(answered) } else { FetchResult::Denied });
            }
            Fetched::Other(answer) => {
                if self.denies_block(asked, fetch, &answer) {
                    if let Some(number) = asked.query.number().filter(|_| !is_block_by_hash(fetch)) {
                        self.check_place(number).await;
                    }
                    return Ok(FetchResult::Denied);
                }
                let is_content = answer.is_content();
                // Also forward a count of a block that does not exist: nodes answer it differently.
                if !asked.takes(fetch)
                    && (is_content || asked.query.is_count() || matches!(answer, Answer::Error(_)))
                {
                    if fetch.part == Part::Block {
                        self.store.note_uncacheable(fetch);
                    }
                    // The answer cannot be sliced, or answers another question: let the node answer the client's own
                    // call.
                    return self.forward_instead(asked, arrival).await;
                }
                if is_content && self.prover.demands_proof(asked.query) && self.prover.rejects() {
                    return Err(CallError::Unproved);
                }
                return Ok(FetchResult::Answer(Answered::new(answer, outcome(false))));
            }
        };
        let answer = if self.prover.demands_proof(asked.query) {
            Box::pin(self.prove_fetched(asked, fetch, &content, sent, arrival)).await?
        } else {
            // Wait only briefly: the answer is here, and the prefetch goes on after the timeout.
            let _ = timeout(PREFETCH_PATIENCE, self.prefetcher.fetch_rest(&content, arrival)).await;
            slice(asked.query, &content)
        };
        // The proof or the prefetch may have taken a while.
        if self.is_overtaken(asked, place, before, sent) {
            return Ok(FetchResult::Changed);
        }
        let outcome = match self.loader.tier_of(&content) {
            Some(tier) => Outcome::Restored(tier),
            None => outcome(self.fetcher.is_kept(&content)),
        };
        if let Some(place) = place.filter(|_| !asked.query.names_hash()) {
            self.view.tell(place);
        }
        match answer {
            Some(bytes) => Ok(FetchResult::Answer(Answered::new(Answer::Result(bytes), outcome))),
            None => self.forward_instead(asked, arrival).await,
        }
    }

    async fn forward_instead(&self, asked: &QueryCall, arrival: Stamp) -> Result<FetchResult, CallError> {
        let forwarded = Box::pin(self.forwarder.forward_as_asked(asked, arrival)).await?;
        if self.forwarder.is_excluded(asked, &forwarded).await {
            return Ok(FetchResult::Changed);
        }
        Ok(FetchResult::Answer(forwarded.answered))
    }

    /// Returns whether the chain changed under an answer while the call waited. Never for a query by block hash, which
    /// may name an orphan.
    fn is_overtaken(&self, asked: &QueryCall, place: Option<Home>, before: ViewBefore, sent: Stamp) -> bool {
        !asked.query.names_hash()
            && match place {
                Some(place) => before.has_changed(&self.view, place, sent),
                None => before.has_changed_at(&self.view, asked.query, sent),
            }
    }

    /// Returns whether a block has transactions, and therefore receipts.
    async fn lists_some(&self, known: Known) -> bool {
        let Some(block) = known.block else { return false };
        if self.existing.transactions_in(block).is_none() {
            let block = Query::new(Part::BlockWithHashes, block);
            let _ = self.fetcher.fetch(block, self.view.clock().now()).await;
        }
        self.existing.transactions_in(block).is_some_and(|count| count > 0)
    }

    /// Returns whether an answer denies a block that the view named.
    fn denies_block(&self, asked: &QueryCall, fetch: Query, answer: &Answer) -> bool {
        let At::Hash(block) = fetch.at else { return false };
        // An index past the last transaction is absent from every block.
        let count = fetch.index.and_then(|_| self.existing.transactions_in(block));
        let is_of_block = fetch.index.zip(count).is_none_or(|(index, count)| index.0 < count);
        let denies = is_of_block && !asked.query.names_hash() && denies(answer);
        let number = asked.query.number().or_else(|| Some(self.view.cached_link(block)?.number));
        if let Some(number) = number.filter(|_| denies && is_block_by_hash(fetch)) {
            self.view.learn(|tracker, _| tracker.remove_denied(number, block));
        }
        denies
    }

    /// Asks again, at any endpoint, for data that must exist but that the upstream lacks. Returns `None` if the block
    /// turns out to have left the chain, and if the data is gone: then the node answers the next fetch.
    async fn insist(
        &self,
        asked: &QueryCall,
        fetch: Query,
        known: Known,
    ) -> Result<Option<Shared<Fetched>>, CallError> {
        let view = &self.view;
        let arrival = asked.request.packet().arrival(view.clock());
        let is_known = || view.tracker().canonical_at(known.number, arrival) == known.block;
        if let Some(block) = known.block.filter(|_| is_block_by_hash(fetch))
            && view.learn(|tracker, _| tracker.remove_denied(known.number, block))
        {
            return Ok(None);
        }
        let mut denials = 0;
        for pause in INSIST {
            // If this refresh fails, the next one may succeed.
            let _ = self.head.refresh(Tag::Latest, view.clock().now()).await;
            if !is_known() {
                return Ok(None);
            }
            time::sleep(pause).await;
            match self.fetcher.fetch_anywhere(fetch).await {
                Ok(Shared { value: Fetched::Other(answer), .. })
                    if answer.is_null() || is_empty_list(&answer) =>
                {
                    denials += 1;
                }
                Ok(Shared { value: Fetched::Short(_), .. }) | Err(_) => {}
                Ok(shared) => return Ok(Some(shared)),
            }
        }
        self.check_place(known.number).await;
        if !is_known() {
            return Ok(None);
        }
        // A failed request says nothing about the data.
        let is_gone = |block: &BlockHash| denials == INSIST.len() && self.is_gone(asked, *block);
        let gone = known.block.filter(is_gone);
        self.state.uncacheable.note_lacking(fetch, gone);
        if gone.is_some() {
            return Ok(None);
        }
        debug!(what = %fetch, method = asked.request.call().method.as_str(), "upstream lacks a known block, transaction or receipt; answering -32010");
        Err(CallError::Lacking { what: fetch })
    }

    /// Returns whether no endpoint is likely to have this part of a known block again: the block is final and old, and no
    /// endpoint has shown the part. Nothing proves an absence, so this is never so where clients get proved data only.
    fn is_gone(&self, asked: &QueryCall, block: BlockHash) -> bool {
        let is_old = |link| self.view.tracker().is_old_final_block(link, self.view.clock().now());
        !self.prover.is_strict()
            && self.view.cached_link(block).is_some_and(is_old)
            && !self.state.uncacheable.was_shown(asked.query.part, block)
    }

    /// Fetches the block at a number, so that the view learns whether it has changed. Missing receipts alone do not
    /// show that, because the node may have pruned them.
    async fn check_place(&self, number: BlockNumber) {
        let block = Query::new(Part::BlockWithHashes, number);
        let _ = self.fetcher.fetch(block, self.view.clock().now()).await;
    }

    /// Returns the proved answer. To prove single content, the prover fetches its block. If the block contradicts the
    /// content, fetches the content again, now with the block in the cache: if the endpoint repeats the wrong answer,
    /// the check rejects it, and the upstream pool asks another endpoint.
    async fn prove_fetched(
        &self,
        asked: &QueryCall,
        fetch: Query,
        content: &Content,
        sent: Stamp,
        arrival: Stamp,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.prover.proved(asked.query, content, arrival, canonical(fetch, sent)).await;
        if !content.is_single() || !matches!(proved, Ok(None)) {
            return self.prover.judge(asked.query, content, proved);
        }
        let again = self.fetcher.fetch(fetch, self.view.clock().now()).await;
        let Shared { value, sent, .. } = again.map_err(CallError::Upstream)?;
        match value {
            Fetched::Content(content) => {
                self.prover.prove(asked.query, &content, arrival, canonical(fetch, sent)).await
            }
            Fetched::Short(answer) | Fetched::Other(answer)
                if self.prover.rejects() && answer.is_content() =>
            {
                Err(CallError::Unproved)
            }
            Fetched::Short(_) | Fetched::Other(_) => Ok(None),
        }
    }
}

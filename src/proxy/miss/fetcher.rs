//! Fetches content, verifies it, and stores it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{existing::KnownToExist, store::Store};
use crate::{
    chain::Stamp,
    eth::{At, Block, BlockNumber, LogsCall, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::single_flight::{Coalesce, Shared},
        head::{Canon, SharedView, StoreHead, known::KnownAt},
        lookup::CacheState,
        parts::ProxyParts,
    },
    upstream::{AcceptedAnswer, Call, Requirements, Upstream, UpstreamError},
    verify::{Check, Content, Demand, Kind, Level, Verdict, Verified, Verifier},
};

/// Result of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    Content(Content),
    /// Fewer receipts than their block has transactions.
    Short(Answer),
    /// `null`, an error of the node, or an answer that may not enter the cache.
    Other(Answer),
}

/// A query, and whether any endpoint may answer it.
type Flight = (Query, AnyEndpoint);
type AnyEndpoint = bool;

/// Fetches content, with one upstream call for equal fetches.
#[derive(Debug)]
pub(crate) struct Fetcher {
    canon: Canon,
    existing: KnownToExist,
    store: Store,
    upstream: Upstream,
    verifier: Verifier,
    flights: Coalesce<Flight, Result<Fetched, UpstreamError>>,
    searches: Coalesce<LogSearch, Result<FoundByNode, UpstreamError>>,
}

/// A search for logs, and the number of its last block, if known.
type LogSearch = (Arc<LogsCall>, Option<BlockNumber>);

/// The answer of a node that searched for logs.
#[derive(Clone, Debug)]
pub(crate) struct FoundByNode {
    pub(crate) answer: Answer,
    /// Whether the answer passed the checks. A wrong one is passed on unless `verify.on_mismatch` is `reject`.
    pub(crate) is_checked: bool,
    /// Time at which the answer had arrived.
    pub(crate) at: Stamp,
}

/// Depth below the head at which all nodes have the same blocks.
const SETTLED: u64 = 64;

/// Returns whether this number is so far below the head that all branches have the same block there.
pub(super) fn is_settled(number: BlockNumber, head: Option<BlockNumber>) -> bool {
    head.is_some_and(|head| number.0.saturating_add(SETTLED) <= head.0)
}

/// Returns the requirements of a fetch. The primary endpoint serves content that depends on the canonical branch; any
/// endpoint serves content by block hash, and final content. If an endpoint lacks content that must exist (by block
/// hash, final, or far enough below the head), the upstream pool asks another one. Content above the head may not
/// exist yet, so `null` is an answer.
fn need(query: Query, finalized: Option<BlockNumber>, head: Option<BlockNumber>) -> Requirements {
    let block = query.number();
    let anybody = query.names_hash() || block.is_some_and(|block| Some(block) <= finalized);
    let block = block.filter(|block| Some(*block) <= head);
    // Closer to the head, another endpoint may be on another branch, and its block there is no better than `null`.
    let must_be = anybody || block.is_some_and(|block| is_settled(block, head));
    // Only an endpoint that has reached the head of the view can say that a transaction does not exist yet.
    let head = head.filter(|_| matches!(query.at, At::Tx(_)));
    Requirements { block, head, primary: !anybody, retry_null: must_be, ..Requirements::default() }
}

/// Returns the send time of a fetch if its answer says which block is canonical; answers by block hash do not.
pub(super) fn canonical(query: Query, sent: Stamp) -> Option<Stamp> {
    (!query.names_hash()).then_some(sent)
}

// === impl Fetcher ===

impl Fetcher {
    pub(crate) fn new(canon: Canon, store: Store, existing: KnownToExist, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, verifier, .. } = parts.clone();
        let (flights, searches) = (Coalesce::default(), Coalesce::default());
        Self { canon, existing, store, upstream, verifier, flights, searches }
    }

    pub(crate) fn canon(&self) -> &Canon {
        &self.canon
    }

    pub(crate) fn view(&self) -> &Arc<SharedView> {
        self.canon.view()
    }

    pub(crate) fn state(&self) -> &Arc<CacheState> {
        self.existing.state()
    }

    pub(super) fn existing(&self) -> &KnownToExist {
        &self.existing
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Fetches content, or joins a fetch that is recent enough for this arrival.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
    ) -> Result<Shared<Fetched>, UpstreamError> {
        let shared = self.join_or_start(query, arrival, query.names_hash()).await?;
        // Content by hash never changes, but its absence can: an older fetch may have found none.
        let staleness = self.view().tracker().rules().max_staleness;
        let aged = query.names_hash() && shared.joined && !shared.sent.serves(arrival, staleness);
        if aged && matches!(shared.value, Fetched::Other(_)) {
            return self.join_or_start(query, arrival, false).await;
        }
        Ok(shared)
    }

    async fn join_or_start(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
        whenever_sent: bool,
    ) -> Result<Shared<Fetched>, UpstreamError> {
        let may_join = |sent| {
            if whenever_sent {
                !self.view().is_before_write(sent)
            } else {
                self.view().may_join(sent, arrival)
            }
        };
        let shared = self.share((query, false), may_join).await?;
        // `Busy` concerns the caller that started the fetch; this one may still get a slot.
        let shared = match shared {
            Shared { value: Err(UpstreamError::Busy), joined: true, .. } => {
                self.share((query, false), |_| false).await?
            }
            shared => shared,
        };
        Ok(Shared { value: shared.value?, joined: shared.joined, sent: shared.sent })
    }

    /// Fetches known data again from any endpoint, or joins such a fetch.
    pub(super) async fn fetch_anywhere(
        self: &Arc<Self>,
        query: Query,
    ) -> Result<Shared<Fetched>, UpstreamError> {
        let arrival = self.view().clock().now();
        let may_join = |sent| self.view().may_join(sent, arrival);
        let Shared { value, joined, sent } = self.share((query, true), may_join).await?;
        Ok(Shared { value: value?, joined, sent })
    }

    /// Fetches the block at a number, so that the view learns whether it has changed. Missing data alone does not show that,
    /// because the node may have pruned it.
    pub(super) async fn check_place(self: &Arc<Self>, number: BlockNumber) {
        let block = Query::new(Part::BlockWithHashes, number);
        let _ = self.fetch(block, self.view().clock().now()).await;
    }

    async fn share(
        self: &Arc<Self>,
        flight: Flight,
        may_join: impl Fn(Stamp) -> bool,
    ) -> Result<Shared<Result<Fetched, UpstreamError>>, UpstreamError> {
        let now = self.view().clock().now();
        let this = self.clone();
        let shared = self.flights.run(flight, now, may_join, move || this.run(flight, now)).await;
        shared.map_err(|_| UpstreamError::Abandoned)
    }

    /// Returns whether fetched content is cached now.
    pub(super) fn is_kept(&self, content: &Content) -> bool {
        content.named_home().is_some() && self.state().cache.serves(content)
    }

    /// Returns the check for the answer to a request sent at `sent`.
    pub(super) fn check(&self, query: Query, sent: Stamp) -> Check {
        Check::new(self.verifier.clone(), query, Arc::new(self.known_at(sent)))
    }

    fn known_at(&self, sent: Stamp) -> KnownAt {
        KnownAt::new(self.state().cache.clone(), self.view().clone(), sent)
    }

    /// Like [`find_logs`](Self::find_logs), or joins an equal search that is recent enough for this arrival.
    pub(crate) async fn share_logs(
        self: &Arc<Self>,
        call: LogsCall,
        last: Option<BlockNumber>,
        arrival: Stamp,
    ) -> Result<FoundByNode, UpstreamError> {
        let call = Arc::new(call);
        let is_final = last.is_some() && last <= self.finalized();
        let may_join = |sent| match is_final {
            true => !self.view().is_before_write(sent),
            false => self.view().may_join(sent, arrival),
        };
        let (this, search) = (self.clone(), call.clone());
        let find = move || async move { this.find_logs(&search, last).await };
        let now = self.view().clock().now();
        let shared = self.searches.run((call.clone(), last), now, may_join, find).await;
        match shared.map_err(|_| UpstreamError::Abandoned)? {
            // `Busy` concerns the caller that started the search; this one may still get a slot.
            Shared { value: Err(UpstreamError::Busy), joined: true, .. } => self.find_logs(&call, last).await,
            shared => shared.value,
        }
    }

    /// Asks an endpoint for logs, and has them checked. `last` is the number of the last block, if known. The primary
    /// answers for blocks that may not be final, since another endpoint may be on another branch or behind.
    pub(crate) async fn find_logs(
        &self,
        call: &LogsCall,
        last: Option<BlockNumber>,
    ) -> Result<FoundByNode, UpstreamError> {
        let primary = last.is_none_or(|last| Some(last) > self.finalized());
        let need = Requirements { block: last, primary, ..Requirements::default() };
        let known = Arc::new(self.known_at(self.view().clock().now()));
        let check = Check::of_logs(self.verifier.clone(), call.clone(), known);
        let call = Call::new(call.method(), call.params()).with_requirements(need);
        let (answer, is_checked) = match self.upstream.call(call.with_check(check)).await {
            Err(UpstreamError::Rejected(mismatch)) if !self.verifier.rejects() => (mismatch.answer, false),
            answered => (answered?.answer, true),
        };
        Ok(FoundByNode { answer, is_checked, at: self.view().clock().now() })
    }

    fn finalized(&self) -> Option<BlockNumber> {
        self.view().tracker().finalized().map(|(number, _)| number)
    }

    /// Sends the call and has the answer checked. Passes on a wrong answer unless `verify.on_mismatch` is `reject`.
    pub(super) async fn ask(&self, call: Call, check: Check) -> Result<AcceptedAnswer, UpstreamError> {
        match self.upstream.call(call.with_check(check)).await {
            Err(UpstreamError::Rejected(mismatch)) if !self.verifier.rejects() => {
                Ok(AcceptedAnswer::unverified(mismatch.answer))
            }
            answered => answered,
        }
    }

    async fn run(self: Arc<Self>, (query, anybody): Flight, sent: Stamp) -> Result<Fetched, UpstreamError> {
        let (head, generation) = (self.view().tracker().head(), self.view().generation());
        let check = self.check(query, sent);
        let mut need = need(query, self.finalized(), head.map(|head| head.number));
        if anybody {
            need = Requirements { primary: false, retry_null: true, ..need };
        }
        let asked = self.ask(Call::of(query).with_requirements(need), check).await;
        if matches!(asked, Err(UpstreamError::TooLarge { .. })) {
            self.store.note_uncacheable(query);
        }
        let asked = asked?;
        let AcceptedAnswer { answer, verdict, by } = asked;
        match &answer {
            Answer::Error(_) if query.part == Part::Receipts => {
                self.state().node.note_receipts_error(&answer);
            }
            answer if answer.is_null() => {
                // The `null` counts under this head only if this endpoint has reached it; another endpoint may have
                // shown the head.
                if let (Part::Receipt, At::Tx(transaction), Some(head)) = (query.part, query.at, head)
                    && by.is_some_and(|by| self.upstream.has_reached(by, head.number))
                    // Data that is known to exist is not absent.
                    && self.existing.place_of(transaction, sent).is_none()
                {
                    self.state().absences.note(transaction, head.hash, sent, &self.view().tracker());
                }
            }
            Answer::Result(_) | Answer::Error(_) => {}
        }
        // An answer by block hash does not say which block is canonical.
        let canonical = canonical(query, sent);
        let is_content = answer.is_content();
        let is_uncacheable = match &verdict {
            Some(Verdict::Passed(_) | Verdict::Short) => false,
            // An overloaded verifier says nothing about the answer.
            Some(Verdict::Overdue(overdue)) => !overdue.is_overload(),
            Some(Verdict::Unproved(..) | Verdict::Wrong(_) | Verdict::Checked) | None => true,
        };
        if is_content && is_uncacheable {
            self.store.note_uncacheable(query);
        }
        Ok(match verdict {
            // Not stored: single transactions are keyed by their hash, and this query names none.
            Some(Verdict::Passed(content)) if query.index.is_some() => {
                self.canon.learn(&content, canonical).await;
                Fetched::Content(content)
            }
            Some(Verdict::Passed(content)) => {
                let content = self.store_if_canonical(content, canonical).await;
                self.view().clear_since(generation);
                Fetched::Content(content)
            }
            Some(Verdict::Unproved(_, Some(content))) => {
                self.place_unproved(&content, canonical).await;
                Fetched::Content(content)
            }
            Some(Verdict::Short) => Fetched::Short(answer),
            Some(Verdict::Unproved(_, None) | Verdict::Wrong(_) | Verdict::Overdue(_) | Verdict::Checked)
            | None => Fetched::Other(answer),
        })
    }

    /// Refreshes a tag, and stores the full block if that arrives: a client that polls full blocks causes one upstream
    /// call per poll, and a client that reads the full block after each new head causes one per block.
    pub(crate) async fn refresh_for(
        self: &Arc<Self>,
        part: Part,
        tag: Tag,
        arrival: Stamp,
    ) -> Result<(), UpstreamError> {
        self.canon.head().refresh_for(part, tag, arrival, self.clone()).await
    }

    // ## Storing

    /// Stores content if the view agrees with its position. `sent` is set if the answer says which block is canonical;
    /// answers by block hash do not.
    pub(super) async fn store_if_canonical(&self, content: Content, sent: Option<Stamp>) -> Content {
        self.state().uncacheable.note_shown(&content);
        // Where proof is demanded, ignore unproved content and the position that it names.
        let kind = Kind::of(content.part());
        if content.level() != Level::Proved && self.verifier.demands_proof(kind) {
            if self.has_cached_header(&content) {
                self.canon.learn(&content, sent).await;
            }
            return content;
        }
        if self.has_wrong_siblings(&content) || !self.canon.learn(&content, sent).await {
            return content;
        }
        if self.verifier.demands(kind) == Demand::Structural {
            self.state().derivations.compare(&self.state().cache, &content);
        }
        self.store.insert(content).await
    }

    /// Returns whether this is a block with hashes, and the cached block has the same header: hashes alone prove nothing.
    fn has_cached_header(&self, content: &Content) -> bool {
        let Content::BlockWithHashes(with_hashes) = content else { return false };
        let cached = self.state().cache.peek_block(with_hashes.hash());
        cached.is_some_and(|block| block.header() == with_hashes.header())
    }

    /// Returns whether this is a single receipt of a block whose receipt list has just turned out to be wrong.
    fn has_wrong_siblings(&self, content: &Content) -> bool {
        let Content::Receipt(receipt) = content else { return false };
        self.state().uncacheable.contains(Query::new(Part::Receipts, receipt.place().block))
    }

    /// Tells the view the position of unproved content, unless headers of this chain are known to be provable.
    async fn place_unproved(&self, content: &Content, sent: Option<Stamp>) {
        self.state().uncacheable.note_shown(content);
        if sent.is_some() && !self.verifier.is_sure() {
            self.canon.learn(content, sent).await;
        }
    }
}

impl StoreHead for Fetcher {
    fn store_head(self: Arc<Self>, block: Arc<Verified<Block>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let cached = self.state().cache.peek_block(block.hash());
            if cached.is_none_or(|cached| cached.level() < block.level()) {
                // The answer to a tag does not say which block is canonical at a number; the refresh does.
                self.store_if_canonical(Content::Block(block), None).await;
            }
        })
    }
}

//! Fetches content, and has it checked and kept.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

use crate::{
    cache::{Cache, Location},
    chain::{Link, Stamp},
    eth::{At, BlockHash, BlockNumber, Home, Part, Query, TxHash},
    jsonrpc::Answer,
    proxy::{
        head::{View, known::KnownAt},
        lookup::{absence::Absences, derive::Derivations},
        metrics::Metrics,
        miss::{
            load::Restorer,
            single_flight::{Coalesce, Landed},
        },
        stack::ProxyParts,
    },
    upstream::{AnsweredBy, Call, Identity, Requirements, Upstream, UpstreamError},
    verify::{Check, Content, Verdict, Verifier},
};

/// What a node says of a method it does not have.
const METHOD_NOT_FOUND: i64 = -32601;

/// What could not be kept is tried again after this.
const VAIN: Duration = Duration::from_secs(60);

/// So many of them are remembered.
const MOST_VAIN: u64 = 1 << 12;

/// What a fetch brought.
#[derive(Clone, Debug)]
pub(in crate::proxy) enum Fetched {
    Content(Content),
    /// Fewer receipts than their block has transactions.
    Short(Answer),
    /// `null`, an error of the node's, or what may not be kept: handed on as it is.
    Other(Answer),
}

/// A fetch, and whether any endpoint will do for it.
type Flight = (Query, Anybody);
type Anybody = bool;

/// Time for which a failed question about known data is not repeated.
const LACKING: Duration = Duration::from_secs(1);

/// So many of the newest blocks are searched for a transaction that the upstream does not have: those that a client was told of
/// a moment ago.
const NEWEST: usize = 16;

/// The fetching side of the proxy.
#[derive(Debug)]
pub(in crate::proxy) struct Fetcher {
    pub(in crate::proxy) view: Arc<View>,
    pub(in crate::proxy) cache: Cache,
    pub(in crate::proxy) upstream: Upstream,
    pub(in crate::proxy) identity: Identity,
    pub(in crate::proxy) verifier: Verifier,
    pub(in crate::proxy) metrics: Metrics,
    pub(in crate::proxy) derivations: Derivations,
    flights: Coalesce<Flight, Result<Fetched, UpstreamError>>,
    /// What the upstream did not have, though it is known to exist, and when it was last asked.
    lacking: moka::sync::Cache<Query, Instant>,
    /// The node does not know `eth_getBlockReceipts`.
    lacks_block_receipts: AtomicBool,
    pub(in crate::proxy) absences: Absences,
    pub(in crate::proxy) restorer: Restorer,
    /// What could not be kept, or was fetched once more already: not to be tried with every answer.
    vain: moka::sync::Cache<Query, ()>,
}

/// So far below the head all nodes have the same, whichever of the newest blocks they have heard of.
const SETTLED: u64 = 64;

/// Is this number far enough below the head to be the same on every branch?
pub(in crate::proxy) fn is_settled(number: BlockNumber, head: Option<BlockNumber>) -> bool {
    head.is_some_and(|head| number.0.saturating_add(SETTLED) <= head.0)
}

/// Returns the need of a fetch. Content that depends on which branch is canonical is asked of the endpoint whose heads are
/// followed; content by its hash, and final content, of any. Where one lacks content that must be there, be it by its hash or
/// at or below the head, another is asked. Only content that is there can be lacking: the next block is not, however often it
/// is asked for.
fn need(query: Query, finalized: Option<BlockNumber>, head: Option<BlockNumber>) -> Requirements {
    let block = query.number();
    let anybody = query.names_hash() || block.is_some_and(|block| Some(block) <= finalized);
    let block = block.filter(|block| Some(*block) <= head);
    // Nearer to the head another may be on another branch, and what it has there is no better than nothing.
    let must_be = anybody || block.is_some_and(|block| is_settled(block, head));
    // That there is none yet, only one can say who is as far as the view.
    let head = head.filter(|_| matches!(query.at, At::Tx(_)));
    Requirements { block, head, primary: !anybody, retry_null: must_be, ..Requirements::default() }
}

/// Returns when a fetch was sent, where its answer says what is canonical: asked for by block hash, it does not.
pub(in crate::proxy) fn canonical(query: Query, sent: Stamp) -> Option<Stamp> {
    (!query.names_hash()).then_some(sent)
}

// === impl Fetcher ===

impl Fetcher {
    pub(in crate::proxy) fn new(view: Arc<View>, parts: &ProxyParts, chain_id: Option<u64>) -> Self {
        let ProxyParts { upstream, cache, tiers, verifier, metrics, .. } = parts.clone();
        Self {
            view,
            cache,
            identity: upstream.identity(),
            upstream,
            verifier,
            metrics,
            derivations: Derivations::default(),
            flights: Coalesce::default(),
            lacking: moka::sync::Cache::new(MOST_VAIN),
            lacks_block_receipts: AtomicBool::new(false),
            absences: Absences::new(),
            restorer: Restorer::new(tiers, chain_id),
            vain: moka::sync::Cache::builder().max_capacity(MOST_VAIN).time_to_live(VAIN).build(),
        }
    }

    /// Fetches, or joins somebody who does and has begun recently enough for this arrival.
    pub(in crate::proxy) async fn fetch(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
    ) -> Result<Landed<Fetched>, UpstreamError> {
        let landed = self.fly(query, arrival, query.names_hash()).await?;
        // Content does not depend on when it was sent; that there is none does.
        let staleness = self.view.tracker().rules().max_staleness;
        let aged = query.names_hash() && landed.joined && !landed.sent.serves(arrival, staleness);
        if aged && matches!(landed.value, Fetched::Other(_)) {
            return self.fly(query, arrival, false).await;
        }
        Ok(landed)
    }

    async fn fly(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
        whenever_sent: bool,
    ) -> Result<Landed<Fetched>, UpstreamError> {
        let may_join = |sent| {
            if whenever_sent { !self.view.is_outwritten(sent) } else { self.view.may_join(sent, arrival) }
        };
        let landed = self.take_off((query, false), may_join).await?;
        // Whoever began it may have had its share of what is scarce; this one need not.
        let landed = match landed {
            Landed { value: Err(UpstreamError::Busy), joined: true, .. } => {
                self.take_off((query, false), |_| false).await?
            }
            landed => landed,
        };
        Ok(Landed { value: landed.value?, joined: landed.joined, sent: landed.sent })
    }

    /// Fetches known data again from any endpoint, or joins such a fetch.
    pub(in crate::proxy) async fn fetch_anywhere(
        self: &Arc<Self>,
        query: Query,
    ) -> Result<Landed<Fetched>, UpstreamError> {
        let arrival = self.view.clock().now();
        let may_join = |sent| self.view.may_join(sent, arrival);
        let Landed { value, joined, sent } = self.take_off((query, true), may_join).await?;
        Ok(Landed { value: value?, joined, sent })
    }

    /// Notes that the upstream lacks known data.
    pub(in crate::proxy) fn note_lacking(&self, query: Query) {
        self.lacking.insert(query, Instant::now());
    }

    /// Returns whether the upstream did not have this a moment ago.
    pub(in crate::proxy) fn is_lacking(&self, query: Query) -> bool {
        self.lacking.get(&query).is_some_and(|since| since.elapsed() < LACKING)
    }

    async fn take_off(
        self: &Arc<Self>,
        flight: Flight,
        may_join: impl Fn(Stamp) -> bool,
    ) -> Result<Landed<Result<Fetched, UpstreamError>>, UpstreamError> {
        let now = self.view.clock().now();
        let this = self.clone();
        let landed = self.flights.run(flight, now, may_join, move || this.carry_out(flight, now)).await;
        landed.map_err(|_| UpstreamError::Abandoned)
    }

    /// Fetches once more what is in memory; tells whether it came. If it does not, because the node has
    /// forgotten it or fails, that is not tried again for a while.
    pub(in crate::proxy) async fn renew(self: &Arc<Self>, query: Query, arrival: Stamp) -> bool {
        if self.vain.contains_key(&query) {
            return false;
        }
        let fetched = self.fetch(query, arrival).await;
        // Once, whatever came of it: what came and could not be kept would be fetched with every answer.
        self.vain.insert(query, ());
        fetched.is_ok_and(|landed| !matches!(landed.value, Fetched::Other(_)))
    }

    /// What was fetched so cannot be kept. Nor can receipts of the same block that came alone: they proved
    /// nothing, and all of them together have just been found wrong.
    pub(in crate::proxy) fn found_vain(&self, query: Query) {
        self.vain.insert(query, ());
        let block = match (query.part, query.at) {
            (Part::Receipts, At::Hash(block)) => Some(block),
            (Part::Receipts, At::Number(number)) => {
                self.view.tracker().lookup(number, self.view.clock().now()).hash()
            }
            _ => None,
        };
        if let Some(block) = block.and_then(|block| self.cache.block(block)) {
            self.cache.remove_lone_receipts(&block);
        }
    }

    /// These may be tried again, whatever came of them.
    pub(in crate::proxy) fn not_vain(&self, queries: &[Query]) {
        for query in queries {
            self.vain.invalidate(query);
        }
    }

    /// Was this fetched a while ago, and could not be kept?
    pub(in crate::proxy) fn is_vain(&self, query: Query) -> bool {
        self.vain.contains_key(&query)
    }

    /// Returns whether content that was fetched is cached now.
    pub(in crate::proxy) fn is_kept(&self, content: &Content) -> bool {
        content.named_home().is_some() && self.cache.serves(content)
    }

    /// The block that a transaction is in, if a cached block that is canonical in the view lists it.
    pub(in crate::proxy) fn known_home(
        &self,
        transaction: TxHash,
        arrival: Stamp,
    ) -> Option<(BlockNumber, BlockHash)> {
        let Self { cache, view, .. } = self;
        let listed = cache.locations(transaction).into_iter().find(|Location { home, index }| {
            let in_block = || cache.block(home.block).and_then(|block| block.transaction_hash(*index));
            let in_receipts = || cache.receipts(home.block).and_then(|all| all.transaction_hash(*index));
            in_block().or_else(in_receipts) == Some(transaction)
                && view.tracker().canonical_at(home.number, arrival) == Some(home.block)
        });
        if let Some(Location { home: Home { block, number }, .. }) = listed {
            return Some((number, block));
        }
        // Heads are often known by the hashes of their transactions only.
        let newest: Vec<_> = view.tracker().newest().take(NEWEST).collect();
        let lists = |link: &&Link| cache.thin(link.hash).is_some_and(|thin| thin.lists(transaction));
        newest.iter().find(lists).map(|link| (link.number, link.hash))
    }

    /// How many transactions a cached block has, in whatever form it is cached.
    pub(in crate::proxy) fn transactions_in(&self, block: BlockHash) -> Option<u64> {
        let whole = self.cache.block(block).map(|block| block.len() as u64);
        whole.or_else(|| self.cache.thin(block).map(|thin| thin.len() as u64))
    }

    /// Can a block's receipts be had at once?
    pub(in crate::proxy) fn has_block_receipts(&self) -> bool {
        !self.lacks_block_receipts.load(Relaxed)
    }

    /// The check for an answer that is asked for now.
    pub(in crate::proxy) fn check(&self, query: Query, sent: Stamp) -> Check {
        let known = KnownAt::new(self.cache.clone(), self.view.clone(), sent);
        self.verifier.check_for(query, Arc::new(known))
    }

    /// Asks, and has the answer checked. An answer that cannot be right is one all the same, where the
    /// operator says so.
    pub(in crate::proxy) async fn ask(&self, call: Call, check: &Check) -> Result<Answer, UpstreamError> {
        match self.upstream.call(call.with_check(check.clone())).await {
            Err(UpstreamError::Rejected(mismatch)) if !self.verifier.rejects() => Ok(mismatch.answer),
            answered => answered,
        }
    }

    async fn carry_out(
        self: Arc<Self>,
        (query, anybody): Flight,
        sent: Stamp,
    ) -> Result<Fetched, UpstreamError> {
        let (head, generation) = (self.view.tracker().head(), self.view.generation());
        let check = self.check(query, sent);
        let finalized = self.view.tracker().finalized().map(|(number, _)| number);
        let mut need = need(query, finalized, head.map(|head| head.number));
        if anybody {
            need = Requirements { primary: false, retry_null: true, ..need };
        }
        let by = AnsweredBy::default();
        let answer = self.ask(Call::of(query).with_requirements(need).with_answered_by(&by), &check).await?;
        match &answer {
            Answer::Error(error) if query.part == Part::Receipts => {
                self.note_lack(error);
            }
            answer if answer.is_null() => {
                // Under this head only if whoever said it has got as far: the one that showed it may have failed since.
                if let (Part::Receipt, At::Tx(transaction), Some(head)) = (query.part, query.at, head)
                    && by.get().is_some_and(|by| self.upstream.has_reached(by, head.number))
                    // What is known to exist is not absent.
                    && self.known_home(transaction, sent).is_none()
                {
                    self.absences.note(transaction, head.hash, sent, &self.view.tracker());
                }
            }
            Answer::Result(_) | Answer::Error(_) => {}
        }
        if self.view.generation() != generation {
            // Of a chain that is no more: whoever asked is told, and nobody else.
            return Ok(Fetched::Other(answer));
        }
        // By hash, an answer does not say what is canonical.
        let canonical = canonical(query, sent);
        let verdict = check.verdict();
        let is_content = answer.is_content();
        let is_vain = match &verdict {
            Some(Verdict::Passed(_) | Verdict::Short) => false,
            // Nothing is known against the answer.
            Some(Verdict::Overdue(overdue)) => !overdue.is_overload(),
            Some(Verdict::Unproved(..) | Verdict::Wrong(_)) | None => true,
        };
        if is_content && is_vain {
            self.found_vain(query);
        }
        Ok(match verdict {
            Some(Verdict::Passed(content)) => Fetched::Content(self.keep(content, canonical).await),
            Some(Verdict::Unproved(_, Some(content))) => {
                self.read(&content, canonical).await;
                Fetched::Content(content)
            }
            Some(Verdict::Short) => Fetched::Short(answer),
            Some(Verdict::Unproved(_, None) | Verdict::Wrong(_) | Verdict::Overdue(_)) | None => {
                Fetched::Other(answer)
            }
        })
    }

    fn note_lack(&self, error: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Coded {
            code: i64,
        }
        let lacks = serde_json::from_slice::<Coded>(error).is_ok_and(|error| error.code == METHOD_NOT_FOUND);
        if lacks && !self.lacks_block_receipts.swap(true, Relaxed) {
            warn!("the upstream has no eth_getBlockReceipts: receipts are fetched one by one");
        }
    }
}

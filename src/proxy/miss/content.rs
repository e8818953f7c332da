//! Answers a call that names a hash, a number or a transaction: one loop for all misses.
//!
//! Each round looks the query up. If the cache cannot answer, it learns which block is meant, or fetches the content of
//! that block by its hash, and looks again. Content that does not enter the cache answers this call directly. An answer
//! about a block that the node has shown counts only if that block has not left the chain meanwhile.

use std::{mem, sync::Arc, time::Duration};

use super::{
    fetcher::{Fetched, Fetcher, canonical},
    forward::Forwarder,
    insist::{Insister, is_block_by_hash},
    load::Loader,
    prove::Prover,
    singles::Singles,
};
use crate::{
    chain::Stamp,
    eth::{At, Home, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            query_call::QueryCall,
            single_flight::Shared,
            slice::slice,
        },
        error::CallError,
        head::{SharedView, Since},
        lookup::{CacheLookup, CachedAnswer, LookupPlan},
        metrics::Metrics,
        tiers::Asks,
    },
    timeout::timeout,
    upstream::{UpstreamError, is_unknown_block},
    verify::Content,
};

/// Number of times that the block of an answer may leave the chain. After that, the proxy forwards the call.
const MAX_CHANGES: u32 = 3;

/// Number of rounds for one call: a refresh and two fetches for each block.
const MAX_ROUNDS: u32 = 3 * MAX_CHANGES;

/// Number of attempts to forward a call, if the block of each answer may have left the chain.
const MAX_FORWARDS: usize = 2;

/// Longest time that a fetched answer waits for the rest of its block.
const REST_PATIENCE: Duration = Duration::from_secs(1);

/// Answers calls that name a hash, a number or a transaction.
#[derive(Debug)]
pub(crate) struct ContentAnswerer {
    lookup: Arc<CacheLookup>,
    fetcher: Arc<Fetcher>,
    insister: Insister,
    singles: Singles,
    prover: Prover,
    forwarder: Forwarder,
    loader: Arc<Loader>,
    metrics: Metrics,
}

/// The state of one call between its rounds.
#[derive(Default)]
struct Progress {
    /// The block that the node has shown, and since when changes of the chain count for it.
    shown: Option<(Home, Since)>,
    /// The outcome of the last fetch.
    outcome: Option<Outcome>,
    /// The last fetch for which the upstream lacked a block that the view named.
    denied: Option<Query>,
    /// Number of times that the block of the answer left the chain.
    changes: u32,
    has_asked_tiers: bool,
    /// Whether data that must exist was asked for again.
    has_insisted: bool,
    /// Whether a transaction or receipt was fetched again because its block contradicts it.
    has_retried: bool,
}

/// Result of a fetch for a call.
enum Step {
    Answered(Answered),
    /// Look up again.
    Again,
    /// Fetch the transaction or receipt alone.
    Alone,
}

/// Returns whether an answer says that there is no such block.
pub(in crate::proxy) fn denies(answer: &Answer) -> bool {
    match answer {
        Answer::Result(_) => answer.is_null(),
        Answer::Error(error) => is_unknown_block(error),
    }
}

// === impl Progress ===

impl Progress {
    /// Records that the block of the answer left the chain.
    fn change(&mut self) {
        self.shown = None;
        self.changes += 1;
    }
}

// === impl ContentAnswerer ===

impl ContentAnswerer {
    pub(crate) fn new(
        lookup: Arc<CacheLookup>,
        prover: Prover,
        forwarder: Forwarder,
        loader: Arc<Loader>,
        metrics: Metrics,
    ) -> Self {
        let fetcher = prover.fetcher().clone();
        let insister = Insister::new(prover.clone());
        let singles = Singles::new(fetcher.clone());
        Self { lookup, fetcher, insister, singles, prover, forwarder, loader, metrics }
    }

    pub(super) fn lookup(&self) -> &CacheLookup {
        &self.lookup
    }

    pub(super) fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    pub(super) fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    fn view(&self) -> &SharedView {
        self.fetcher.view()
    }

    /// Answers the call. Boxes rare paths to keep the future small.
    pub(super) async fn answer(
        &self,
        asked: &QueryCall,
        arrival: Stamp,
        mut plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        let head = self.fetcher.canon().head();
        let mut progress = Progress::default();
        for _ in 0..MAX_ROUNDS {
            // Before the view is read: from now on, changes of the chain count for this round.
            let since = Since::now(self.view(), asked.query);
            if progress.shown.is_some_and(|(home, since)| since.has_left(self.view(), home)) {
                progress.change();
            }
            if progress.changes == MAX_CHANGES {
                break;
            }
            let shown = progress.shown.map(|(home, _)| home);
            let look_up = || self.lookup.plan(asked.query, asked.request.packet(), shown);
            match plan.take().unwrap_or_else(look_up) {
                LookupPlan::Hit(answer) => return Ok(self.hit(asked, answer, &progress)),
                LookupPlan::Forward => break,
                LookupPlan::Refresh(tag) => {
                    let has_head = self.view().tracker().head().is_some();
                    let refreshed = match has_head {
                        true => head.refresh(tag, arrival).await,
                        false => head.establish(arrival).await,
                    };
                    if refreshed.is_err() {
                        // Without a fresh view, forward the call.
                        break;
                    }
                }
                LookupPlan::Fetch(fetch, Some(_)) => self.fetch_again(fetch, arrival, &mut progress).await,
                LookupPlan::Fetch(fetch, None) => {
                    if !mem::replace(&mut progress.has_asked_tiers, true)
                        && let Some(answered) = Box::pin(self.load(asked, Asks::Always)).await
                    {
                        return Ok(answered);
                    }
                    if progress.denied == Some(fetch) {
                        // The view still names the block, and the upstream does not have it: let the node answer.
                        self.metrics.contrary();
                        break;
                    }
                    match self.fetch(asked, fetch, arrival, since, &mut progress).await? {
                        Step::Answered(answered) => return Ok(answered),
                        Step::Again => {}
                        Step::Alone => plan = Some(LookupPlan::Fetch(asked.query, None)),
                    }
                }
            }
        }
        // The wait may have shown that an endpoint serves a wrong chain.
        self.forwarder.confirm_chain().await?;
        for _ in 0..MAX_FORWARDS {
            if let Step::Answered(answered) = self.forward(asked, arrival).await? {
                return Ok(answered);
            }
        }
        Err(CallError::Changed)
    }

    /// Loads the answer from a tier, if one has it.
    pub(super) async fn load(&self, asked: &QueryCall, asks: Asks) -> Option<Answered> {
        let packet = asked.request.packet();
        let arrival = packet.arrival(self.view().clock());
        let tier = self.loader.load(asked.query, arrival, asks).await?;
        let answer = match self.lookup.plan(asked.query, packet, None) {
            LookupPlan::Hit(answer) => answer,
            plan if asks == Asks::Never => plan.answer()?,
            _ => return None,
        };
        let answered = self.lookup.hit(asked.query, answer);
        let outcome = tier.map_or(answered.outcome, Outcome::Restored);
        Some(Answered { outcome, ..answered })
    }

    /// Returns an answer from memory, with the outcome of the fetch that the call had to make or join, if any.
    fn hit(&self, asked: &QueryCall, answer: CachedAnswer, progress: &Progress) -> Answered {
        if let Some((home, _)) = progress.shown {
            self.view().tell(home);
        }
        let Some(outcome) = progress.outcome else { return self.lookup.hit(asked.query, answer) };
        // Only hits count as uses that are worth compressing.
        let answered = self.lookup.hit(asked.query, CachedAnswer { whole: None, ..answer });
        Answered { outcome, ..answered }
    }

    /// Fetches a cached entry again, at most once a minute, even if that succeeds: the node may have pruned it, or its answer
    /// may not enter the cache.
    async fn fetch_again(&self, fetch: Query, arrival: Stamp, progress: &mut Progress) {
        let fetched = self.fetcher.fetch(fetch, arrival).await;
        self.fetcher.state().uncacheable.note(fetch);
        let joined = fetched.as_ref().is_ok_and(|shared| shared.joined);
        let is_kept = |shared: Shared<Fetched>| matches!(shared.value, Fetched::Content(content) if self.fetcher.is_kept(&content));
        progress.outcome = Some(Outcome::of_fetch(joined, fetched.is_ok_and(is_kept)));
    }

    /// Forwards the call as the client made it, unless the block of the answer may have left the chain.
    async fn forward(&self, asked: &QueryCall, arrival: Stamp) -> Result<Step, CallError> {
        let forwarded = Box::pin(self.forwarder.forward_as_asked(asked, arrival)).await?;
        Ok(match self.forwarder.is_excluded(asked, &forwarded).await {
            true => Step::Again,
            false => Step::Answered(forwarded.answered),
        })
    }

    /// Returns the `null` with which the node answers the client's own call. With any other answer, an endpoint has the data
    /// after all.
    async fn forward_null(&self, asked: &QueryCall, arrival: Stamp) -> Result<Option<Answered>, CallError> {
        let forwarded = Box::pin(self.forwarder.forward_as_asked(asked, arrival)).await?;
        Ok(Some(forwarded.answered).filter(|answered| answered.answer.is_null()))
    }

    async fn fetch(
        &self,
        asked: &QueryCall,
        fetch: Query,
        arrival: Stamp,
        since: Since,
        progress: &mut Progress,
    ) -> Result<Step, CallError> {
        // On the way to a transaction or receipt. If this fetch fails, the transaction or receipt is fetched alone.
        let is_detour = asked.query.transaction().is_some() && fetch.at != asked.query.at;
        if !is_detour
            && self.insister.is_gone(asked, fetch)?
            && let Some(answered) = self.forward_null(asked, arrival).await?
        {
            return Ok(Step::Answered(answered));
        }
        let shared = match self.fetcher.fetch(fetch, arrival).await {
            Err(_) if is_detour => return Ok(Step::Alone),
            // The fetch asks for more than the client did, so a forwarded call may succeed where it failed.
            Err(UpstreamError::TooLarge { .. } | UpstreamError::Status { .. }) if !asked.takes(fetch) => {
                return self.instead(asked, fetch, arrival).await;
            }
            fetched => fetched.map_err(CallError::Upstream)?,
        };
        // If the view did not know the block, and only an earlier answer to this call showed it, a `null` for its data
        // is an answer: do not insist.
        let is_shown_here = progress.shown.is_some_and(|(_, since)| !since.knew_block());
        let is_null = matches!(&shared.value, Fetched::Other(answer) if answer.is_null());
        let shared = match is_detour || progress.has_insisted || (is_shown_here && is_null) {
            true => Some(shared),
            false => self.insister.confirmed(asked, fetch, shared).await?,
        };
        let Some(Shared { value, joined, sent }) = shared else {
            progress.has_insisted = true;
            progress.change();
            return Ok(Step::Again);
        };
        // A block that the view named was canonical when this round began, even if the call then joined an older fetch.
        // A block that the answer names was canonical when the request was sent.
        let since = if fetch.names_hash() { since } else { since.sent(sent) };
        match value {
            Fetched::Content(content) => {
                if let Content::Block(block) = &content {
                    self.fetcher.canon().head().note_full_fetch(block.hash());
                }
                let is_kept = fetch.index.is_none() && self.fetcher.is_kept(&content);
                let outcome = Outcome::of_fetch(joined, is_kept);
                let outcome = self.loader.tier_of(&content).map_or(outcome, Outcome::Restored);
                progress.outcome = Some(outcome);
                if let Some(home) = content.named_home().filter(|_| !fetch.names_hash()) {
                    progress.shown = Some((home, since));
                }
                match (is_detour, is_kept) {
                    (true, _) => {
                        let helped = self.singles.helped(asked.query, fetch, &content, is_kept);
                        Ok(if helped { Step::Again } else { Step::Alone })
                    }
                    (false, true) => {
                        // Wait only briefly: the answer is here, and the fetch goes on after the timeout.
                        let _ = timeout(REST_PATIENCE, self.singles.fetch_rest(&content, arrival)).await;
                        Ok(Step::Again)
                    }
                    (false, false) => {
                        self.answer_with(asked, fetch, (content, outcome, since), arrival, progress).await
                    }
                }
            }
            _ if is_detour => Ok(Step::Alone),
            Fetched::Short(answer) if self.view().tracker().rules().development => {
                Ok(Step::Answered(Answered::new(answer, Outcome::of_fetch(joined, false))))
            }
            Fetched::Short(_) => self.denied(fetch, progress).await,
            Fetched::Other(answer) => {
                let is_error = matches!(answer, Answer::Error(_));
                if !is_error && self.has_left(asked, None, since, progress) {
                    return Ok(Step::Again);
                }
                if self.denies_block(asked, fetch, &answer) {
                    if is_shown_here && let Some(answered) = self.forward_null(asked, arrival).await? {
                        return Ok(Step::Answered(answered));
                    }
                    if let Some(number) = asked.query.number().filter(|_| !is_block_by_hash(fetch)) {
                        self.fetcher.check_place(number).await;
                    }
                    return self.denied(fetch, progress).await;
                }
                // Also forward a count of a block that does not exist: nodes answer it differently.
                let is_others = answer.is_content() || asked.query.is_count();
                if (!asked.takes(fetch) && is_others) || (is_error && asked.query != fetch) {
                    if fetch.part == Part::Block {
                        self.fetcher.store().note_uncacheable(fetch);
                    }
                    // The answer cannot be sliced, or answers another question: let the node answer the client's own
                    // call.
                    return self.instead(asked, fetch, arrival).await;
                }
                if answer.is_content() && self.prover.demands_proof(asked.query) && self.prover.rejects() {
                    return Err(CallError::Unproved);
                }
                Ok(Step::Answered(Answered::new(answer, Outcome::of_fetch(joined, false))))
            }
        }
    }

    /// Refreshes the head: the upstream does not have a block that the view named.
    async fn denied(&self, fetch: Query, progress: &mut Progress) -> Result<Step, CallError> {
        (progress.denied, progress.shown) = (Some(fetch), None);
        let head = self.fetcher.canon().head();
        // Without a fresh view, the next round forwards the call.
        let _ = head.refresh(Tag::Latest, self.view().clock().now()).await;
        Ok(Step::Again)
    }

    /// Answers with content that did not enter the cache.
    async fn answer_with(
        &self,
        asked: &QueryCall,
        fetch: Query,
        (content, outcome, since): (Content, Outcome, Since),
        arrival: Stamp,
        progress: &mut Progress,
    ) -> Result<Step, CallError> {
        let query = asked.query;
        let home = content.named_home();
        if self.has_left(asked, home, since, progress) {
            return Ok(Step::Again);
        }
        if query.part == Part::Receipts && fetch.part != Part::Receipts {
            // The block shows where the receipts are.
            return if fetch.names_hash() { self.forward(asked, arrival).await } else { Ok(Step::Again) };
        }
        let answer = if self.prover.demands_proof(query) {
            let sent = canonical(fetch, since.stamp());
            let proved = Box::pin(self.prover.proved(query, &content, arrival, sent)).await;
            // If the endpoint repeats an answer that its block contradicts, the check rejects it now that the block is
            // cached, and the upstream pool asks another endpoint.
            if content.is_single()
                && matches!(proved, Ok(None))
                && !mem::replace(&mut progress.has_retried, true)
            {
                progress.shown = None;
                return Ok(Step::Again);
            }
            self.prover.judge(query, &content, proved)?
        } else {
            slice(query, &content)
        };
        // The proof may have taken a while.
        if self.has_left(asked, home, since, progress) {
            return Ok(Step::Again);
        }
        if let Some(home) = home.filter(|_| !query.names_hash()) {
            self.view().tell(home);
        }
        match answer {
            Some(bytes) => Ok(Step::Answered(Answered::new(Answer::Result(bytes), outcome))),
            None => self.instead(asked, fetch, arrival).await,
        }
    }

    /// Returns whether the block of an answer may have left the chain, or the block that the node had shown for it. Then the
    /// next round learns anew which block is meant. Never for a query by block hash, which may name an orphan.
    fn has_left(&self, asked: &QueryCall, home: Option<Home>, since: Since, progress: &mut Progress) -> bool {
        let view = self.view();
        let has_left = || match home {
            Some(home) => since.has_left(view, home),
            None => since.has_changed(view),
        };
        let is_left = !asked.query.names_hash()
            && (progress.shown.is_some_and(|(home, since)| since.has_left(view, home)) || has_left());
        if is_left {
            progress.change();
        }
        is_left
    }

    /// Lets the node answer the client's own call, because the fetch does not. A transaction at a position is fetched alone.
    async fn instead(&self, asked: &QueryCall, fetch: Query, arrival: Stamp) -> Result<Step, CallError> {
        match asked.query.index.is_some() && fetch.index.is_none() {
            true => Ok(Step::Alone),
            false => self.forward(asked, arrival).await,
        }
    }

    /// Returns whether an answer denies a block that the view named.
    fn denies_block(&self, asked: &QueryCall, fetch: Query, answer: &Answer) -> bool {
        let At::Hash(block) = fetch.at else { return false };
        // An index past the last transaction is absent from every block.
        let count = fetch.index.and_then(|_| self.fetcher.existing().transactions_in(block));
        let is_of_block = fetch.index.zip(count).is_none_or(|(index, count)| index.0 < count);
        let denies = is_of_block && !asked.query.names_hash() && denies(answer);
        let number = asked.query.number().or_else(|| Some(self.view().cached_link(block)?.number));
        if let Some(number) = number.filter(|_| denies && is_block_by_hash(fetch)) {
            self.fetcher.canon().deny(number, block);
        }
        denies
    }
}

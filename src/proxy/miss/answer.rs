//! Answers a call that missed the cache.

use std::{mem, ops::Deref, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures_util::poll;
use tokio::time;

use super::{
    fetch_answer::{AnswerFetcher, FetchResult, denies},
    fetcher::Fetched,
    load::UpstreamState,
};
use crate::{
    cache::Location,
    chain::{Link, Stamp},
    eth::{Home, Part, Query, Tag},
    proxy::{
        call::{
            client_limit::ClientConcurrency,
            outcome::{Answered, Outcome},
            packet::PacketContext,
            query_call::QueryCall,
            single_flight::Shared,
            waited,
        },
        error::CallError,
        lookup::{CacheLookup, CachedAnswer, LookupPlan, TagMeaning},
        metrics::Metrics,
    },
    upstream::UpstreamError,
    verify::Content,
};

/// Number of plans carried out for one call. If the chain still changes after that, the proxy forwards the call.
const MAX_PLANS: u32 = 3;

/// Number of attempts to forward a call, if the block of each answer may have left the chain.
const MAX_FORWARDS: usize = 2;

/// Longest wait for the first answer of an upstream after the start; then unconfirmed tiers answer.
const SILENCE: Duration = Duration::from_secs(2);

/// Longest wait of a call that needs no head for the first head.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// Answers queries that missed the cache.
#[derive(Debug)]
pub(crate) struct Answerer {
    pub(crate) answers: AnswerFetcher,
    pub(crate) lookup: Arc<CacheLookup>,
    pub(crate) concurrency: ClientConcurrency,
    pub(crate) metrics: Metrics,
}

// === impl Answerer ===

impl Deref for Answerer {
    type Target = AnswerFetcher;

    fn deref(&self) -> &AnswerFetcher {
        &self.answers
    }
}

impl Answerer {
    /// Carries out the plan of a lookup, and looks up again after each wait, until there is an answer. Boxes rare
    /// paths to keep the future small.
    pub(super) async fn answer(
        self: Arc<Self>,
        asked: QueryCall,
        plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        if self.view.has_chain() {
            let answered = self.answer_with_upstream(&asked, plan).await;
            return self.or_load(&asked, answered).await;
        }
        Box::pin(self.answer_at_start(asked)).await
    }

    /// Answers a call before any upstream has shown its chain.
    async fn answer_at_start(self: Arc<Self>, asked: QueryCall) -> Result<Answered, CallError> {
        if asked.query.names_hash()
            && let Some(answered) = self.load(&asked, UpstreamState::Unreachable).await
        {
            // Content with this hash is the same on every chain.
            return Ok(answered);
        }
        let mut answering = pin!(self.answer_with_upstream(&asked, None));
        // Do not spend the whole time of the call on an upstream that hangs at the start.
        let loaded = async {
            time::sleep(SILENCE).await;
            self.load(&asked, UpstreamState::Unreachable).await
        };
        let answered = tokio::select! {
            biased;
            answered = &mut answering => answered,
            Some(answered) = loaded => return Ok(answered),
        };
        self.or_load(&asked, answered).await
    }

    /// Loads the answer from a tier if no upstream answers.
    async fn or_load(
        &self,
        asked: &QueryCall,
        answered: Result<Answered, CallError>,
    ) -> Result<Answered, CallError> {
        match answered {
            Err(error) if error.is_outage() => {
                Box::pin(self.load(asked, UpstreamState::Unreachable)).await.ok_or(error)
            }
            answered => answered,
        }
    }

    /// Loads the answer from a tier, if one has it.
    async fn load(&self, asked: &QueryCall, upstreams: UpstreamState) -> Option<Answered> {
        let arrival = asked.request.packet().arrival(self.view.clock());
        let tier = self.loader.load(asked.query, arrival, upstreams).await?;
        match self.lookup.plan(asked.query, asked.request.packet()) {
            LookupPlan::Hit(answer) => {
                let answered = self.lookup.hit(asked.query, answer);
                let outcome = tier.map_or(answered.outcome, Outcome::Restored);
                Some(Answered { outcome, ..answered })
            }
            _ => None,
        }
    }

    async fn answer_with_upstream(
        &self,
        asked: &QueryCall,
        plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        let mut confirming = pin!(self.forwarder.confirm_chain());
        let mut plan = match poll!(&mut confirming) {
            Poll::Ready(confirmed) => confirmed.map(|()| plan)?,
            // After a wait, look up again.
            Poll::Pending => confirming.await.map(|()| None)?,
        };
        let view = &self.view;
        let arrival = asked.request.packet().arrival(view.clock());
        if !asked.query.names_hash() && view.tracker().head().is_none() {
            let establishing = self.head.establish_in_background(arrival);
            if asked.query.transaction().is_some() && !matches!(plan, Some(LookupPlan::FetchHead)) {
                // A client that reads only transactions needs no head. But the view forgets answers from before the
                // first head, so the next call could not use them.
                waited::note_refresh(!establishing.is_ours);
                establishing.wait(HEAD_PATIENCE).await;
                plan = None;
            }
        }
        match asked.query.tag() {
            Some(tag) => self.answer_tag(asked, tag, arrival).await,
            None => self.answer_content(asked, arrival, plan).await,
        }
    }

    /// Answers a call that names its block by a tag. All calls of a packet use the same block.
    async fn answer_tag(&self, asked: &QueryCall, tag: Tag, arrival: Stamp) -> Result<Answered, CallError> {
        let packet = asked.request.packet();
        let client = packet.caller().client;
        let mut shown_again = false;
        loop {
            let Some(link) = self.find_meaning(asked, tag, arrival).await? else {
                // The wait may have shown that an endpoint serves a wrong chain.
                self.forwarder.confirm_chain().await?;
                let forwarding = Box::pin(self.forwarder.forward_as_asked(asked, arrival));
                let answered = self.concurrency.within(client, forwarding).await?.answered;
                // Every chain has a head, so `null` at an index of `latest` is about the content of a block, too.
                let lacks_index =
                    tag == Tag::Latest && asked.query.index.is_some() && answered.answer.is_null();
                let is_of_block = answered.answer.is_content() || lacks_index;
                // Nothing shows whether this answer is on the same branch as the answers to the packet's other calls by
                // tag.
                if is_of_block && packet.has_several_tags(tag) && !self.view.tracker().is_suspended() {
                    // The node has a block for the tag by now. Let the view learn of it once.
                    let is_again = mem::replace(&mut shown_again, true);
                    if is_again || self.head.refresh(tag, self.view.clock().now()).await.is_err() {
                        return Err(CallError::Left { tag });
                    }
                    continue;
                }
                return Ok(answered);
            };
            let answered = match asked.query.part {
                Part::Number => self.lookup.hit(asked.query, CachedAnswer::of_number(link.number)),
                _ => {
                    let asked = asked.of_block(link.hash);
                    match self.lookup.plan(asked.query, packet) {
                        LookupPlan::Hit(answer) => self.lookup.hit(asked.query, answer),
                        _ => {
                            let answering = Box::pin(self.answer_content(&asked, arrival, None));
                            self.concurrency.within(client, answering).await?
                        }
                    }
                }
            };
            let is_denied = self.is_denied(asked, link, &answered).await;
            let is_left = || self.is_left(tag, link, packet.holds_since(tag, self.view.clock()));
            if (is_denied || is_left()) && packet.unpin(tag, link) {
                let now = self.view.clock().now();
                self.head.refresh(tag, now).await.map_err(CallError::Upstream)?;
                continue;
            }
            if is_denied || (is_left() && !packet.is_answered(tag)) {
                return Err(CallError::Left { tag });
            }
            // Once one call of the packet has used this block, the others use it, too, even if it has left the chain
            // since. If another call has found out that the block left the chain, and no call has used it yet, this
            // call starts over with the current block of the tag.
            if asked.request.resolves() || packet.commit(tag, link) {
                self.view.tell(Home { number: link.number, block: link.hash });
                return Ok(answered);
            }
        }
    }

    /// Returns the block that a tag stands for; `None` if the node decides.
    async fn find_meaning(
        &self,
        asked: &QueryCall,
        tag: Tag,
        arrival: Stamp,
    ) -> Result<Option<Link>, CallError> {
        let (packet, view) = (asked.request.packet(), &self.view);
        let mut realigned = false;
        // A reorg needs two more rounds: one to resolve the cleared tag again, one to refresh the head after it.
        for _ in 0..MAX_PLANS + 2 {
            let refreshed = match self.lookup.meaning(tag, packet) {
                TagMeaning::Block(link) => return Ok(Some(link)),
                TagMeaning::Ahead(link) => match self.head.refresh(Tag::Latest, view.clock().now()).await {
                    // The node shows this block, even if it fails to show its head.
                    Err(_) if !view.tracker().is_suspended() => return self.pin_shown(tag, link, packet),
                    refreshed => refreshed,
                },
                TagMeaning::Nothing
                    if view.tracker().is_suspended() && view.tracker().may_refresh(arrival) =>
                {
                    self.head.refresh(Tag::Latest, view.clock().now()).await
                }
                TagMeaning::Nothing if view.tracker().is_suspended() && packet.has_several_tags(tag) => {
                    let shown = self.head.show(tag).await.map_err(CallError::Upstream)?;
                    let Some(link) = shown else { return Ok(None) };
                    return self.pin_shown(tag, link, packet);
                }
                TagMeaning::Nothing => return Ok(None),
                TagMeaning::Unknown => self.fetcher.refresh_for(asked.query.part, tag, arrival).await,
                TagMeaning::Unsure => self.head.refresh(Tag::Latest, view.clock().now()).await,
                // Each call of the packet realigns once: another call may still be waiting for its refresh.
                TagMeaning::Apart if mem::replace(&mut realigned, true) => {
                    return if self.may_decide(packet) { Ok(None) } else { Err(CallError::Left { tag }) };
                }
                TagMeaning::Apart => self.refresh_all(&packet.realign(tag)).await,
            };
            match refreshed {
                Ok(()) => {}
                // While canonicity is suspended, forward the call.
                Err(_) if view.tracker().is_suspended() => return Ok(None),
                // The upstream failed to show the block of the tag. A forwarded call could show the client a head
                // that the view does not know.
                Err(error) if error.is_failure() && !self.passes(&error) => {
                    return Err(CallError::Upstream(error));
                }
                // The node can still answer the call itself.
                Err(_) => return Ok(None),
            }
        }
        match self.lookup.meaning(tag, packet) {
            TagMeaning::Block(link) => Ok(Some(link)),
            TagMeaning::Ahead(link) => self.pin_shown(tag, link, packet),
            TagMeaning::Apart | TagMeaning::Unsure if !self.may_decide(packet) => {
                Err(CallError::Left { tag })
            }
            _ => Ok(None),
        }
    }

    /// Returns whether the node's answer counts for the tag of a single call. Blocks of one node need not link.
    fn may_decide(&self, packet: &PacketContext) -> bool {
        packet.calls().len() == 1 && self.view.tracker().is_one_node()
    }

    /// Pins a tag to a block that the node shows, if that keeps the order of the packet's tags.
    fn pin_shown(&self, tag: Tag, link: Link, packet: &PacketContext) -> Result<Option<Link>, CallError> {
        self.lookup.pin_shown(tag, link, packet).map(Some).ok_or(CallError::Left { tag })
    }

    /// Refreshes these tags, and the head last, even if a call of the packet has used the head already. Otherwise the
    /// next packet would find the same two branches.
    async fn refresh_all(&self, tags: &[Tag]) -> Result<(), UpstreamError> {
        let view = &self.view;
        for tag in tags.iter().filter(|tag| **tag != Tag::Latest) {
            match self.head.refresh(*tag, view.clock().now()).await {
                // The node has no block for this tag any more. That does not put the head on the branch of a block that
                // a call of the packet has used.
                Err(error) if !error.is_failure() => {}
                refreshed => refreshed?,
            }
        }
        self.head.refresh(Tag::Latest, view.clock().now()).await
    }

    /// Returns whether an answer says that the block of a tag does not exist. `null` for an index past the last
    /// transaction does not say so.
    async fn is_denied(&self, asked: &QueryCall, link: Link, answered: &Answered) -> bool {
        if !denies(&answered.answer) {
            return false;
        }
        let Some(index) = asked.query.index else { return true };
        let count = match self.existing.transactions_in(link.hash) {
            Some(count) => count,
            None => {
                let now = self.view.clock().now();
                let fetched = self.fetcher.fetch(Query::new(Part::BlockWithHashes, link.hash), now).await;
                match fetched.map(|shared| shared.value) {
                    Ok(Fetched::Content(Content::BlockWithHashes(with_hashes))) => with_hashes.len() as u64,
                    // The block exists; the node decides on the data at that index.
                    Ok(Fetched::Other(answer)) if !denies(&answer) => return false,
                    Ok(_) | Err(_) => return true,
                }
            }
        };
        index.0 < count
    }

    /// Returns whether the block of a tag may have left the chain since `since`.
    fn is_left(&self, tag: Tag, link: Link, since: Stamp) -> bool {
        let tracker = self.view.tracker();
        let is_above = || tracker.head().is_some_and(|head| head.number < link.number) && !tracker.lags();
        tracker.may_have_left(link.number, link.hash, since) || (tag == Tag::Latest && is_above())
    }

    /// Answers a call that names a hash, a number or a transaction.
    async fn answer_content(
        &self,
        asked: &QueryCall,
        arrival: Stamp,
        mut plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        let view = &self.view;
        let (mut denied, mut tiers_asked, mut confirmed, mut fetched) = (None, false, false, None);
        for _ in 0..MAX_PLANS {
            let look_up = || self.lookup.plan(asked.query, asked.request.packet());
            let plan = plan.take().unwrap_or_else(look_up);
            if let LookupPlan::Fetch(_) | LookupPlan::Prefetch(..) | LookupPlan::Confirm(..) = plan
                && !mem::replace(&mut tiers_asked, true)
                && let Some(answered) = Box::pin(self.load(asked, UpstreamState::Reachable)).await
            {
                return Ok(answered);
            }
            let is_place = matches!(plan, LookupPlan::Confirm(..));
            let waited = match plan {
                LookupPlan::Hit(answer) => return Ok(self.hit(asked, answer, fetched)),
                LookupPlan::Forward | LookupPlan::ResolveTag => break,
                LookupPlan::Refresh(tag) => self.head.refresh(tag, arrival).await,
                LookupPlan::FetchHead => self.head.establish(arrival).await,
                LookupPlan::Fetch(fetch) if denied == Some(fetch) => {
                    // The view still names the block, and the upstream does not have it: let the node answer.
                    self.metrics.contrary();
                    break;
                }
                LookupPlan::Fetch(fetch) => match self.answers.fetch(asked, fetch, arrival).await? {
                    FetchResult::Answer(answered) => return Ok(answered),
                    FetchResult::Changed => Ok(()),
                    // The upstream does not have a block that the view named: refresh the view.
                    FetchResult::Denied => {
                        denied = Some(fetch);
                        self.head.refresh(Tag::Latest, view.clock().now()).await
                    }
                },
                LookupPlan::Renew(fetch, _) => {
                    fetched = Box::pin(self.fetcher.renew(fetch, arrival)).await.or(fetched);
                    // If the fetch failed, the cached entry is still valid and canonical.
                    if let LookupPlan::Renew(_, answer) | LookupPlan::Hit(answer) = look_up() {
                        return Ok(self.hit(asked, answer, fetched));
                    }
                    Ok(())
                }
                LookupPlan::Confirm(whole, alone) | LookupPlan::Prefetch(whole, alone) => {
                    // If the upstream lacks the part for good, it lacks the whole, too.
                    let is_gone = || self.state.uncacheable.gone_from(alone, alone.part).is_some();
                    let first = match is_place {
                        true if mem::replace(&mut confirmed, true) => None,
                        true => Box::pin(self.confirm_place(asked, whole, arrival)).await,
                        false if is_gone() => None,
                        false => Box::pin(self.prefetcher.fetch_whole(whole, arrival)).await,
                    };
                    if first.is_some() {
                        fetched = first;
                        continue;
                    }
                    match self.answers.fetch(asked, alone, arrival).await? {
                        FetchResult::Answer(answered) => return Ok(answered),
                        FetchResult::Changed => Ok(()),
                        FetchResult::Denied => break,
                    }
                }
            };
            if waited.is_err() {
                // Without a fresh view, forward the call.
                break;
            }
        }
        // The wait may have shown that an endpoint serves a wrong chain.
        self.forwarder.confirm_chain().await?;
        for _ in 0..MAX_FORWARDS {
            let forwarded = Box::pin(self.forwarder.forward_as_asked(asked, arrival)).await?;
            if !self.forwarder.is_excluded(asked, &forwarded).await {
                return Ok(forwarded.answered);
            }
        }
        Err(CallError::Changed)
    }

    /// Returns an answer from memory, with the outcome of the fetch that the call had to make or join, if any.
    fn hit(&self, asked: &QueryCall, answer: CachedAnswer, fetched: Option<Outcome>) -> Answered {
        let answered = self.lookup.hit(asked.query, answer);
        Answered { outcome: fetched.unwrap_or(answered.outcome), ..answered }
    }

    /// Fetches the block at the number that a cached single transaction or receipt names. Returns the outcome if the block
    /// arrived. Removes cached single entries whose place the block contradicts.
    async fn confirm_place(&self, asked: &QueryCall, block: Query, arrival: Stamp) -> Option<Outcome> {
        let Shared { value: Fetched::Content(content), joined, .. } =
            self.fetcher.fetch(block, arrival).await.ok()?
        else {
            return None;
        };
        let fetched = Some(Outcome::of_fetch(joined, self.fetcher.is_kept(&content)));
        let (number, hash, with_hashes) = match content {
            Content::Block(block) => (block.header().number, block.hash(), None),
            Content::BlockWithHashes(with_hashes) => {
                (with_hashes.header().number, with_hashes.hash(), Some(with_hashes))
            }
            _ => return None,
        };
        let Some(transaction) = asked.query.transaction() else { return fetched };
        let cache = &self.state.cache;
        let block = cache.block(hash);
        let is_at = |index| match (&block, &with_hashes) {
            (Some(block), _) => block.transaction_hash(index) == Some(transaction),
            (None, Some(with_hashes)) => with_hashes.lists(transaction),
            (None, None) => true,
        };
        for Location { home, index } in cache.locations(transaction) {
            let stands = home.block == hash && is_at(index);
            if home.number == number && !stands {
                cache.remove_single(home.block, index);
            }
        }
        fetched
    }

    /// Returns whether the error is a wrong answer that `verify.on_mismatch` lets pass.
    fn passes(&self, error: &UpstreamError) -> bool {
        matches!(error, UpstreamError::Rejected(_)) && !self.prover.rejects()
    }
}

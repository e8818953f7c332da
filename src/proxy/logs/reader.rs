//! Answers calls for logs.

use tower::Service;

use super::{
    cold::{Cold, UpstreamSearch, Walked, range},
    found::{FoundLogs, Joined},
    plan::{Attempt, RangePlan},
    range::{Bound, CanonicalRange},
    search::{Search, Searched},
    tools::LogTools,
};
use crate::{
    chain::Link,
    eth::{At, BlockHash, BlockNumber, Home, Log, LogBlocks, LogsCall, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            request::Request,
        },
        error::{CallError, LogLimit},
        miss::fetcher::FoundByNode,
    },
};

/// Number of times that a call is planned, if the chain changes meanwhile, or the upstream lags.
const MAX_PLANS: usize = 3;

/// Answers calls for logs. `C` answers calls for content.
#[derive(Debug)]
pub(crate) struct LogReader<C> {
    content: C,
    tools: LogTools,
}

// === impl LogReader ===

impl<C> LogReader<C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    pub(crate) fn new(content: C, tools: LogTools) -> Self {
        Self { content, tools }
    }

    /// Answers a call for logs.
    ///
    /// # Errors
    /// If the upstream fails or lags, a limit is exceeded, no proof is possible where one is demanded, or the chain keeps
    /// changing.
    pub(crate) async fn answer(&self, request: &Request, call: &LogsCall) -> Result<Answered, CallError> {
        let mut error = CallError::Changed;
        for _ in 0..MAX_PLANS {
            let request = request.anew();
            let packet = request.packet();
            if !packet.has_arrival() {
                self.tools.view().notice_clock_jumps(packet.arrival(self.tools.view().clock()));
            }
            let attempt = match call.blocks {
                LogBlocks::Hash(hash) => self.of_block(&request, call, hash).await?,
                LogBlocks::Range(from, to) => self.of_range(&request, call, from, to).await?,
            };
            match attempt {
                Attempt::Answered(answered) => return Ok(answered),
                Attempt::Changed | Attempt::Moved => error = CallError::Changed,
                Attempt::Lagging(lagging) => error = lagging,
                Attempt::Forward => return self.by_node(&request, call).await,
                // Below the block that it denies, the node is on another branch, where the tags mean other blocks.
                Attempt::Denied(_) if packet.calls().len() == 1 && call.tags().next().is_some() => {
                    return self.as_sent(&request).await;
                }
                Attempt::Denied(_) => return self.by_node(&request, call).await,
            }
        }
        let head = self.tools.view().tracker().head();
        // In a batch, the blocks of tags count.
        let is_free = request.packet().calls().len() == 1 || call.tags().next().is_none();
        let may_stand = is_free && self.tools.view().tracker().is_at(head) && !self.tools.must_prove();
        if may_stand && matches!(error, CallError::Changed) {
            // The node may have blocks that do not link to each other. Then its own answer counts, unless it moves.
            let answered = self.by_node(&request.anew(), call).await?;
            if self.tools.forwarder.still_shows(head).await == Some(true) {
                return Ok(answered);
            }
        }
        Err(error)
    }

    /// Lets the node answer the call as the client sent it.
    async fn as_sent(&self, request: &Request) -> Result<Answered, CallError> {
        let answered = self.content.clone().call(request.clone()).await?;
        let is_unproved = self.tools.must_prove() && matches!(answered.answer, Answer::Result(_));
        if is_unproved { Err(CallError::Unproved) } else { Ok(answered) }
    }

    /// Lets the node answer the call, for the blocks that its tags mean in the packet. The logs are checked if the numbers
    /// of these blocks are known. Where clients get proved data only, the answer can only be an error.
    async fn by_node(&self, request: &Request, call: &LogsCall) -> Result<Answered, CallError> {
        let packet = request.packet();
        let pinned = |at| match at {
            At::Tag(tag) => packet.tag(tag).map(|link| At::Number(link.number)),
            at => Some(at),
        };
        let numbers = match call.blocks {
            LogBlocks::Range(from, to) => pinned(from).zip(pinned(to)),
            LogBlocks::Hash(_) => None,
        };
        if let Some((At::Number(first), At::Number(last))) = numbers
            && first <= last
            && !self.tools.must_prove()
        {
            self.tools.forwarder.confirm_chain().await?;
            let (asked, call) = (call, call.with_blocks(range(first, last)));
            // A range that ends above the head is the node's to judge, so no endpoint must have reached its end.
            let answering = Box::pin(self.tools.fetcher.find_logs(&call, None));
            let answered = self.tools.concurrency.within(packet.caller().client, answering).await;
            let FoundByNode { answer, is_checked, .. } = answered.map_err(CallError::Upstream)?;
            if let Answer::Result(logs) = &answer
                && is_checked
                && let Ok(logs) = Log::read_all(logs)
            {
                // In a batch, a tag means the same block in all calls.
                let is_other = |tag: &Tag| {
                    let link = packet.tag(*tag).filter(|_| packet.calls().len() > 1);
                    let is_it =
                        |home: Home, link: Link| home.number != link.number || home.block == link.hash;
                    link.is_some_and(|link| !logs.iter().all(|log| is_it(log.home, link)))
                };
                if let Some(tag) = asked.tags().find(is_other) {
                    return Err(CallError::Left { tag });
                }
                if let Some(log) = logs.last() {
                    self.tools.view().tell(log.home);
                }
            }
            return Ok(Answered::new(answer, Outcome::Logs(LogSource::Forwarded, LogProof::None)));
        }
        let sent = match numbers.filter(|_| call.tags().next().is_some()) {
            Some((from, to)) => {
                let call = call.with_blocks(LogBlocks::Range(from, to));
                request.on_behalf((call.method(), call.params()))
            }
            None => request.clone(),
        };
        let answered = self.content.clone().call(sent).await?;
        let is_tagged = numbers.is_none() && packet.calls().len() > 1;
        let tag = call.tags().find(|tag| is_tagged && packet.has_several_tags(*tag));
        match (&answered.answer, tag) {
            (Answer::Error(_), _) => Ok(answered),
            (Answer::Result(_), _) if self.tools.must_prove() => Err(CallError::Unproved),
            // Nothing shows whether this answer is on the branch of the packet's other calls by tag.
            (Answer::Result(_), Some(tag)) if !self.tools.view().tracker().is_suspended() => {
                Err(CallError::Left { tag })
            }
            (Answer::Result(_), _) => Ok(answered),
        }
    }

    /// Answers with the logs of one block, canonical or not.
    async fn of_block(
        &self,
        request: &Request,
        call: &LogsCall,
        hash: BlockHash,
    ) -> Result<Attempt, CallError> {
        let search = Search::new(self.tools.clone(), call.filter.clone());
        let cold = Cold { content: &self.content, tools: &self.tools, request, call, search: &search };
        let walked = match cold.searched(hash).await {
            Searched::Found(found) => Walked::Found { link: None, home: hash, found },
            Searched::Disputed => Walked::Unavailable,
            Searched::Unindexed(_) | Searched::Cold => cold.walk(At::Hash(hash)).await?,
        };
        let found = match walked {
            Walked::Found { found, .. } => found,
            // The node knows how to say that it does not have the block.
            Walked::Gone => return Ok(Attempt::Forward),
            Walked::Unavailable if self.tools.must_prove() => return Err(CallError::Unproved),
            Walked::Unavailable => match cold.forward(call.blocks, self.number(hash)).await? {
                UpstreamSearch::Found(found) => {
                    FoundLogs::forwarded(found.logs.into_iter().map(|(_, log)| log).collect())
                }
                UpstreamSearch::Other(answer) => return Ok(Attempt::unproved(answer)),
            },
        };
        // A single block has no limits, so its number does not matter.
        let mut joined = Joined::new(self.tools.limits, BlockNumber(0));
        joined.add(BlockNumber(0), found)?;
        Ok(Attempt::Answered(joined.answer()))
    }

    /// Returns the number of a cached block.
    fn number(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.tools.view().cached_link(hash).map(|link| link.number)
    }

    /// Answers with the logs of a range of the canonical chain.
    async fn of_range(
        &self,
        request: &Request,
        call: &LogsCall,
        from: At,
        to: At,
    ) -> Result<Attempt, CallError> {
        let tools = &self.tools;
        let bounds = (self.bound(request, from).await?, self.bound(request, to).await?);
        let (Some(from), Some(to)) = bounds else { return Ok(Attempt::Forward) };
        let Some(more) = to.number.0.checked_sub(from.number.0) else { return Ok(Attempt::Forward) };
        if more >= tools.limits.max_blocks as u64 {
            return self.over_limit(from.number).await;
        }
        let tagged: Vec<_> = [from.tagged, to.tagged].into_iter().flatten().collect();
        let range = CanonicalRange::read(tools, request.packet(), from.number, to.number).await?;
        let Some(mut range) = range else {
            // The node must answer, but above the head it would search other blocks than those of the tags.
            let fell = || tagged.iter().any(|(_, link)| tools.view().tracker().is_above_head(link.number));
            return if fell() { release_tags(request, tagged) } else { Ok(Attempt::Forward) };
        };
        for bound in [from, to] {
            if !range.has(bound) {
                return release_tags(request, bound.tagged);
            }
        }
        let attempt = self.of_blocks(request, call, range, &tagged).await?;
        let is_batch = request.packet().calls().len() > 1;
        match attempt {
            Attempt::Changed => release_tags(request, tagged),
            // The node would search another block than the one that the tag means in this batch.
            Attempt::Denied(hash) if is_batch && tagged.iter().any(|(_, link)| link.hash == hash) => {
                release_tags(request, tagged)
            }
            attempt => Ok(attempt),
        }
    }

    /// Refuses a range with too many blocks, but lets the node answer if the range begins above the head.
    async fn over_limit(&self, first: BlockNumber) -> Result<Attempt, CallError> {
        let tools = &self.tools;
        let is_above = || tools.view().tracker().head().is_none_or(|head| first > head.number);
        if is_above() {
            tools.renew().await?;
        }
        if is_above() {
            return Ok(Attempt::Forward);
        }
        let last = BlockNumber(first.0 + tools.limits.max_blocks as u64 - 1);
        let last = tools.view().tracker().head().map_or(last, |head| last.min(head.number));
        Err(CallError::TooManyLogs { over: LogLimit::Blocks(tools.limits.max_blocks), first, last })
    }

    /// Answers with the logs of these canonical blocks.
    async fn of_blocks(
        &self,
        request: &Request,
        call: &LogsCall,
        range: CanonicalRange,
        tagged: &[(Tag, Link)],
    ) -> Result<Attempt, CallError> {
        let tools = &self.tools;
        let (since, first) = (range.since, range.first);
        let last = BlockNumber(first.0 + range.blocks.len() as u64 - 1);
        let search = Search::new(tools.clone(), call.filter.clone());
        let cold = Cold { content: &self.content, tools, request, call, search: &search };
        let mut plan = RangePlan::new(cold, range);
        if let Some(attempt) = plan.find(since).await? {
            return Ok(attempt);
        }
        if !plan.is_linked() {
            // If the node does not move, the blocks do not link in the next plans either, and `answer` asks the node.
            tools.renew().await?;
            return Ok(Attempt::Changed);
        }
        if let Some(attempt) = plan.confirm(since).await? {
            return Ok(attempt);
        }
        let is_overtaken = plan.is_forwarded() && tools.has_left(last, since);
        // A tag keeps the block that another call of the batch was answered from, whatever the chain does.
        let stays = first == last && tagged.iter().any(|(tag, _)| request.packet().is_answered(*tag));
        if !stays && (is_overtaken || tools.may_have_left(plan.named(), since)) {
            // The upstream may have shown a block of a branch that the view does not know yet.
            tools.renew().await?;
            return Ok(Attempt::Changed);
        }
        // After a reorg to a lower head, the blocks are gone. Otherwise the upstream lags.
        if let Err(error) = plan.has_searched_all() {
            return Ok(Attempt::Lagging(error));
        }
        let packet = request.packet();
        // Commit no tag if the other has moved already: a committed tag cannot be resolved anew.
        let are_pinned = tagged.iter().all(|(tag, link)| packet.tag(*tag) == Some(*link));
        if !are_pinned || !tagged.iter().all(|(tag, link)| packet.commit(*tag, *link)) {
            return Ok(Attempt::Moved);
        }
        if let Some((number, block)) = plan.named().last().filter(|_| plan.is_forwarded()) {
            tools.view().tell(Home { number, block });
        }
        plan.join().await.map(Attempt::Answered)
    }

    /// Returns a bound of a range; `None` if only the node knows the block of its tag.
    async fn bound(&self, request: &Request, at: At) -> Result<Option<Bound>, CallError> {
        let tag = match at {
            At::Number(number) => return Ok(Some(Bound::of_number(number))),
            At::Tag(tag) => tag,
            At::Hash(_) | At::Tx(_) => return Ok(None),
        };
        let packet = request.packet();
        let of_link = |link: Link| Bound { number: link.number, tagged: Some((tag, link)) };
        if let Some(link) = self.tools.meaning(tag, packet) {
            return Ok(Some(of_link(link)));
        }
        // The call for the block of the tag pins the tag.
        let part = if tag == Tag::Latest { Part::Number } else { Part::BlockWithHashes };
        match self.content.clone().call(request.to_resolve(Query::new(part, tag))).await {
            // No other call has used the tag.
            Err(CallError::Left { .. }) if packet.calls().len() == 1 => Err(CallError::Changed),
            Err(error) => Err(error),
            Ok(_) => Ok(packet.tag(tag).map(of_link)),
        }
    }
}

/// Unpins these tags of a batch, so that the next plan finds new blocks for them.
///
/// # Errors
/// If another call of the batch was answered from such a block, or its tag was pinned anew before.
fn release_tags(
    request: &Request,
    tagged: impl IntoIterator<Item = (Tag, Link)>,
) -> Result<Attempt, CallError> {
    let packet = request.packet();
    // Each plan of a single call has a packet of its own.
    let is_batch = packet.calls().len() > 1;
    let mut used = tagged.into_iter().filter(|(tag, link)| is_batch && !packet.unpin(*tag, *link));
    used.next().map_or(Ok(Attempt::Changed), |(tag, _)| Err(CallError::Left { tag }))
}

//! Answers a call that missed the cache: at the start of the program, during an outage, and by tag.

use std::{mem, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures_util::poll;
use tokio::time;

use super::{
    content::{ContentAnswerer, denies},
    fetcher::Fetched,
};
use crate::{
    chain::{Link, Stamp},
    eth::{Home, Part, Query, Tag},
    proxy::{
        call::{
            client_limit::ClientConcurrency, outcome::Answered, packet::PacketContext, query_call::QueryCall,
            waited,
        },
        error::CallError,
        head::{HeadTracker, SharedView},
        lookup::{CachedAnswer, LookupPlan, TagMeaning},
        tiers::Asks,
    },
    upstream::UpstreamError,
    verify::Content,
};

/// Number of rounds in which a tag is resolved. A reorg needs two more than a quiet chain: one to resolve the cleared tag
/// again, one to refresh the head after it.
const MAX_ROUNDS: u32 = 5;

/// Longest wait for the first answer of an upstream after the start; then tiers answer.
const SILENCE: Duration = Duration::from_secs(2);

/// Longest wait of a call that needs no head for the first head.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// Answers queries that missed the cache.
#[derive(Debug)]
pub(crate) struct Answerer {
    content: ContentAnswerer,
    concurrency: ClientConcurrency,
}

// === impl Answerer ===

impl Answerer {
    pub(crate) fn new(content: ContentAnswerer, concurrency: ClientConcurrency) -> Self {
        Self { content, concurrency }
    }

    pub(super) fn content(&self) -> &ContentAnswerer {
        &self.content
    }

    pub(super) fn concurrency(&self) -> &ClientConcurrency {
        &self.concurrency
    }

    fn head(&self) -> &Arc<HeadTracker> {
        self.content.fetcher().canon().head()
    }

    fn view(&self) -> &SharedView {
        self.content.fetcher().view()
    }

    /// Carries out the plan of a lookup, and looks up again after each wait, until there is an answer. Boxes rare
    /// paths to keep the future small.
    pub(super) async fn answer(
        self: Arc<Self>,
        asked: QueryCall,
        plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        if self.view().has_chain() {
            let answered = self.answer_with_upstream(&asked, plan).await;
            return self.or_load(&asked, answered).await;
        }
        Box::pin(self.answer_at_start(asked)).await
    }

    /// Answers a call before any upstream has shown its chain.
    async fn answer_at_start(self: Arc<Self>, asked: QueryCall) -> Result<Answered, CallError> {
        let load = || self.content.load(&asked, Asks::Never);
        if asked.query.names_hash()
            && let Some(answered) = load().await
        {
            // Content with this hash is the same on every chain.
            return Ok(answered);
        }
        let mut answering = pin!(self.answer_with_upstream(&asked, None));
        // Do not spend the whole time of the call on an upstream that hangs at the start.
        let loaded = async {
            time::sleep(SILENCE).await;
            load().await
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
                Box::pin(self.content.load(asked, Asks::Never)).await.ok_or(error)
            }
            answered => answered,
        }
    }

    async fn answer_with_upstream(
        &self,
        asked: &QueryCall,
        plan: Option<LookupPlan>,
    ) -> Result<Answered, CallError> {
        let mut confirming = pin!(self.content.forwarder().confirm_chain());
        let mut plan = match poll!(&mut confirming) {
            Poll::Ready(confirmed) => confirmed.map(|()| plan)?,
            // After a wait, look up again.
            Poll::Pending => confirming.await.map(|()| None)?,
        };
        let view = self.view();
        let arrival = asked.request.packet().arrival(view.clock());
        if !asked.query.names_hash() && view.tracker().head().is_none() {
            let establishing = self.head().establish_in_background(arrival);
            if asked.query.transaction().is_some() && !matches!(plan, Some(LookupPlan::Refresh(_))) {
                // A client that reads only transactions needs no head. But the view forgets answers from before the
                // first head, so the next call could not use them.
                waited::note_refresh(!establishing.is_ours);
                establishing.wait(HEAD_PATIENCE).await;
                plan = None;
            }
        }
        match asked.query.tag() {
            Some(tag) => self.answer_tag(asked, tag, arrival).await,
            None => self.content.answer(asked, arrival, plan).await,
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
                self.content.forwarder().confirm_chain().await?;
                let forwarding = Box::pin(self.content.forwarder().forward_as_asked(asked, arrival));
                let answered = self.concurrency.within(client, forwarding).await?.answered;
                // Every chain has a head, so `null` at an index of `latest` is about the content of a block, too.
                let lacks_index =
                    tag == Tag::Latest && asked.query.index.is_some() && answered.answer.is_null();
                let is_of_block = answered.answer.is_content() || lacks_index;
                // Nothing shows whether this answer is on the same branch as the answers to the packet's other calls by
                // tag.
                if is_of_block && packet.has_several_tags(tag) && !self.view().tracker().is_suspended() {
                    // The node has a block for the tag by now. Let the view learn of it once.
                    let is_again = mem::replace(&mut shown_again, true);
                    if is_again || self.head().refresh(tag, self.view().clock().now()).await.is_err() {
                        return Err(CallError::Left { tag });
                    }
                    continue;
                }
                return Ok(answered);
            };
            let answered = match asked.query.part {
                Part::Number => self.content.lookup().hit(asked.query, CachedAnswer::of_number(link.number)),
                _ => {
                    let asked = asked.of_block(link.hash);
                    match self.content.lookup().plan(asked.query, packet, None) {
                        LookupPlan::Hit(answer) => self.content.lookup().hit(asked.query, answer),
                        _ => {
                            let answering = Box::pin(self.content.answer(&asked, arrival, None));
                            self.concurrency.within(client, answering).await?
                        }
                    }
                }
            };
            let is_denied = self.is_denied(asked, link, &answered).await;
            let home = Home { number: link.number, block: link.hash };
            let is_left = || {
                let since = packet.holds_since(tag, self.view().clock());
                self.view().tracker().may_have_left(link.number, link.hash, since)
            };
            if (is_denied || is_left()) && packet.unpin(tag, link) {
                let now = self.view().clock().now();
                self.head().refresh(tag, now).await.map_err(CallError::Upstream)?;
                continue;
            }
            if is_denied || (is_left() && !packet.is_answered(tag)) {
                return Err(CallError::Left { tag });
            }
            // Once one call of the packet has used this block, the others use it, too, even if it has left the chain
            // since. If another call has found out that the block left the chain, and no call has used it yet, this
            // call starts over with the current block of the tag.
            if asked.request.resolves() || packet.commit(tag, link) {
                self.view().tell(home);
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
        let (packet, view) = (asked.request.packet(), self.view());
        let mut realigned = false;
        for _ in 0..MAX_ROUNDS {
            let refreshed = match self.content.lookup().meaning(tag, packet) {
                TagMeaning::Block(link) => return Ok(Some(link)),
                TagMeaning::Ahead(link) => match self.head().refresh(Tag::Latest, view.clock().now()).await {
                    // The node shows this block, even if it fails to show its head.
                    Err(_) if !view.tracker().is_suspended() => return self.pin_shown(tag, link, packet),
                    refreshed => refreshed,
                },
                TagMeaning::Nothing
                    if view.tracker().is_suspended() && view.tracker().may_refresh(arrival) =>
                {
                    self.head().refresh(Tag::Latest, view.clock().now()).await
                }
                TagMeaning::Nothing if view.tracker().is_suspended() && packet.has_several_tags(tag) => {
                    let shown = self.head().show(tag).await.map_err(CallError::Upstream)?;
                    let Some(link) = shown else { return Ok(None) };
                    return self.pin_shown(tag, link, packet);
                }
                TagMeaning::Nothing => return Ok(None),
                TagMeaning::Unknown => {
                    self.content.fetcher().refresh_for(asked.query.part, tag, arrival).await
                }
                TagMeaning::Unsure => self.head().refresh(Tag::Latest, view.clock().now()).await,
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
        match self.content.lookup().meaning(tag, packet) {
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
        packet.calls().len() == 1 && self.view().tracker().is_one_node()
    }

    /// Pins a tag to a block that the node shows, if that keeps the order of the packet's tags.
    fn pin_shown(&self, tag: Tag, link: Link, packet: &PacketContext) -> Result<Option<Link>, CallError> {
        self.content.lookup().pin_shown(tag, link, packet).map(Some).ok_or(CallError::Left { tag })
    }

    /// Refreshes these tags, and the head last, even if a call of the packet has used the head already. Otherwise the
    /// next packet would find the same two branches.
    async fn refresh_all(&self, tags: &[Tag]) -> Result<(), UpstreamError> {
        let view = self.view();
        for tag in tags.iter().filter(|tag| **tag != Tag::Latest) {
            match self.head().refresh(*tag, view.clock().now()).await {
                // The node has no block for this tag any more. That does not put the head on the branch of a block that
                // a call of the packet has used.
                Err(error) if !error.is_failure() => {}
                refreshed => refreshed?,
            }
        }
        self.head().refresh(Tag::Latest, view.clock().now()).await
    }

    /// Returns whether an answer says that the block of a tag does not exist. `null` for an index past the last
    /// transaction does not say so.
    async fn is_denied(&self, asked: &QueryCall, link: Link, answered: &Answered) -> bool {
        if !denies(&answered.answer) {
            return false;
        }
        let Some(index) = asked.query.index else { return true };
        let count = match self.content.fetcher().existing().transactions_in(link.hash) {
            Some(count) => count,
            None => {
                let now = self.view().clock().now();
                let fetched =
                    self.content.fetcher().fetch(Query::new(Part::BlockWithHashes, link.hash), now).await;
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

    /// Returns whether the error is a wrong answer that `verify.on_mismatch` lets pass.
    fn passes(&self, error: &UpstreamError) -> bool {
        matches!(error, UpstreamError::Rejected(_)) && !self.content.fetcher().verifier().rejects()
    }
}

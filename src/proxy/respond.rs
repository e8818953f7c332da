//! Answers a call that is allowed: from memory, or by what must be asked for it.

use std::{
    future::ready,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time;
use tower::Service;

use super::{
    Answered, CallError, Outcome, ReadCall, Request, Source,
    coalesce::Landed,
    config::Config,
    fetch::{Fetch, Fetched, Fetcher, is_settled},
    look::Look,
    packet::Wanted,
    recall::{Recollection, is_local},
    restore::Upstreams,
    turns::Turns,
    want::{Cacheable, cut},
};
use crate::{
    chain::{Lookup, Stamp},
    client::Client,
    eth::{BlockHash, Place, Tag, is_reset, is_write},
    jsonrpc::Answer,
    timeout::timeout,
    upstream::{Call, Identity, Need, Upstream, UpstreamError},
    verify::Verdict,
};

/// Canonicity is asked again after each wait; past this it has changed too often, and the node is asked.
const MOST_LOOKS: u32 = 3;

/// How long an answer that is in hand waits for the rest of its block, which others are likely to want.
const BUY_PATIENCE: Duration = Duration::from_secs(1);

/// So long an upstream that was never heard of may say nothing, before what tiers say is told unchecked.
const SILENCE: Duration = Duration::from_secs(2);

/// The innermost service of a call: answers what memory alone could not.
#[derive(Clone, Debug)]
pub(super) struct Responder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Arc<Recollection>,
    /// The memory's.
    fetcher: Arc<Fetcher>,
    upstream: Upstream,
    identity: Identity,
    turns: Turns,
}

// === impl Responder ===

impl Responder {
    pub(super) fn new(
        memory: Arc<Recollection>,
        upstream: Upstream,
        identity: Identity,
        config: &Config,
    ) -> Self {
        let fetcher = memory.fetcher().clone();
        let turns = Turns::new(config.max_per_client);
        Self(Arc::new(Inner { memory, fetcher, upstream, identity, turns }))
    }
}

impl Service<Request> for Responder {
    type Response = Answered;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answered, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let inner = &self.0;
        let (ReadCall { method, params, want, .. }, packet) = (request.call(), request.packet());
        let client = packet.caller().client;
        let call = || Call::new(method.clone(), params.clone());
        match want {
            Some(Ok(want)) => {
                let (method, params) = (method.clone(), params.clone());
                let asked = Cacheable { want: *want, method, params, packet: packet.clone() };
                inner.in_turn(client, inner.clone().answer(asked))
            }
            Some(Err(error)) => Box::pin(ready(Err(CallError::Params(error.clone())))),
            None if is_local(method, params) => inner.in_turn(client, inner.clone().local(call())),
            None if is_write(method.as_str()) => inner.in_turn(client, inner.clone().write(call())),
            None => inner.in_turn(client, inner.clone().bypass(call())),
        }
    }
}

/// Is there something in it that can be checked?
fn is_content(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result != "null")
}

// === impl Inner ===

impl Inner {
    /// Does what must be asked of the upstream when it is this client's turn.
    fn in_turn(
        &self,
        client: Option<Client>,
        work: impl Future<Output = Result<Answered, CallError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<Answered, CallError>> {
        // On the heap once and for all: it is large, and would be moved with each step until it begins.
        let (turns, work) = (self.turns.clone(), Box::pin(work));
        Box::pin(async move { turns.within(client, work).await })
    }

    /// Looks, asks for what is missing, and looks again. What is seldom done is boxed: the rest is lighter for it.
    async fn answer(self: Arc<Self>, asked: Cacheable) -> Result<Answered, CallError> {
        if asked.names_hash()
            && !self.fetcher.view.is_followed()
            && let Some(answered) = Box::pin(self.restore(&asked, Upstreams::Silent)).await
        {
            // Just started: what has this hash is known, whoever the upstream will be.
            return Ok(answered);
        }
        let mut answering = pin!(self.clone().answer_with_upstream(&asked));
        let answered = if self.fetcher.view.is_followed() {
            answering.await
        } else {
            // One that hangs at the start is not waited for to its end.
            let kept = Box::pin(async {
                time::sleep(SILENCE).await;
                self.restore(&asked, Upstreams::Silent).await
            });
            tokio::select! {
                answered = &mut answering => answered,
                Some(answered) = kept => return Ok(answered),
            }
        };
        let error = match answered {
            Err(error) if error.is_outage() => error,
            answered => return answered,
        };
        // Nobody can be asked: what was kept of it is as good as ever.
        Box::pin(self.restore(&asked, Upstreams::Silent)).await.ok_or(error)
    }

    /// Brings the answer back from a tier, if one has it.
    async fn restore(&self, asked: &Cacheable, upstreams: Upstreams) -> Option<Answered> {
        let arrival = asked.packet.arrival(self.fetcher.view.clock());
        let tier = self.fetcher.restore(asked.want, arrival, upstreams).await?;
        match self.memory.look(asked.want, &asked.packet) {
            Look::Hit(piece) => {
                let answered = self.memory.hit(asked.want, piece);
                let outcome = tier.map_or(answered.outcome, Outcome::Restored);
                Some(Answered { outcome, ..answered })
            }
            _ => None,
        }
    }

    async fn answer_with_upstream(self: Arc<Self>, asked: &Cacheable) -> Result<Answered, CallError> {
        self.confirm().await?;
        let view = &self.fetcher.view;
        let arrival = asked.packet.arrival(view.clock());
        if !asked.names_hash() && view.tracker().head().is_none() {
            // Whoever knows only transactions does not wait for a view, but what is kept for the next
            // one like it is believed only through one.
            view.establish_meanwhile(arrival);
        }
        let (mut denied, mut restored) = (None, false);
        for _ in 0..MOST_LOOKS {
            let look = self.memory.look(asked.want, &asked.packet);
            if let Look::Fetch(_) | Look::Buy(..) = look
                && !mem::replace(&mut restored, true)
                && let Some(answered) = Box::pin(self.restore(asked, Upstreams::Answer)).await
            {
                return Ok(answered);
            }
            let waited = match look {
                Look::Hit(piece) => return Ok(self.memory.hit(asked.want, piece)),
                Look::Forward => break,
                Look::Refresh(tag) => view.refresh(tag, arrival).await,
                Look::Establish => view.establish(arrival).await,
                Look::Fetch(fetch) if denied == Some(fetch) => {
                    // The view names it still, and the upstream has it not: may it say so itself.
                    self.fetcher.metrics.contrary();
                    break;
                }
                Look::Fetch(fetch) => match self.fetch(asked, fetch, arrival).await? {
                    Some(answered) => return Ok(answered),
                    // The view named a block that the upstream does not have: what is the view?
                    None => {
                        denied = Some(fetch);
                        view.refresh(Tag::Latest, view.clock().now()).await
                    }
                },
                Look::Renew(fetch, piece) => {
                    if !Box::pin(self.fetcher.renew(fetch, arrival)).await {
                        // What there is is still good.
                        return Ok(self.memory.hit(asked.want, piece));
                    }
                    Ok(())
                }
                Look::Buy(whole, alone) => {
                    if Box::pin(self.buy(whole, arrival)).await {
                        continue;
                    }
                    match self.fetch(asked, alone, arrival).await? {
                        Some(answered) => return Ok(answered),
                        None => break,
                    }
                }
            };
            match waited {
                Ok(()) => {}
                // What a head means was asked already, and not answered: asked once more past the view,
                // the answer could show a head that the view then knows nothing of.
                Err(error) if asked.names_tag() && error.is_failure() && !self.passes(&error) => {
                    return Err(CallError::Upstream(error));
                }
                // Without a view the node can still be asked, and will say what it has to say.
                Err(_) => break,
            }
        }
        // The wait may have shown a stranger.
        self.confirm().await?;
        Box::pin(self.forward_as_asked(asked, arrival)).await
    }

    /// Is this an answer that cannot be right, and is handed on all the same?
    fn passes(&self, error: &UpstreamError) -> bool {
        matches!(error, UpstreamError::Rejected(_)) && !self.fetcher.verifier.rejects()
    }

    /// Fetches, and cuts the answer out of what came; `None` if the view named what is not there.
    async fn fetch(
        self: &Arc<Self>,
        asked: &Cacheable,
        fetch: Fetch,
        arrival: Stamp,
    ) -> Result<Option<Answered>, CallError> {
        let Landed { value, joined, sent } =
            self.fetcher.fetch(fetch, arrival).await.map_err(CallError::Upstream)?;
        if let Some((number, hash)) = asked.misnumbered(&value) {
            // The view was told that this block stands where it cannot: what stands there?
            self.fetcher.view.change(|tracker| tracker.disown(number, hash));
            return Ok(None);
        }
        let outcome = |kept| match (joined, kept) {
            (true, _) => Outcome::Joined,
            (false, true) => Outcome::Stored,
            (false, false) => Outcome::Miss,
        };
        if let Fetched::Other(answer) = value {
            let denies_block = match fetch {
                Fetch::Block(_) | Fetch::Thin(_) | Fetch::Receipts(_) => true,
                // Past the end there is nothing in any block.
                Fetch::TransactionIn(block, index) => {
                    self.fetcher.cache.thin(block).is_none_or(|thin| index.0 < thin.len() as u64)
                }
                _ => false,
            };
            if denies_block && !asked.names_hash() && answer == Answer::Result(Bytes::from_static(b"null")) {
                return Ok(None);
            }
            let is_content = is_content(&answer);
            if is_content && !asked.takes(fetch) {
                // Not to be cut: in the form that was asked for it is the node's to give.
                return Box::pin(self.forward_as_asked(asked, arrival)).await.map(Some);
            }
            if is_content && self.demands_proof(asked) && self.fetcher.verifier.rejects() {
                return Err(CallError::Unproved);
            }
            return Ok(Some(Answered::new(answer, outcome(false))));
        }
        let answer = if self.demands_proof(asked) {
            Box::pin(self.prove_fetched(asked, fetch, &value, sent, arrival)).await?
        } else {
            // Not for long: the answer is in hand, and the purchase goes on without it.
            let _ = timeout(BUY_PATIENCE, self.buy_the_rest(&value, arrival)).await;
            cut(asked.want, &value)
        };
        let outcome = match self.fetcher.tier_of(&value) {
            Some(tier) => Outcome::Restored(tier),
            None => outcome(self.fetcher.is_kept(&value)),
        };
        match answer {
            Some(bytes) => Ok(Some(Answered::new(Answer::Result(bytes), outcome))),
            None => Box::pin(self.forward_as_asked(asked, arrival)).await.map(Some),
        }
    }

    fn demands_proof(&self, asked: &Cacheable) -> bool {
        self.fetcher.verifier.demands_proof(asked.want.kind())
    }

    /// The answer, proved. Something that came alone is first held against its block when that has come for
    /// the proof: if it is not what stands there, it is asked for once more, now against the block, so that
    /// whoever says it again is found out at once and another is asked.
    async fn prove_fetched(
        &self,
        asked: &Cacheable,
        fetch: Fetch,
        fetched: &Fetched,
        sent: Stamp,
        arrival: Stamp,
    ) -> Result<Option<Bytes>, CallError> {
        let is_lone = matches!(fetched, Fetched::Transaction(_) | Fetched::Receipt(_));
        let proved = self.fetcher.proved(asked.want, fetched, arrival, fetch.canonical(sent)).await;
        if !is_lone || !matches!(proved, Ok(None)) {
            return self.judge_proof(asked, fetched, proved);
        }
        let again = self.fetcher.fetch(fetch, self.fetcher.view.clock().now()).await;
        let Landed { value, sent, .. } = again.map_err(CallError::Upstream)?;
        match value {
            Fetched::Other(answer) if self.fetcher.verifier.rejects() && is_content(&answer) => {
                Err(CallError::Unproved)
            }
            Fetched::Other(_) => Ok(None),
            value => self.prove(asked, &value, arrival, fetch.canonical(sent)).await,
        }
    }

    /// The answer, proved; what cannot be is handed on, unless it must be proved.
    async fn prove(
        &self,
        asked: &Cacheable,
        fetched: &Fetched,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.fetcher.proved(asked.want, fetched, arrival, canonical).await;
        self.judge_proof(asked, fetched, proved)
    }

    fn judge_proof(
        &self,
        asked: &Cacheable,
        fetched: &Fetched,
        proved: Result<Option<Bytes>, UpstreamError>,
    ) -> Result<Option<Bytes>, CallError> {
        let rejects = self.fetcher.verifier.rejects();
        match proved {
            Ok(Some(proved)) => Ok(Some(proved)),
            Ok(None) if rejects => Err(CallError::Unproved),
            Err(error) if rejects => Err(CallError::Upstream(error)),
            Ok(None) | Err(_) => Ok(cut(asked.want, fetched)),
        }
    }

    /// Hands the call on as it is; its answer is checked, and not kept.
    async fn forward_as_asked(&self, asked: &Cacheable, arrival: Stamp) -> Result<Answered, CallError> {
        let (demands_proof, rejects) = (self.demands_proof(asked), self.fetcher.verifier.rejects());
        // As canonical as anything else that is asked for by what is canonical.
        let head = self.fetcher.view.tracker().head().map(|head| head.number);
        let block = asked.want.number().filter(|number| Some(*number) <= head);
        let followed = !asked.names_hash();
        // Nearer to the head another may be on another branch, and what it has there is no better than nothing.
        let null_elsewhere = block.is_some_and(|block| is_settled(block, head));
        let need = Need { block, followed, null_elsewhere, ..Need::default() };
        let call = asked.call().with_need(need);
        let Some(question) = asked.question() else {
            if asked.counts() && demands_proof && rejects {
                return Err(CallError::Unproved);
            }
            return self.forward(call, Outcome::Miss).await;
        };
        let check = self.fetcher.check(question, self.fetcher.view.clock().now());
        let answer = self.fetcher.ask(call, &check).await.map_err(CallError::Upstream)?;
        if !demands_proof || !is_content(&answer) {
            return Ok(Answered::new(answer, Outcome::Miss));
        }
        let proved = match check.verdict() {
            Some(Verdict::Passed(checked) | Verdict::Unproved(_, Some(checked))) => {
                self.prove(asked, &Fetched::from(checked), arrival, None).await?
            }
            _ if rejects => return Err(CallError::Unproved),
            _ => None,
        };
        Ok(Answered::new(proved.map_or(answer, Answer::Result), Outcome::Miss))
    }

    /// Fetches a whole block, or all its receipts; tells whether that worked.
    async fn buy(&self, whole: Fetch, arrival: Stamp) -> bool {
        let bought = self.fetcher.fetch(whole, arrival).await;
        let worked = bought.is_ok_and(|landed| self.fetcher.is_kept(&landed.value));
        if !worked {
            match whole {
                Fetch::Block(block) => self.memory.tally().give_up(Wanted::Transaction, block),
                Fetch::Receipts(block) => self.memory.tally().give_up(Wanted::Receipt, block),
                _ => {}
            }
        }
        worked
    }

    /// A second answer out of the same block: its neighbours are likely to be next.
    async fn buy_the_rest(&self, fetched: &Fetched, arrival: Stamp) {
        let (wanted, place, hash) = match fetched {
            Fetched::Transaction(lone) => match lone.place() {
                Some(place) => (Wanted::Transaction, place, lone.hash()),
                None => return,
            },
            Fetched::Receipt(lone) => (Wanted::Receipt, lone.place(), lone.hash()),
            Fetched::Block(_) | Fetched::Thin(_) | Fetched::Receipts(_) | Fetched::Other(_) => return,
        };
        if !self.fetcher.derivations.allow(wanted.derivation()) {
            return;
        }
        let whole = self.whole(wanted, place, arrival);
        if self.memory.tally().rent(wanted, place.block, hash)
            && !self.has_whole(wanted, place.block)
            && !self.fetcher.is_vain(whole)
        {
            Box::pin(self.buy(whole, arrival)).await;
        }
    }

    fn has_whole(&self, wanted: Wanted, block: BlockHash) -> bool {
        match wanted {
            Wanted::Transaction => self.fetcher.cache.block(block).is_some(),
            Wanted::Receipt => {
                self.fetcher.cache.receipts(block).is_some() || !self.fetcher.has_block_receipts()
            }
        }
    }

    /// By hash where it is sure that it stands there, else by number.
    fn whole(&self, wanted: Wanted, Place { block, number, .. }: Place, arrival: Stamp) -> Fetch {
        let surely = matches!(
            self.fetcher.view.tracker().lookup(number, arrival),
            Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } if at == block
        );
        match (wanted, surely) {
            (Wanted::Transaction, true) => Fetch::Block(block),
            (Wanted::Transaction, false) => Fetch::BlockAt(number),
            (Wanted::Receipt, true) => Fetch::Receipts(block),
            (Wanted::Receipt, false) => Fetch::ReceiptsAt(number),
        }
    }

    /// Makes sure that the upstream is who it should be, and that its chain is the one that is tracked.
    async fn confirm(&self) -> Result<(), CallError> {
        let who = self.identity.confirm().await?;
        self.fetcher.view.follow(&who);
        Ok(())
    }

    async fn forward(&self, call: Call, outcome: Outcome) -> Result<Answered, CallError> {
        let answer = self.upstream.call(call).await.map_err(CallError::Upstream)?;
        Ok(Answered::new(answer, outcome))
    }

    async fn bypass(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        self.confirm().await?;
        // One that is behind would answer for a head that is no more, and say nothing of it.
        let head = self.fetcher.view.tracker().head().map(|head| head.number);
        self.fetcher.view.look_around();
        self.forward(call.with_need(Need { head, ..Need::default() }), Outcome::Bypass).await
    }

    /// Waits for the upstream to say who it is; a node that does not know its network is asked each time.
    async fn local(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        match self.identity.confirm().await?.answer(call.method.as_str()) {
            Some(answer) => Ok(Answered::hit(answer, Source::Identity)),
            None => self.forward(call, Outcome::Bypass).await,
        }
    }

    /// A call that can change what reads see: before it is sent and when it is answered, nothing
    /// that was known of the chain counts any more.
    async fn write(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        self.confirm().await?;
        let resets = is_reset(call.method.as_str());
        self.unsettle(resets);
        // However it ends, also by the caller hanging up: it may have been carried out.
        let _again = Unsettle(&self, resets);
        // To the one that is read from, so that a client reads what it wrote.
        let need = Need { followed: true, ..Need::default() };
        self.forward(call.with_need(need), Outcome::Bypass).await
    }

    fn unsettle(&self, resets: bool) {
        let now = self.fetcher.view.unsettle(resets);
        self.fetcher.absences.forget(now);
        if resets {
            self.identity.doubt();
        }
    }
}

/// Unsettles the view when dropped.
struct Unsettle<'a>(&'a Inner, bool);

impl Drop for Unsettle<'_> {
    fn drop(&mut self) {
        self.0.unsettle(self.1);
    }
}

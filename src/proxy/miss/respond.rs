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
use tracing::debug;

use crate::{
    cache::Location,
    chain::{Link, Lookup, Stamp},
    client::Client,
    eth::{At, BlockHash, BlockNumber, Home, Part, Place, Query, Tag, is_reset, is_write},
    jsonrpc::Answer,
    proxy::{
        call::{
            cacheable::{Cacheable, cut},
            request::{Answered, Outcome, ReadCall, Request, Source},
        },
        config::Config,
        error::CallError,
        layers::cached::{Recollection, is_local},
        lookup::{Look, Meaning, Piece},
        miss::{
            client_limit::Turns,
            fetcher::{Fetched, Fetcher, canonical, is_settled},
            load::Upstreams,
            single_flight::Landed,
        },
    },
    timeout::timeout,
    upstream::{Call, Identity, Requirements, Upstream, UpstreamError, is_development, is_unknown_block},
    verify::{Content, Kind, Verdict},
};

/// Canonicity is asked again after each wait; past this it has changed too often, and the node is asked.
const MOST_LOOKS: u32 = 3;

/// A call that was planned again and again is forwarded; twice, if the first answer is of a block that left the chain.
const MOST_FORWARDS: usize = 2;

/// The upstream is asked again for what it must have after these pauses: replicas behind a balancer are rarely further apart.
const INSIST: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

/// How long an answer that is in hand waits for the rest of its block, which others are likely to want.
const BUY_PATIENCE: Duration = Duration::from_secs(1);

/// So long an upstream that was never heard of may say nothing, before what tiers say is told unchecked.
const SILENCE: Duration = Duration::from_secs(2);

/// The innermost service of a call: answers what memory alone could not.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Responder(Arc<Inner>);

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
    pub(in crate::proxy) fn new(
        memory: Arc<Recollection>,
        upstream: Upstream,
        identity: Identity,
        config: &Config,
    ) -> Self {
        let fetcher = memory.fetcher().clone();
        let turns = Turns::new(config.fetches);
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
        let (ReadCall { method, params, query, .. }, packet) = (request.call(), request.packet());
        let client = packet.caller().client;
        let call = || Call::new(method.clone(), params.clone());
        match query {
            Some(Ok(query)) => {
                let asked = Cacheable { query: *query, request: request.clone() };
                if query.tag().is_some() {
                    // Takes its turn once it knows the block: a refresh of the view is for all clients.
                    return Box::pin(inner.clone().answer(asked));
                }
                inner.in_turn(client, inner.clone().answer(asked))
            }
            Some(Err(error)) => Box::pin(ready(Err(CallError::Params(error.clone())))),
            None if is_local(method, params) => inner.in_turn(client, inner.clone().local(call())),
            None if is_write(method.as_str()) => inner.in_turn(client, inner.clone().write(call())),
            None => inner.in_turn(client, inner.clone().bypass(call())),
        }
    }
}

/// Returns whether a block is fetched by its hash.
fn is_block(fetch: Query) -> bool {
    fetch.names_hash() && matches!(fetch.part, Part::Block | Part::BlockWithHashes)
}

/// Returns whether an answer is a list without anything in it.
fn is_empty_list(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result == "[]")
}

/// Returns whether an answer says that there is no such block.
fn denies(answer: &Answer) -> bool {
    match answer {
        Answer::Result(_) => answer.is_null(),
        Answer::Error(error) => is_unknown_block(error),
    }
}

/// What came of a fetch.
enum Came {
    /// The answer.
    Answer(Answered),
    /// The chain changed meanwhile: it must be looked again.
    Changed,
    /// The upstream does not have a block that the view named.
    Denied,
}

/// What was known before a call was sent.
#[derive(Clone, Copy)]
struct Before {
    head: Option<Link>,
    /// The block at the number that the call names.
    asked: Option<BlockHash>,
}

/// A call that was forwarded.
struct Forwarded {
    answered: Answered,
    /// The block that the answer is of, where it names one.
    place: Option<Home>,
    before: Before,
    /// When the call was sent.
    sent: Stamp,
}

/// A block that is canonical in a fresh view.
#[derive(Clone, Copy, Debug)]
struct KnownBlock {
    number: BlockNumber,
    hash: BlockHash,
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
        if asked.query.names_hash()
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
        let arrival = asked.request.packet().arrival(self.fetcher.view.clock());
        let tier = self.fetcher.restore(asked.query, arrival, upstreams).await?;
        match self.memory.look(asked.query, asked.request.packet()) {
            Look::Hit(piece) => {
                let answered = self.memory.hit(asked.query, piece);
                let outcome = tier.map_or(answered.outcome, Outcome::Restored);
                Some(Answered { outcome, ..answered })
            }
            _ => None,
        }
    }

    async fn answer_with_upstream(self: Arc<Self>, asked: &Cacheable) -> Result<Answered, CallError> {
        self.confirm().await?;
        let view = &self.fetcher.view;
        let arrival = asked.request.packet().arrival(view.clock());
        if !asked.query.names_hash() && view.tracker().head().is_none() {
            // Whoever knows only transactions does not wait for a view, but what is kept for the next
            // one like it is believed only through one.
            view.establish_meanwhile(arrival);
        }
        match asked.query.tag() {
            Some(tag) => self.answer_tag(asked, tag, arrival).await,
            None => self.answer_content(asked, arrival).await,
        }
    }

    /// Answers a call that names its block by a tag. All calls of a packet are answered for the same block.
    async fn answer_tag(
        self: &Arc<Self>,
        asked: &Cacheable,
        tag: Tag,
        arrival: Stamp,
    ) -> Result<Answered, CallError> {
        let packet = asked.request.packet();
        let client = packet.caller().client;
        loop {
            // A head that is tracked is known to stay; the others may be below all that is tracked.
            let since = if tag == Tag::Latest { arrival } else { self.fetcher.view.clock().now() };
            let Some(link) = self.find_meaning(asked, tag, arrival).await? else {
                // The wait may have shown a stranger.
                self.confirm().await?;
                let forwarding = Box::pin(self.forward_as_asked(asked, arrival));
                let answered = self.turns.within(client, forwarding).await?.answered;
                let is_block = answered.answer.is_content();
                // Nothing tells whether it is the block that the other calls are answered from.
                if is_block && packet.shares(tag) && !self.fetcher.view.tracker().is_suspended() {
                    return Err(CallError::Left { tag });
                }
                return Ok(answered);
            };
            let answered = match asked.query.part {
                Part::Number => self.memory.hit(asked.query, Piece::of_number(link.number)),
                _ => {
                    let asked = asked.of_block(link.hash);
                    match self.memory.look(asked.query, packet) {
                        Look::Hit(piece) => self.memory.hit(asked.query, piece),
                        _ => {
                            self.turns.within(client, Box::pin(self.answer_content(&asked, arrival))).await?
                        }
                    }
                }
            };
            let is_denied = self.is_denied(asked, link, &answered).await;
            if (is_denied || self.is_left(tag, link, since)) && packet.unpin(tag, link) {
                let now = self.fetcher.view.clock().now();
                self.fetcher.view.refresh(tag, now).await.map_err(CallError::Upstream)?;
                continue;
            }
            if is_denied || (self.is_left(tag, link, since) && !packet.is_answered(tag)) {
                return Err(CallError::Left { tag });
            }
            // Once a call was answered from a block, so are the others, though it has left the chain since. If another call
            // found first that it left, this one starts over with the block that the tag means now.
            if packet.commit(tag, link) {
                return Ok(answered);
            }
        }
    }

    /// The block that a tag means; `None` if the node decides.
    async fn find_meaning(
        &self,
        asked: &Cacheable,
        tag: Tag,
        arrival: Stamp,
    ) -> Result<Option<Link>, CallError> {
        let (packet, view) = (asked.request.packet(), &self.fetcher.view);
        for _ in 0..MOST_LOOKS {
            let refreshed = match self.memory.meaning(tag, packet) {
                Meaning::Block(link) => return Ok(Some(link)),
                Meaning::Nothing if view.tracker().is_suspended() && view.tracker().may_refresh(arrival) => {
                    view.refresh(Tag::Latest, view.clock().now()).await
                }
                Meaning::Nothing => return Ok(None),
                Meaning::Unknown => view.refresh(tag, arrival).await,
                Meaning::Unsure => view.refresh(Tag::Latest, view.clock().now()).await,
                Meaning::Apart => match packet.realign(tag) {
                    Some(tags) => self.refresh_all(&tags).await,
                    None => return Err(CallError::Left { tag }),
                },
            };
            match refreshed {
                Ok(()) => {}
                // While canonicity is suspended, the node is asked as the client asked.
                Err(_) if view.tracker().is_suspended() => return Ok(None),
                // What a head means was asked already, and not answered: asked once more past the view,
                // the answer could show a head that the view then knows nothing of.
                Err(error) if error.is_failure() && !self.passes(&error) => {
                    return Err(CallError::Upstream(error));
                }
                // The node can still be asked, and will say what it has to say.
                Err(_) => return Ok(None),
            }
        }
        match self.memory.meaning(tag, packet) {
            Meaning::Block(link) => Ok(Some(link)),
            Meaning::Apart | Meaning::Unsure => Err(CallError::Left { tag }),
            Meaning::Unknown | Meaning::Nothing => Ok(None),
        }
    }

    /// Asks again what these tags mean, and last what the head is: whether or not a call was answered from it, the next packet
    /// must not find the same two branches.
    async fn refresh_all(&self, tags: &[Tag]) -> Result<(), UpstreamError> {
        let view = &self.fetcher.view;
        for tag in tags.iter().filter(|tag| **tag != Tag::Latest) {
            view.refresh(*tag, view.clock().now()).await?;
        }
        view.refresh(Tag::Latest, view.clock().now()).await
    }

    /// Returns whether an answer says that there is no such block. Past the end of a block there is nothing, either.
    async fn is_denied(&self, asked: &Cacheable, link: Link, answered: &Answered) -> bool {
        if !denies(&answered.answer) {
            return false;
        }
        let Some(index) = asked.query.index else { return true };
        let count = match self.fetcher.transactions_in(link.hash) {
            Some(count) => count,
            None => {
                let now = self.fetcher.view.clock().now();
                let fetched = self.fetcher.fetch(Query::new(Part::BlockWithHashes, link.hash), now).await;
                match fetched.map(|landed| landed.value) {
                    Ok(Fetched::Content(Content::BlockWithHashes(thin))) => thin.len() as u64,
                    // It is there, in whatever form; what it has at that position is the node's to say.
                    Ok(Fetched::Other(answer)) if !denies(&answer) => return false,
                    Ok(_) | Err(_) => return true,
                }
            }
        };
        index.0 < count
    }

    /// Returns whether the block that a tag means may have left the chain since then.
    fn is_left(&self, tag: Tag, link: Link, since: Stamp) -> bool {
        let tracker = self.fetcher.view.tracker();
        let is_above = || tracker.head().is_some_and(|head| head.number < link.number) && !tracker.lags();
        tracker.may_have_left(link.number, link.hash, since) || (tag == Tag::Latest && is_above())
    }

    /// Answers a call that names a hash, a number or a transaction.
    async fn answer_content(
        self: &Arc<Self>,
        asked: &Cacheable,
        arrival: Stamp,
    ) -> Result<Answered, CallError> {
        let view = &self.fetcher.view;
        let (mut denied, mut restored, mut confirmed) = (None, false, false);
        for _ in 0..MOST_LOOKS {
            let look = self.memory.look(asked.query, asked.request.packet());
            if let Look::Fetch(_) | Look::Buy(..) | Look::Confirm(..) = look
                && !mem::replace(&mut restored, true)
                && let Some(answered) = Box::pin(self.restore(asked, Upstreams::Answer)).await
            {
                return Ok(answered);
            }
            let waited = match look {
                Look::Hit(piece) => return Ok(self.memory.hit(asked.query, piece)),
                Look::Forward | Look::Tagged => break,
                Look::Refresh(tag) => view.refresh(tag, arrival).await,
                Look::Establish => view.establish(arrival).await,
                Look::Fetch(fetch) if denied == Some(fetch) => {
                    // The view names it still, and the upstream has it not: may it say so itself.
                    self.fetcher.metrics.contrary();
                    break;
                }
                Look::Fetch(fetch) => match self.fetch(asked, fetch, arrival).await? {
                    Came::Answer(answered) => return Ok(answered),
                    Came::Changed => Ok(()),
                    // The view named a block that the upstream does not have: what is the view?
                    Came::Denied => {
                        denied = Some(fetch);
                        view.refresh(Tag::Latest, view.clock().now()).await
                    }
                },
                Look::Confirm(block, alone) => {
                    let is_first = !mem::replace(&mut confirmed, true);
                    if is_first && Box::pin(self.confirm_place(asked, block, arrival)).await {
                        continue;
                    }
                    match self.fetch(asked, alone, arrival).await? {
                        Came::Answer(answered) => return Ok(answered),
                        Came::Changed => Ok(()),
                        Came::Denied => break,
                    }
                }
                Look::Renew(fetch, piece) => {
                    if !Box::pin(self.fetcher.renew(fetch, arrival)).await
                        && let Look::Renew(..) | Look::Hit(_) =
                            self.memory.look(asked.query, asked.request.packet())
                    {
                        // What there is is still good, and still canonical.
                        return Ok(self.memory.hit(asked.query, piece));
                    }
                    Ok(())
                }
                Look::Buy(whole, alone) => {
                    if Box::pin(self.buy(whole, arrival)).await {
                        continue;
                    }
                    match self.fetch(asked, alone, arrival).await? {
                        Came::Answer(answered) => return Ok(answered),
                        Came::Changed => Ok(()),
                        Came::Denied => break,
                    }
                }
            };
            if waited.is_err() {
                // Without a view the node can still be asked, and will say what it has to say.
                break;
            }
        }
        // The wait may have shown a stranger.
        self.confirm().await?;
        for _ in 0..MOST_FORWARDS {
            let forwarded = Box::pin(self.forward_as_asked(asked, arrival)).await?;
            if !self.is_excluded(asked, &forwarded).await {
                return Ok(forwarded.answered);
            }
        }
        Err(CallError::Changed)
    }

    /// Fetches the block at a number where something that was fetched alone is said to be. Returns whether it came; if it
    /// shows that the other is not there, that is dropped.
    async fn confirm_place(&self, asked: &Cacheable, block: Query, arrival: Stamp) -> bool {
        let fetched = self.fetcher.fetch(block, arrival).await;
        let (number, hash, thin) = match fetched.map(|landed| landed.value) {
            Ok(Fetched::Content(Content::Block(block))) => (block.header().number, block.hash(), None),
            Ok(Fetched::Content(Content::BlockWithHashes(thin))) => {
                (thin.header().number, thin.hash(), Some(thin))
            }
            _ => return false,
        };
        let Some(transaction) = asked.query.transaction() else { return true };
        let cache = &self.fetcher.cache;
        let block = cache.block(hash);
        let is_at = |index| match (&block, &thin) {
            (Some(block), _) => block.transaction_hash(index) == Some(transaction),
            (None, Some(thin)) => thin.lists(transaction),
            (None, None) => true,
        };
        for Location { home, index } in cache.locations(transaction) {
            let stands = home.block == hash && is_at(index);
            if home.number == number && !stands {
                cache.remove_single(home.block, index);
            }
        }
        true
    }

    /// Is this an answer that cannot be right, and is handed on all the same?
    fn passes(&self, error: &UpstreamError) -> bool {
        matches!(error, UpstreamError::Rejected(_)) && !self.fetcher.verifier.rejects()
    }

    /// Fetches, and cuts the answer out of what came.
    async fn fetch(
        self: &Arc<Self>,
        asked: &Cacheable,
        fetch: Query,
        arrival: Stamp,
    ) -> Result<Came, CallError> {
        if self.fetcher.is_lacking(fetch) && self.known(asked, fetch).is_some() {
            return Err(CallError::Lacking { what: fetch });
        }
        let before = self.before(asked);
        let Landed { value, joined, sent } = match self.fetcher.fetch(fetch, arrival).await {
            Ok(landed) => landed,
            // Asked for more than the client wants, the node may have more to say than there is room for, or refuse.
            Err(error @ (UpstreamError::TooLarge { .. } | UpstreamError::Status(_)))
                if !asked.takes(fetch) =>
            {
                if let (UpstreamError::TooLarge { .. }, Part::Block) = (error, fetch.part) {
                    self.fetcher.found_vain(fetch);
                }
                return self.forward_instead(asked, arrival).await;
            }
            Err(error) => return Err(CallError::Upstream(error)),
        };
        let known = match &value {
            Fetched::Short(_) => self.known(asked, fetch),
            Fetched::Other(answer) if answer.is_null() => self.known(asked, fetch),
            Fetched::Other(answer) if is_empty_list(answer) => match self.known(asked, fetch) {
                Some(known) => self.lists_some(known).await.then_some(known),
                None => None,
            },
            _ => None,
        };
        let (value, joined, sent) = match known {
            None => (value, joined, sent),
            Some(known) => match Box::pin(self.insist(asked, fetch, known)).await? {
                Some(Landed { value, joined, sent }) => (value, joined, sent),
                None => return Ok(Came::Changed),
            },
        };
        if let Some((number, hash)) = asked.misnumbered(&value) {
            // The view was told that this block stands where it cannot: what stands there?
            self.fetcher.view.learn(|tracker, _| tracker.remove(number, hash));
            return Ok(Came::Denied);
        }
        let place = match &value {
            Fetched::Content(content) => content.named_home(),
            Fetched::Short(_) | Fetched::Other(_) => None,
        };
        let is_error = matches!(value, Fetched::Other(Answer::Error(_)));
        if !is_error && self.is_overtaken(asked, place, before, sent) {
            return Ok(Came::Changed);
        }
        let outcome = |kept| match (joined, kept) {
            (true, _) => Outcome::Joined,
            (false, true) => Outcome::Stored,
            (false, false) => Outcome::Miss,
        };
        let content = match value {
            Fetched::Content(content) => content,
            Fetched::Short(answer) => {
                // On a development chain the node is taken at its word.
                let is_development = self.fetcher.view.tracker().rules().development;
                let answered = Answered::new(answer, outcome(false));
                return Ok(if is_development { Came::Answer(answered) } else { Came::Denied });
            }
            Fetched::Other(answer) => {
                if self.denies_block(asked, fetch, &answer) {
                    if let Some(number) = asked.query.number().filter(|_| !is_block(fetch)) {
                        self.check_place(number).await;
                    }
                    return Ok(Came::Denied);
                }
                let is_content = answer.is_content();
                // A count of no block is the node's to give, too: nodes differ.
                if !asked.takes(fetch)
                    && (is_content || asked.query.is_count() || matches!(answer, Answer::Error(_)))
                {
                    if fetch.part == Part::Block {
                        self.fetcher.found_vain(fetch);
                    }
                    // Not to be cut, or an answer to what the client did not ask: it is the node's to give in the form that
                    // was asked for.
                    return self.forward_instead(asked, arrival).await;
                }
                if is_content && self.demands_proof(asked) && self.fetcher.verifier.rejects() {
                    return Err(CallError::Unproved);
                }
                return Ok(Came::Answer(Answered::new(answer, outcome(false))));
            }
        };
        let answer = if self.demands_proof(asked) {
            Box::pin(self.prove_fetched(asked, fetch, &content, sent, arrival)).await?
        } else {
            // Not for long: the answer is in hand, and the purchase goes on without it.
            let _ = timeout(BUY_PATIENCE, self.buy_the_rest(&content, arrival)).await;
            cut(asked.query, &content)
        };
        // The proof, or the rest of the block, took its time too.
        if self.is_overtaken(asked, place, before, sent) {
            return Ok(Came::Changed);
        }
        let outcome = match self.fetcher.tier_of(&content) {
            Some(tier) => Outcome::Restored(tier),
            None => outcome(self.fetcher.is_kept(&content)),
        };
        match answer {
            Some(bytes) => Ok(Came::Answer(Answered::new(Answer::Result(bytes), outcome))),
            None => self.forward_instead(asked, arrival).await,
        }
    }

    async fn forward_instead(&self, asked: &Cacheable, arrival: Stamp) -> Result<Came, CallError> {
        let forwarded = Box::pin(self.forward_as_asked(asked, arrival)).await?;
        if self.is_excluded(asked, &forwarded).await {
            return Ok(Came::Changed);
        }
        Ok(Came::Answer(forwarded.answered))
    }

    /// Returns whether a forwarded answer is of a block that may have left the chain, by a view that is at least as new.
    async fn is_excluded(&self, asked: &Cacheable, forwarded: &Forwarded) -> bool {
        let view = &self.fetcher.view;
        let Forwarded { answered, place, before, sent } = forwarded;
        // What is known to be there is not absent.
        let is_absent = answered.answer.is_null()
            && asked.query.index.is_none()
            && before.asked.is_some()
            && !view.tracker().rules().development;
        let may_have_left = || match place {
            None if is_absent => self.before(asked).asked.is_some(),
            Some(home) => view.tracker().may_have_left(home.number, home.block, *sent),
            None => {
                matches!(answered.answer, Answer::Result(_)) && self.has_changed_at(asked, *before, *sent)
            }
        };
        if asked.query.names_hash() || !may_have_left() {
            return false;
        }
        // The answer may be newer than the view.
        view.refresh(Tag::Latest, view.clock().now()).await.is_err() || may_have_left()
    }

    /// What is known before a call is sent.
    fn before(&self, asked: &Cacheable) -> Before {
        let tracker = self.fetcher.view.tracker();
        let known_at = |number| tracker.known_at(number);
        Before { head: tracker.head(), asked: asked.query.number().and_then(known_at) }
    }

    /// Returns whether the chain changed under an answer while it was waited for. An orphan is served by its hash.
    fn is_overtaken(&self, asked: &Cacheable, place: Option<Home>, before: Before, sent: Stamp) -> bool {
        !asked.query.names_hash()
            && match place {
                Some(place) => self.has_changed(place, before, sent),
                None => self.has_changed_at(asked, before, sent),
            }
    }

    /// Returns whether a block may have left the chain since an answer about it was asked for, or a head below its number was
    /// accepted.
    fn has_changed(&self, Home { block, number }: Home, before: Before, sent: Stamp) -> bool {
        self.is_above_new_head(number, before)
            || self.fetcher.view.tracker().may_have_left(number, block, sent)
    }

    /// The same for an answer that names no block: another one is known at the number that was asked for than before, or
    /// blocks left the chain and nothing was known of them.
    fn has_changed_at(&self, asked: &Cacheable, before: Before, sent: Stamp) -> bool {
        let now = self.before(asked).asked;
        now != before.asked
            || (now.is_none() && self.fetcher.view.tracker().has_left(sent))
            || asked.query.number().is_some_and(|number| self.is_above_new_head(number, before))
    }

    /// Returns whether another head than before was accepted, and is below this number.
    fn is_above_new_head(&self, number: BlockNumber, before: Before) -> bool {
        let now = self.fetcher.view.tracker().head();
        now != before.head && now.is_some_and(|now| now.number < number)
    }

    /// Returns whether a block has transactions, and so receipts.
    async fn lists_some(&self, known: KnownBlock) -> bool {
        if self.fetcher.transactions_in(known.hash).is_none() {
            let block = Query::new(Part::BlockWithHashes, known.hash);
            let _ = self.fetcher.fetch(block, self.fetcher.view.clock().now()).await;
        }
        self.fetcher.transactions_in(known.hash).is_some_and(|count| count > 0)
    }

    /// Returns whether an answer says that a block which the view named is not there.
    fn denies_block(&self, asked: &Cacheable, fetch: Query, answer: &Answer) -> bool {
        let At::Hash(block) = fetch.at else { return false };
        // Past the end there is nothing in any block.
        let count = fetch.index.and_then(|_| self.fetcher.transactions_in(block));
        let is_of_block = fetch.index.zip(count).is_none_or(|(index, count)| index.0 < count);
        let denies = is_of_block && !asked.query.names_hash() && denies(answer);
        let number = asked.query.number().or_else(|| Some(self.fetcher.view.cached_link(block)?.number));
        if let Some(number) = number.filter(|_| denies && is_block(fetch)) {
            self.fetcher.view.learn(|tracker, _| tracker.remove_denied(number, block));
        }
        denies
    }

    // ## Answers that must be there

    /// The block that an answer must be of, if it is known to exist: the view has that block, and if the answer is about a
    /// transaction, a cached block lists it. Whether the view is fresh is seen to before anything is made of it.
    fn known(&self, asked: &Cacheable, fetch: Query) -> Option<KnownBlock> {
        let view = &self.fetcher.view;
        if view.tracker().rules().development {
            return None;
        }
        let arrival = asked.request.packet().arrival(view.clock());
        let known_at = |number: BlockNumber| {
            let hash = view.tracker().canonical_at(number, arrival)?;
            Some(KnownBlock { number, hash })
        };
        let known_as = |hash: BlockHash| {
            let number = asked.query.number().or_else(|| Some(view.cached_link(hash)?.number));
            let number = number.or_else(|| view.tracker().tracked_number(hash))?;
            known_at(number).filter(|known| known.hash == hash)
        };
        let is_listed = |known: &KnownBlock| {
            let Some(index) = fetch.index else { return true };
            self.fetcher.transactions_in(known.hash).is_some_and(|count| index.0 < count)
        };
        let known = match fetch.at {
            At::Hash(hash) => known_as(hash),
            At::Number(number) => known_at(number),
            At::Tag(_) => None,
            At::Tx(transaction) => {
                let (number, hash) = self.fetcher.known_home(transaction, arrival)?;
                Some(KnownBlock { number, hash })
            }
        };
        known.filter(is_listed)
    }

    /// The upstream does not have what must be there. Asks again, of another endpoint if there is one, unless the block
    /// turns out to have left the chain: `None` then.
    async fn insist(
        &self,
        asked: &Cacheable,
        fetch: Query,
        known: KnownBlock,
    ) -> Result<Option<Landed<Fetched>>, CallError> {
        let view = &self.fetcher.view;
        let arrival = asked.request.packet().arrival(view.clock());
        let is_known = || view.tracker().canonical_at(known.number, arrival) == Some(known.hash);
        if is_block(fetch) && view.learn(|tracker, _| tracker.remove_denied(known.number, known.hash)) {
            return Ok(None);
        }
        for pause in INSIST {
            // If that fails, the next attempt may not.
            let _ = view.refresh(Tag::Latest, view.clock().now()).await;
            if !is_known() {
                return Ok(None);
            }
            time::sleep(pause).await;
            match self.fetcher.fetch_anywhere(fetch).await {
                Ok(Landed { value: Fetched::Other(answer), .. })
                    if answer.is_null() || is_empty_list(&answer) => {}
                Ok(Landed { value: Fetched::Short(_), .. }) | Err(_) => {}
                Ok(landed) => return Ok(Some(landed)),
            }
        }
        self.check_place(known.number).await;
        if !is_known() {
            return Ok(None);
        }
        self.fetcher.note_lacking(fetch);
        debug!(what = %fetch, method = asked.request.call().method.as_str(), "upstream lacks a known block, transaction or receipt; answering -32010");
        Err(CallError::Lacking { what: fetch })
    }

    /// Asks which block stands at a number, so that the view learns if it is another than it takes it to be. A node that lacks
    /// receipts says nothing about their block: it may have pruned them.
    async fn check_place(&self, number: BlockNumber) {
        let block = Query::new(Part::BlockWithHashes, number);
        let _ = self.fetcher.fetch(block, self.fetcher.view.clock().now()).await;
    }

    fn demands_proof(&self, asked: &Cacheable) -> bool {
        self.fetcher.verifier.demands_proof(Kind::of(asked.query.part))
    }

    /// The answer, proved. Something that came alone is first held against its block when that has come for
    /// the proof: if it is not what stands there, it is asked for once more, now against the block, so that
    /// whoever says it again is found out at once and another is asked.
    async fn prove_fetched(
        &self,
        asked: &Cacheable,
        fetch: Query,
        content: &Content,
        sent: Stamp,
        arrival: Stamp,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.fetcher.proved(asked.query, content, arrival, canonical(fetch, sent)).await;
        if !content.is_single() || !matches!(proved, Ok(None)) {
            return self.judge_proof(asked, content, proved);
        }
        let again = self.fetcher.fetch(fetch, self.fetcher.view.clock().now()).await;
        let Landed { value, sent, .. } = again.map_err(CallError::Upstream)?;
        match value {
            Fetched::Content(content) => self.prove(asked, &content, arrival, canonical(fetch, sent)).await,
            Fetched::Short(answer) | Fetched::Other(answer)
                if self.fetcher.verifier.rejects() && answer.is_content() =>
            {
                Err(CallError::Unproved)
            }
            Fetched::Short(_) | Fetched::Other(_) => Ok(None),
        }
    }

    /// The answer, proved; what cannot be is handed on, unless it must be proved.
    async fn prove(
        &self,
        asked: &Cacheable,
        content: &Content,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.fetcher.proved(asked.query, content, arrival, canonical).await;
        self.judge_proof(asked, content, proved)
    }

    fn judge_proof(
        &self,
        asked: &Cacheable,
        content: &Content,
        proved: Result<Option<Bytes>, UpstreamError>,
    ) -> Result<Option<Bytes>, CallError> {
        let rejects = self.fetcher.verifier.rejects();
        match proved {
            Ok(Some(proved)) => Ok(Some(proved)),
            Ok(None) if rejects => Err(CallError::Unproved),
            Err(error) if rejects => Err(CallError::Upstream(error)),
            Ok(None) | Err(_) => Ok(cut(asked.query, content)),
        }
    }

    /// Hands the call on as it is; its answer is checked, and not kept.
    async fn forward_as_asked(&self, asked: &Cacheable, arrival: Stamp) -> Result<Forwarded, CallError> {
        let (demands_proof, rejects) = (self.demands_proof(asked), self.fetcher.verifier.rejects());
        // As canonical as anything else that is asked for by what is canonical.
        let head = self.fetcher.view.tracker().head().map(|head| head.number);
        let block = asked.query.number().filter(|number| Some(*number) <= head);
        let primary = !asked.query.names_hash();
        // Nearer to the head another may be on another branch, and what it has there is no better than nothing.
        let retry_null = block.is_some_and(|block| is_settled(block, head));
        let need = Requirements { block, primary, retry_null, ..Requirements::default() };
        let call = asked.call().with_requirements(need);
        let (before, sent) = (self.before(asked), self.fetcher.view.clock().now());
        let question = asked.query;
        if !question.is_verifiable() {
            let answered = self.forward(call, Outcome::Miss).await?;
            if asked.query.is_count() && demands_proof && rejects && answered.answer.is_content() {
                return Err(CallError::Unproved);
            }
            return Ok(Forwarded { answered, place: None, before, sent });
        }
        let check = self.fetcher.check(question, sent);
        let answer = self.fetcher.ask(call, &check).await.map_err(CallError::Upstream)?;
        let content = match check.verdict() {
            Some(Verdict::Passed(content) | Verdict::Unproved(_, Some(content))) => Some(content),
            Some(Verdict::Short) if !self.fetcher.view.tracker().rules().development => {
                return Err(CallError::Lacking { what: question });
            }
            _ => None,
        };
        let place = content.as_ref().and_then(Content::named_home);
        if !demands_proof || !answer.is_content() {
            return Ok(Forwarded { answered: Answered::new(answer, Outcome::Miss), place, before, sent });
        }
        let proved = match content {
            Some(content) => self.prove(asked, &content, arrival, None).await?,
            None if rejects => return Err(CallError::Unproved),
            None => None,
        };
        let answer = proved.map_or(answer, Answer::Result);
        Ok(Forwarded { answered: Answered::new(answer, Outcome::Miss), place, before, sent })
    }

    /// Fetches a whole block, or all its receipts; tells whether that worked.
    async fn buy(&self, whole: Query, arrival: Stamp) -> bool {
        let bought = self.fetcher.fetch(whole, arrival).await;
        let is_kept = |content| self.fetcher.is_kept(content);
        let worked =
            matches!(&bought, Ok(Landed { value: Fetched::Content(content), .. }) if is_kept(content));
        if !worked && let At::Hash(block) = whole.at {
            let single = if whole.part == Part::Receipts { Part::Receipt } else { Part::Transaction };
            self.memory.tally().give_up(single, block);
        }
        worked
    }

    /// A second answer out of the same block: its neighbours are likely to be next.
    async fn buy_the_rest(&self, content: &Content, arrival: Stamp) {
        let (part, place, hash) = match content {
            Content::Transaction(lone) => match lone.place() {
                Some(place) => (Part::Transaction, place, lone.hash()),
                None => return,
            },
            Content::Receipt(lone) => (Part::Receipt, lone.place(), lone.hash()),
            _ => return,
        };
        if !self.fetcher.derivations.allow(part) {
            return;
        }
        let whole = self.whole(part, place, arrival);
        if self.memory.tally().rent(part, place.block, hash)
            && !self.has_whole(part, place.block)
            && !self.fetcher.is_vain(whole)
        {
            Box::pin(self.buy(whole, arrival)).await;
        }
    }

    fn has_whole(&self, part: Part, block: BlockHash) -> bool {
        let Fetcher { cache, .. } = &*self.fetcher;
        match part {
            Part::Receipt => cache.receipts(block).is_some() || !self.fetcher.has_block_receipts(),
            _ => cache.block(block).is_some(),
        }
    }

    /// By hash where it is sure that it stands there, else by number.
    fn whole(&self, part: Part, Place { block, number, .. }: Place, arrival: Stamp) -> Query {
        let surely = matches!(
            self.fetcher.view.tracker().lookup(number, arrival),
            Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } if at == block
        );
        let at = if surely { At::Hash(block) } else { At::Number(number) };
        Query::new(part.whole(), at)
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
        if self.upstream.is_preferred_check_due() {
            // A client that only has calls forwarded never asks for the head, and would stay with a spare.
            let view = self.fetcher.view.clone();
            tokio::spawn(async move { view.refresh(Tag::Latest, view.clock().now()).await });
        }
        self.forward(call.with_requirements(self.forwarded()), Outcome::Bypass).await
    }

    /// Returns the need of a forwarded call. A node that is behind would answer for an older head than clients have seen, and
    /// the answer would not show it.
    fn forwarded(&self) -> Requirements {
        let head = self.fetcher.view.tracker().head().map(|head| head.number);
        Requirements { head, forwarded: true, ..Requirements::default() }
    }

    /// Waits for the upstream to say who it is; a node that does not know its network is asked each time.
    async fn local(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        let who = self.identity.confirm().await?;
        let known = who.answer(call.method.as_str());
        match known {
            Some(answer) if !is_development(who.chain_id) => Ok(Answered::hit(answer, Source::Identity)),
            known => {
                let answered =
                    self.forward(call.with_requirements(self.forwarded()), Outcome::Bypass).await?;
                if known.is_some_and(|known| answered.answer != Answer::Result(known)) {
                    // The node was told to have another id: it is another chain from here on.
                    self.identity.require_recheck();
                    self.confirm().await?;
                }
                Ok(answered)
            }
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
        let need = Requirements { primary: true, ..Requirements::default() };
        self.forward(call.with_requirements(need), Outcome::Bypass).await
    }

    fn unsettle(&self, resets: bool) {
        let now = self.fetcher.view.unsettle(resets);
        self.fetcher.absences.forget(now);
        if resets {
            self.identity.require_recheck();
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

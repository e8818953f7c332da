//! The innermost service: answers misses.

use std::{
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};
use tower::Service;

use super::{answer::Answerer, deflate::Deflater, fetcher::Fetcher, forward::Forwarder};
use crate::{
    client::Client,
    eth::{ParamError, Query, SingleReceipt, Tag, is_reset, is_write},
    jsonrpc::Answer,
    proxy::{
        call::{
            client_limit::ClientConcurrency,
            outcome::{Answered, Outcome},
            query_call::QueryCall,
            read_call::ReadCall,
            request::Request,
            waited,
        },
        error::CallError,
        lookup::LookupPlan,
    },
    upstream::{Call, Identity, Requirements, Upstream, is_development},
    verify::Verifier,
};

/// A call that the cache did not answer.
#[derive(Debug)]
pub(crate) struct Missed {
    pub(crate) request: Request,
    /// The plan of the lookup; `None` if there was no lookup.
    pub(crate) plan: Option<LookupPlan>,
}

/// Answers misses.
#[derive(Clone, Debug)]
pub(crate) struct Responder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answerer: Arc<Answerer>,
    forwarder: Forwarder,
    upstream: Upstream,
    identity: Identity,
    concurrency: ClientConcurrency,
    verifier: Verifier,
    deflater: Deflater,
}

// === impl Responder ===

impl Responder {
    pub(crate) fn new(
        answerer: Answerer,
        upstream: Upstream,
        verifier: Verifier,
        deflater: Deflater,
    ) -> Self {
        Self(Arc::new(Inner {
            forwarder: answerer.content().forwarder().clone(),
            concurrency: answerer.concurrency().clone(),
            answerer: Arc::new(answerer),
            identity: upstream.identity(),
            upstream,
            verifier,
            deflater,
        }))
    }
}

impl Service<Missed> for Responder {
    type Response = Answered;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answered, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, missed: Missed) -> Self::Future {
        let accepts = missed.request.packet().caller().accepts_deflated();
        let answering = self.0.respond(missed);
        if !accepts {
            return answering;
        }
        let inner = self.0.clone();
        Box::pin(async move {
            let answered = answering.await?;
            let is_forwarded = matches!(answered.outcome, Outcome::Bypass | Outcome::Miss);
            Ok(if is_forwarded { inner.deflater.deflate(answered).await } else { answered })
        })
    }
}

// === impl Inner ===

impl Inner {
    fn fetcher(&self) -> &Fetcher {
        self.answerer.content().fetcher()
    }

    fn respond(
        self: &Arc<Self>,
        Missed { request, plan }: Missed,
    ) -> BoxFuture<'static, Result<Answered, CallError>> {
        let inner = self;
        let (ReadCall { method, params, .. }, packet) = (request.call(), request.packet());
        let client = packet.caller().client;
        let call = || Call::new(method.clone(), params.clone());
        match request.query() {
            Some(Ok(_)) if request.call().requires_canonical && inner.verifier.must_prove() => {
                Box::pin(ready(Err(CallError::Unproved)))
            }
            // The node knows whether the block is canonical.
            Some(Ok(_)) if request.call().requires_canonical => {
                inner.limited(client, inner.clone().bypass(call()))
            }
            Some(Ok(query)) => inner.answer(query, request.clone(), plan),
            Some(Err(error)) if packet.caller().policy.is_strict() || inner.verifier.must_prove() => {
                Box::pin(ready(Err(CallError::Params(error.clone()))))
            }
            // Nodes accept forms that the cache does not know, such as integers: the node decides.
            Some(Err(_)) => inner.limited(client, inner.clone().bypass(call())),
            None if inner.verifier.must_prove() && Query::is_method(method.as_str()) => {
                Box::pin(ready(Err(CallError::Params(ParamError::unreadable()))))
            }
            None if request.call().is_local() => inner.limited(client, inner.clone().local(call())),
            None if is_write(method.as_str()) => inner.limited(client, inner.clone().write(call())),
            None => inner.limited(client, inner.clone().bypass(call())),
        }
    }

    /// Runs `work` with a permit of this client.
    fn limited(
        &self,
        client: Option<Client>,
        work: impl Future<Output = Result<Answered, CallError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<Answered, CallError>> {
        // Box the future here: it is large, and each wrapper around it would move it.
        let (concurrency, work) = (self.concurrency.clone(), Box::pin(work));
        Box::pin(async move { concurrency.within(client, work).await })
    }

    /// Answers a query. Uses the plan only if a permit is free at once; after a wait, looks up the query again.
    fn answer(
        &self,
        query: Query,
        request: Request,
        plan: Option<LookupPlan>,
    ) -> BoxFuture<'static, Result<Answered, CallError>> {
        let client = request.packet().caller().client;
        let (concurrency, answerer) = (self.concurrency.clone(), self.answerer.clone());
        let asked = QueryCall { query, request };
        if query.tag().is_some() {
            // A query by tag takes its permit once the block is known: a refresh of the view serves all clients.
            return Box::pin(waited::labelled(answerer.answer(asked, None)));
        }
        Box::pin(waited::labelled(async move {
            let (permit, plan) = match concurrency.take(client).now_or_never() {
                Some(permit) => (permit, plan),
                None => (concurrency.take(client).await, None),
            };
            concurrency.with(client, permit, Box::pin(answerer.answer(asked, plan))).await
        }))
    }

    async fn bypass(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        self.forwarder.confirm_chain().await?;
        if self.upstream.is_preferred_check_due() {
            // A client whose calls all bypass the cache never refreshes the head, and would stay with a fallback
            // endpoint.
            let head = self.fetcher().canon().head().clone();
            tokio::spawn(async move { head.refresh(Tag::Latest, head.view().clock().now()).await });
        }
        self.forwarder.forward(call.with_requirements(self.forwarder.requirements()), Outcome::Bypass).await
    }

    /// Answers `eth_chainId` and `net_version` once the upstream has shown its chain. Forwards `net_version` if the
    /// network id is unknown, and both on a development chain.
    async fn local(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        let chain = self.identity.confirm().await?;
        let known = chain.answer(call.method.as_str());
        match known {
            Some(answer) if !is_development(chain.chain_id) => {
                Ok(Answered::new(Answer::Result(answer), Outcome::Joined))
            }
            known => {
                let asks_id = call.method.as_str() == "eth_chainId";
                let call = call.with_requirements(self.forwarder.requirements());
                let answered = self.forwarder.forward(call, Outcome::Bypass).await?;
                let has_id = matches!(answered.answer, Answer::Result(_)) && asks_id;
                if (has_id && chain.is_unknown())
                    || known.is_some_and(|known| answered.answer != Answer::Result(known))
                {
                    // The node now has another chain id, so it serves another chain.
                    self.identity.require_recheck();
                    self.forwarder.confirm_chain().await?;
                }
                Ok(answered)
            }
        }
    }

    /// Forwards a call that can change the chain. Sending the call makes the view stale, and so does its answer.
    async fn write(self: Arc<Self>, call: Call) -> Result<Answered, CallError> {
        self.forwarder.confirm_chain().await?;
        let resets = is_reset(call.method.as_str());
        self.invalidate(resets);
        // Invalidate again at the end, even if the client disconnects: the node may have executed the call.
        let _again = InvalidateOnDrop(&self, resets);
        // To the primary even if it lags, so that a client reads its own writes.
        let need = Requirements { forwarded: true, ..Requirements::default() };
        let waits_for_receipt = call.method.as_str() == "eth_sendRawTransactionSync";
        let answered = self.forwarder.forward(call.with_requirements(need), Outcome::Bypass).await?;
        if waits_for_receipt
            && let Answer::Result(receipt) = &answered.answer
            && let Ok(receipt) = SingleReceipt::read(receipt.clone())
        {
            self.fetcher().view().tell(receipt.place().home());
        }
        Ok(answered)
    }

    fn invalidate(&self, resets: bool) {
        let now = self.fetcher().view().invalidate_after_write(resets);
        self.fetcher().state().absences.forget(now);
        if resets {
            self.identity.require_recheck();
        }
    }
}

/// Makes the view stale when dropped.
struct InvalidateOnDrop<'a>(&'a Inner, bool);

impl Drop for InvalidateOnDrop<'_> {
    fn drop(&mut self) {
        self.0.invalidate(self.1);
    }
}

//! Answers calls from the cache, before any layer that may wait.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use crate::{
    eth::At,
    proxy::{
        call::{
            outcome::{Answered, Source},
            read_call::ReadCall,
            request::Request,
        },
        error::CallError,
        head::SharedView,
        lookup::{CacheLookup, LookupPlan},
        miss::respond::Missed,
    },
    upstream::{Identity, is_development},
};

/// Puts a [`Cached`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct CachedLayer {
    pub(crate) lookup: Arc<CacheLookup>,
    pub(crate) view: Arc<SharedView>,
    pub(crate) identity: Identity,
}

/// Answers cache hits, and passes each miss to the inner service with the plan of its lookup. Every request clones it,
/// so it shares the parts of the lookup as one reference.
#[derive(Clone, Debug)]
pub(crate) struct Cached<S> {
    inner: S,
    layer: Arc<CachedLayer>,
}

// === impl CachedLayer ===

impl<S> Layer<S> for CachedLayer {
    type Service = Cached<S>;

    fn layer(&self, inner: S) -> Cached<S> {
        Cached { inner, layer: Arc::new(self.clone()) }
    }
}

impl CachedLayer {
    /// Returns the answer to a call or, for a miss, the plan of its lookup; `None` if the call makes no valid query, or
    /// if it requires its block to be canonical and the view does not know that it is.
    fn look_up(&self, request: &Request) -> Either<Answered, Option<LookupPlan>> {
        let packet = request.packet();
        let query = match request.query() {
            Some(Ok(query)) => query,
            Some(Err(_)) => return Either::Right(None),
            None => return self.local(request.call()).map_or(Either::Right(None), Either::Left),
        };
        if !packet.has_arrival() {
            self.view.notice_clock_jumps(packet.arrival(self.view.clock()));
        }
        if let At::Hash(hash) = query.at
            && request.call().requires_canonical
            && !self.view.tracker().is_canonical(hash, packet.arrival(self.view.clock()))
        {
            return Either::Right(None);
        }
        match self.lookup.plan(query, packet, None) {
            LookupPlan::Hit(answer) => Either::Left(self.lookup.hit(query, answer)),
            plan => Either::Right(Some(plan)),
        }
    }

    /// Answers `eth_chainId` and `net_version`, except on development chains, whose nodes can change their chain id at
    /// any time.
    fn local(&self, call: &ReadCall) -> Option<Answered> {
        let chain = call.is_local().then(|| self.identity.pinned())??;
        if is_development(chain.chain_id) {
            return None;
        }
        chain.answer(call.method.as_str()).map(|answer| Answered::hit(answer, Source::Identity))
    }
}

// === impl Cached ===

impl<S> Service<Request> for Cached<S>
where
    S: Service<Missed, Response = Answered, Error = CallError>,
{
    type Response = Answered;
    type Error = CallError;
    type Future = Either<Ready<Result<Answered, CallError>>, S::Future>;

    // A hit never waits here, because the inner layers are always ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.layer.look_up(&request) {
            Either::Left(answered) => Either::Left(ready(Ok(answered))),
            Either::Right(plan) => Either::Right(self.inner.call(Missed { request, plan })),
        }
    }
}

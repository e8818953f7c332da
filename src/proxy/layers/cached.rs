//! Answers from memory what is there, before anything that may wait.

use std::{
    cell::Cell,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use crate::{
    eth::{Query, Tag},
    jsonrpc::{Answer, MethodName, Params},
    proxy::{
        call::{
            packet::PacketContext,
            request::{Answered, Outcome, ReadCall, Request, Source},
        },
        error::CallError,
        lookup::{Last, Look, Meaning, Memory, Piece, compress::Compressor, prefetch::Tally},
        miss::fetcher::Fetcher,
    },
    upstream::{Identity, is_development},
    verify::Kind,
};

/// Methods whose answer cannot change.
const LOCAL: [&str; 2] = ["eth_chainId", "net_version"];

/// Puts a [`Recall`] around a service.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct RecallLayer(pub(in crate::proxy) Arc<Recollection>);

/// Answers what is in memory, and hands on what is not.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Recall<S> {
    inner: S,
    memory: Arc<Recollection>,
}

/// What is in memory, and what happens when it is told.
#[derive(Debug)]
pub(in crate::proxy) struct Recollection {
    fetcher: Arc<Fetcher>,
    identity: Identity,
    tally: Tally,
    compressor: Compressor,
}

/// Is this about who the node is?
pub(in crate::proxy) fn is_local(method: &MethodName, params: &Params) -> bool {
    LOCAL.contains(&method.as_str()) && *params == Params::EMPTY
}

// === impl RecallLayer ===

impl<S> Layer<S> for RecallLayer {
    type Service = Recall<S>;

    fn layer(&self, inner: S) -> Recall<S> {
        Recall { inner, memory: self.0.clone() }
    }
}

// === impl Recall ===

impl<S> Service<Request> for Recall<S>
where
    S: Service<Request, Response = Answered, Error = CallError>,
{
    type Response = Answered;
    type Error = CallError;
    type Future = Either<Ready<Result<Answered, CallError>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.memory.recall(&request) {
            Some(answered) => Either::Left(ready(Ok(answered))),
            None => Either::Right(self.inner.call(request)),
        }
    }
}

// === impl Recollection ===

impl Recollection {
    pub(in crate::proxy) fn new(fetcher: Arc<Fetcher>, identity: Identity) -> Self {
        Self { tally: Tally::new(), compressor: Compressor::default(), fetcher, identity }
    }

    pub(in crate::proxy) fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    pub(in crate::proxy) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn recall(&self, request: &Request) -> Option<Answered> {
        let ReadCall { method, params, query, .. } = request.call();
        let packet = request.packet();
        let Some(query) = query else {
            let who = is_local(method, params).then(|| self.identity.pinned())??;
            if is_development(who.chain_id) {
                // Its node can be told to have another id at any time.
                return None;
            }
            return who.answer(method.as_str()).map(|answer| Answered::hit(answer, Source::Identity));
        };
        let query = *query.as_ref().ok()?;
        let view = &self.fetcher.view;
        if !packet.has_arrived() {
            view.notice_clock_jumps(packet.arrival(view.clock()));
        }
        let Look::Hit(piece) = self.look(query, packet) else { return None };
        Some(self.hit(query, piece))
    }

    /// What memory says to a call.
    pub(in crate::proxy) fn look(&self, query: Query, packet: &PacketContext) -> Look {
        let memory = self.memory();
        match (memory.look(query, packet), query.tag(), memory.pinned.get()) {
            // Another call found meanwhile that this block left the chain.
            (Look::Hit(_), Some(tag), Some(link)) if !packet.commit(tag, link) => Look::Tagged,
            (look, ..) => look,
        }
    }

    fn memory(&self) -> Memory<'_> {
        let fetcher = &self.fetcher;
        Memory {
            cache: &fetcher.cache,
            view: &fetcher.view,
            absences: &fetcher.absences,
            tally: &self.tally,
            has_block_receipts: fetcher.has_block_receipts(),
            demands: Kind::ALL.map(|kind| fetcher.verifier.demands(kind)),
            vain: fetcher,
            derivations: &fetcher.derivations,
            last: Last::default(),
            pinned: Cell::new(None),
        }
    }

    /// What a tag means to all calls of a packet.
    pub(in crate::proxy) fn meaning(&self, tag: Tag, packet: &PacketContext) -> Meaning {
        self.memory().meaning(tag, packet.arrival(self.fetcher.view.clock()), packet)
    }

    /// What was found, as an answer, deflated where it can be.
    pub(in crate::proxy) fn hit(&self, query: Query, Piece { bytes, source, whole, .. }: Piece) -> Answered {
        let deflated = whole.and_then(|whole| self.compressor.deflated(&self.fetcher, whole, &bytes));
        let outcome = match source {
            Source::Cached(part) if part != query.part => Outcome::Derived(source),
            _ => Outcome::Hit(source),
        };
        Answered { deflated, ..Answered::new(Answer::Result(bytes), outcome) }
    }
}

//! Answers a packet: its entries side by side, its replies in order.

use std::{
    future::{Future, poll_fn, ready},
    sync::Arc,
    task::Poll,
    vec,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{Either, OptionFuture},
    stream::FuturesOrdered,
};
use http::{HeaderValue, Response, StatusCode, Version, header};
use tokio::task;
use tower::Service;

use super::batch::{Batch, EntryReply, FinishedBatch};
use crate::{
    budget::{ByteBudget, Exhausted, SMALL},
    client::Client,
    eth::is_write,
    http::{
        config::Config,
        error::HttpError,
        metrics::Metrics,
        response::{
            body::RpcBody,
            cache_status,
            gzip::{self, Mark},
            rescue,
        },
    },
    jsonrpc::{Answer, Entry, ErrorObject, Packet, RawId, ReplyWriter, Rope},
    proxy::{Answered, CallError, Caller, Outcome, PacketContext, ReadCall, Request},
};

/// Runs the entries of packets on a service that answers calls.
#[derive(Debug)]
pub(in crate::http) struct Packets<P> {
    pub(in crate::http) proxy: P,
    /// Counts large answers while they wait for their clients.
    pub(in crate::http) bytes: ByteBudget,
    pub(in crate::http) metrics: Metrics,
}

/// How a response is to look.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct ResponseShape {
    pub(in crate::http) version: Version,
    /// Does it depend on what the client says that it accepts?
    pub(in crate::http) varies: bool,
}

/// Entries of a batch between which others get their turn: where all is in memory, nothing else makes it pause, and a
/// few clients with huge batches would keep everybody behind them waiting.
const YIELD_AFTER: usize = 32;

/// Entries of a batch that may run side by side.
struct BatchSection {
    packet: Arc<PacketContext>,
    slots: Vec<EntrySlot>,
    /// It is one entry alone, and that is a write.
    is_write: bool,
}

/// An entry of a packet, made out.
enum EntrySlot {
    /// The call at this place among the packet's calls.
    Call(usize),
    Refused {
        id: RawId,
        error: ErrorObject,
    },
    /// Nothing comes back for it, and nothing is done.
    Nothing,
}

// === impl Packets ===

impl<P> Packets<P>
where
    P: Service<Request, Response = Answered, Error = CallError> + Clone,
{
    /// The answer to a packet, under the limits of the moment.
    ///
    /// What can be done at once is done before anything is waited for, so that a call alone carries along no more than
    /// it waits for.
    pub(in crate::http) fn answer<'a>(
        &'a self,
        limits: &'a Config,
        packet: Packet,
        caller: Caller,
        shape: ResponseShape,
    ) -> impl Future<Output = Result<Response<RpcBody>, HttpError>> + use<'a, P> {
        match packet {
            Packet::Single(entry) => Either::Left(self.alone(entry, caller, shape)),
            // On the heap, as there is room for a hundred calls in it.
            Packet::Batch(entries) => {
                Either::Right(Box::pin(self.batch(limits, entries, caller, shape)).map(Ok))
            }
        }
    }

    fn alone(
        &self,
        entry: Entry,
        caller: Caller,
        shape: ResponseShape,
    ) -> impl Future<Output = Result<Response<RpcBody>, HttpError>> + use<'_, P> {
        let is_write = matches!(&entry, Entry::Call(call) if is_write(call.method.as_str()));
        let client = caller.client;
        let (id, replying) = match made_out(entry) {
            Ok(mut call) => {
                let id = call.id.take();
                (id, Either::Left(begin(&mut self.proxy.clone(), Request::alone(caller, call)).map(Some)))
            }
            Err(EntrySlot::Refused { id, error }) => {
                (Some(id), Either::Right(ready(Some(EntryReply::refused(&error, &caller)))))
            }
            Err(_) => {
                let _ = caller.charge();
                (None, Either::Right(ready(None)))
            }
        };
        replying.map(move |reply| match (id, reply) {
            (Some(id), Some(reply)) => {
                let mut response = self.single(&id, reply, shape);
                self.count(&mut response, client, is_write)?;
                Ok(response)
            }
            _ => Ok(no_content(shape)),
        })
    }

    async fn batch(
        &self,
        limits: &Config,
        entries: Vec<Entry>,
        caller: Caller,
        shape: ResponseShape,
    ) -> Response<RpcBody> {
        let mut batch = Batch::new(limits, &self.bytes, caller.client);
        let mut entries = entries.into_iter();
        while !entries.as_slice().is_empty() {
            let section = BatchSection::next(&mut entries, &caller);
            self.section(&section, limits.batch_concurrency.max(1), &mut batch).await;
        }
        let Some(done) = batch.finish() else { return no_content(shape) };
        let FinishedBatch { rope, marks, cache_status, mut lease, left_out } = done;
        let mut response = self.json(rope, &marks, shape, cache_status);
        if let Some((reason, calls)) = left_out {
            self.metrics.left_out(reason, calls);
        }
        let size = response.body().len();
        if size > SMALL {
            // Compressed it may be less.
            lease.hold(size);
            response.body_mut().hold(lease);
        }
        response
    }

    /// Runs entries side by side, so many at a time. What is there at the first look, as answers from memory are,
    /// is written at once: it waits in no queue unless an entry before it does.
    async fn section(&self, section: &BatchSection, concurrency: usize, batch: &mut Batch<'_>) {
        let mut proxy = self.proxy.clone();
        let caller = section.packet.caller();
        let is_write = section.is_write;
        // A write is alone: it waits for nothing before it.
        let counted = |reply: Option<EntryReply>| match reply {
            Some(reply) if !is_write => Some(reply.counted(&self.bytes, caller.client)),
            reply => reply,
        };
        batch.look_at_the_clock();
        let mut waiting = FuturesOrdered::new();
        let mut begun = 0_usize;
        let mut ids = section.slots.iter().map(|slot| section.id(slot));
        let mut next = Box::pin(OptionFuture::from(None));
        loop {
            while waiting.len() < concurrency {
                let Some(slot) = section.slots.get(begun) else { break };
                let reply = match (slot, batch.over()) {
                    (EntrySlot::Call(_), Some(reason)) => {
                        Poll::Ready(Some(EntryReply::not_begun(reason, caller)))
                    }
                    (EntrySlot::Call(index), None) => {
                        next.set(
                            Some(begin(&mut proxy, Request::new(section.packet.clone(), *index))).into(),
                        );
                        poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await
                    }
                    (EntrySlot::Refused { error, .. }, _) => {
                        Poll::Ready(Some(EntryReply::refused(error, caller)))
                    }
                    (EntrySlot::Nothing, _) => {
                        let _ = caller.charge();
                        Poll::Ready(None)
                    }
                };
                match reply {
                    Poll::Ready(reply) if waiting.is_empty() => {
                        batch.write(ids.next().flatten(), reply, is_write);
                    }
                    Poll::Ready(reply) => waiting.push_back(Either::Left(ready(counted(reply)))),
                    // What is polled stays where it is: it moves on with its box.
                    Poll::Pending => {
                        let waits = std::mem::replace(&mut next, Box::pin(OptionFuture::from(None)));
                        waiting.push_back(Either::Right(waits.map(counted)));
                    }
                }
                begun += 1;
                if begun.is_multiple_of(YIELD_AFTER) {
                    task::yield_now().await;
                    batch.look_at_the_clock();
                }
            }
            match waiting.next().await {
                Some(reply) => batch.write(ids.next().flatten(), reply, is_write),
                None => return,
            }
            batch.look_at_the_clock();
        }
    }
}

// === impl Packets ===

impl<P> Packets<P> {
    fn single(
        &self,
        id: &RawId,
        EntryReply { answer, outcome, deflated, .. }: EntryReply,
        shape: ResponseShape,
    ) -> Response<RpcBody> {
        let mut writer = ReplyWriter::single();
        let (answer, failure) = match answer {
            Ok(answer) => (answer, None),
            Err(failure) => (Answer::from(&failure.error), Some(failure)),
        };
        let start = writer.write(id, answer);
        let mark = deflated.map(|deflated| Mark { start, deflated });
        let cache_status =
            HeaderValue::from_static(outcome.map_or(cache_status::UNANSWERED, Outcome::cache_status));
        let mut response =
            self.json(writer.finish().unwrap_or_default(), mark.as_slice(), shape, cache_status);
        if let Some(failure) = failure {
            failure.mark(&mut response);
        }
        response
    }

    /// Large answers count while they wait to be taken: clients that ask for much and take little would otherwise fill the
    /// memory with it. What a write came to is told in any case: whoever is told to try again would send it twice.
    fn count(
        &self,
        response: &mut Response<RpcBody>,
        client: Option<Client>,
        is_write: bool,
    ) -> Result<(), HttpError> {
        let size = response.body().len();
        if size <= SMALL {
            return Ok(());
        }
        let mut lease = self.bytes.lease(client);
        if is_write {
            lease.hold(size);
        } else {
            lease.grow(size).map_err(|full| match full {
                Exhausted::Total => HttpError::Overloaded,
                Exhausted::Client => HttpError::ClientLimit,
            })?;
        }
        response.body_mut().hold(lease);
        Ok(())
    }

    /// As gzip, if there is a deflated form of anything in it; only callers who take gzip are handed one.
    fn json(
        &self,
        plain: Rope,
        marks: &[Mark],
        shape: ResponseShape,
        cache_status: HeaderValue,
    ) -> Response<RpcBody> {
        let size = plain.len();
        let rope = if marks.is_empty() { plain } else { gzip::stitch(plain, marks) };
        let sent = rope.len();
        let mut response = Response::new(RpcBody::new(rope, shape.version));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(cache_status::NAME, cache_status);
        if !marks.is_empty() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            self.metrics.compressed(size, sent);
        }
        shape.mark(&mut response);
        response
    }
}

/// Begins a call; a panic spoils nothing else.
fn begin<P>(proxy: &mut P, request: Request) -> impl Future<Output = EntryReply> + use<P>
where
    P: Service<Request, Response = Answered, Error = CallError>,
{
    rescue::guarded(|| proxy.call(request)).map(|answered| match answered {
        Ok(Ok(Answered { answer, outcome, deflated })) => EntryReply::new(answer, Some(outcome), deflated),
        Ok(Err(error)) => EntryReply::failed(rescue::call_error(&error)),
        Err(panic) => EntryReply::failed(rescue::panicked(&*panic)),
    })
}

/// The call that an entry is, or what it is instead.
fn made_out(entry: Entry) -> Result<ReadCall, EntrySlot> {
    match entry {
        Entry::Refused { id, error } => Err(EntrySlot::Refused { id, error }),
        Entry::Ignored => Err(EntrySlot::Nothing),
        // Nobody learns what a read found that nobody waits for.
        Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => Err(EntrySlot::Nothing),
        Entry::Call(call) => Ok(call.into()),
    }
}

// === impl BatchSection ===

impl BatchSection {
    /// Takes the entries that may run side by side: reads up to the next write, or one write alone.
    ///
    /// A write is a barrier in both directions, so that a batch reads what it wrote and its
    /// transactions reach the node in their order.
    fn next(entries: &mut vec::IntoIter<Entry>, caller: &Caller) -> Self {
        let writes = |entry: &Entry| matches!(entry, Entry::Call(call) if is_write(call.method.as_str()));
        let reads = entries.as_slice().iter().take_while(|entry| !writes(entry)).count();
        let len = reads.max(1);
        let (mut slots, mut calls) = (Vec::with_capacity(len), Vec::with_capacity(len));
        for entry in entries.by_ref().take(len) {
            slots.push(match made_out(entry) {
                Ok(call) => {
                    calls.push(call);
                    EntrySlot::Call(calls.len() - 1)
                }
                Err(slot) => slot,
            });
        }
        Self { packet: Arc::new(PacketContext::new(caller.clone(), calls)), slots, is_write: reads == 0 }
    }

    /// Under which the reply to an entry is written; `None` if nobody waits for one.
    fn id<'a>(&'a self, slot: &'a EntrySlot) -> Option<&'a RawId> {
        match slot {
            EntrySlot::Call(index) => self.packet.calls()[*index].id.as_ref(),
            EntrySlot::Refused { id, .. } => Some(id),
            EntrySlot::Nothing => None,
        }
    }
}

// === impl ResponseShape ===

impl ResponseShape {
    fn mark(self, response: &mut Response<RpcBody>) {
        if self.varies {
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
    }
}

fn no_content(shape: ResponseShape) -> Response<RpcBody> {
    let mut response = Response::new(RpcBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(cache_status::NAME, HeaderValue::from_static(cache_status::UNANSWERED));
    shape.mark(&mut response);
    response
}

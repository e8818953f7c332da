//! Answers a packet: runs its entries concurrently, and writes the replies in the order of the entries.

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

/// Runs the entries of packets on the proxy service.
#[derive(Debug)]
pub(in crate::http) struct Packets<P> {
    pub(in crate::http) proxy: P,
    /// Budget for the bytes of large answers that clients have not read yet.
    pub(in crate::http) bytes: ByteBudget,
    pub(in crate::http) metrics: Metrics,
}

/// The parts of a request that shape the response.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct ResponseShape {
    pub(in crate::http) version: Version,
    /// Whether the response depends on `accept-encoding`.
    pub(in crate::http) varies: bool,
}

/// Number of entries after which a batch yields to other tasks. Cache hits never wait, so without this a few clients
/// with huge batches would delay all other clients.
const YIELD_AFTER: usize = 32;

/// Entries of a batch that may run concurrently.
struct BatchSection {
    packet: Arc<PacketContext>,
    slots: Vec<EntrySlot>,
    /// Whether the section is a single write.
    is_write: bool,
}

/// A classified entry of a packet.
enum EntrySlot {
    /// The call at this index among the packet's calls.
    Call(usize),
    Refused {
        id: RawId,
        error: ErrorObject,
    },
    /// An entry that is neither executed nor answered.
    Nothing,
}

// === impl Packets ===

impl<P> Packets<P>
where
    P: Service<Request, Response = Answered, Error = CallError> + Clone,
{
    /// Answers a packet under the limits in force.
    ///
    /// A single call begins before the returned future is polled, so that the future stores only the state of the
    /// running call.
    pub(in crate::http) fn answer<'a>(
        &'a self,
        limits: &'a Config,
        packet: Packet,
        caller: Caller,
        shape: ResponseShape,
    ) -> impl Future<Output = Result<Response<RpcBody>, HttpError>> + use<'a, P> {
        match packet {
            Packet::Single(entry) => Either::Left(self.alone(entry, caller, shape)),
            // The future of a batch is boxed, because it is far larger than the future of a single call.
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
                let _ = caller.charge(1);
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
            // The lease covers the plain replies. The response may be smaller, because it may be compressed.
            lease.hold(size);
            response.body_mut().hold(lease);
        }
        response
    }

    /// Runs entries concurrently, up to `concurrency` at a time. A reply that is ready at the first poll, such as a
    /// cache hit, is written at once, unless it has to wait for an earlier entry.
    async fn section(&self, section: &BatchSection, concurrency: usize, batch: &mut Batch<'_>) {
        let mut proxy = self.proxy.clone();
        let caller = section.packet.caller();
        let is_write = section.is_write;
        // A write is alone in its section, so its reply waits for no other reply and is not counted here.
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
                        let _ = caller.charge(1);
                        Poll::Ready(None)
                    }
                };
                match reply {
                    Poll::Ready(reply) if waiting.is_empty() => {
                        batch.write(ids.next().flatten(), reply, is_write);
                    }
                    Poll::Ready(reply) => waiting.push_back(Either::Left(ready(counted(reply)))),
                    // A polled future must not move, so its box moves to the queue, and `next` gets a new box.
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

    /// Counts a large answer against the budget until the client has read it. Otherwise clients that request much and
    /// read little could fill the memory. The result of a write is always sent, because a client that gets an error
    /// instead would send its write again.
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

    /// Returns a JSON response. If `marks` is not empty, the response is compressed with gzip. Marks exist only if
    /// the client accepts gzip.
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

/// Begins a call. A panic becomes an error reply to this call alone.
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

/// Returns the call of an entry, or the slot of an entry that is not executed.
fn made_out(entry: Entry) -> Result<ReadCall, EntrySlot> {
    match entry {
        Entry::Refused { id, error } => Err(EntrySlot::Refused { id, error }),
        Entry::Ignored => Err(EntrySlot::Nothing),
        // A read without an id would have no effect and gets no reply, so it is not executed.
        Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => Err(EntrySlot::Nothing),
        Entry::Call(call) => Ok(call.into()),
    }
}

// === impl BatchSection ===

impl BatchSection {
    /// Takes the entries that may run concurrently: reads up to the next write, or one write alone.
    ///
    /// A write is a barrier in both directions, so that the reads after it see its effect and the transactions of the
    /// batch reach the node in order.
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

    /// Returns the id for the reply to an entry; `None` if the entry gets no reply.
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

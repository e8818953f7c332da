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

use super::{
    Config, HttpError, Metrics, RpcBody,
    cache_status::{self, CacheTally},
    gzip::{self, Mark},
    rescue::{self, Verdict},
};
use crate::{
    budget::ByteBudget,
    cache::Deflated,
    eth::is_write,
    jsonrpc::{Answer, Code, Entry, ErrorObject, Packet, RawId, ReplyWriter, Rope},
    proxy::{Answered, CallError, Caller, Outcome, PacketContext, ReadCall, Request},
};

/// Runs the entries of packets on a service that answers calls.
#[derive(Debug)]
pub(super) struct Packets<P> {
    pub(super) proxy: P,
    /// Bytes of large answers that wait to be taken, all together.
    pub(super) waiting: ByteBudget,
    pub(super) metrics: Metrics,
}

/// How a response is to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) version: Version,
    /// Does it depend on what the client says that it accepts?
    pub(super) varies: bool,
}

/// Answers from here on count while they wait to be taken; as many smaller ones as there can be
/// requests at a time come to 64 MiB.
const LARGE: usize = 64 * 1024;

/// Entries of a batch between which others get their turn: where all is in memory, nothing else makes it pause, and a
/// few clients with huge batches would keep everybody behind them waiting.
const TURN: usize = 32;

/// What goes back for one entry.
struct Reply {
    answer: Result<Answer, Verdict>,
    /// Where the answer came from; `None` if there is none.
    outcome: Option<Outcome>,
    deflated: Option<Arc<Deflated>>,
}

/// Entries of a batch that may run side by side.
struct Segment {
    packet: Arc<PacketContext>,
    slots: Vec<Slot>,
}

/// An entry of a packet, made out.
enum Slot {
    /// The call at this place among the packet's calls.
    Call(usize),
    Refused {
        id: RawId,
        error: ErrorObject,
    },
    /// Nothing comes back for it, and nothing is done.
    Nothing,
}

/// What has become of a batch so far.
struct Batch {
    writer: ReplyWriter,
    /// What of it there is a deflated form of.
    marks: Vec<Mark>,
    tally: CacheTally,
    /// The largest sum of the answers, in bytes.
    max_answer: u64,
    /// An answer did not fit. What has not begun is not begun from then on: its answer would be thrown away.
    is_full: bool,
}

// === impl Packets ===

impl<P> Packets<P>
where
    P: Service<Request, Response = Answered, Error = CallError> + Clone,
{
    /// The answer to a packet, under the limits of the moment.
    pub(super) async fn answer(
        &self,
        limits: &Config,
        packet: Packet,
        caller: Caller,
        shape: Shape,
    ) -> Result<Response<RpcBody>, HttpError> {
        let mut response = match packet {
            Packet::Single(entry) => match self.one(entry, caller).await {
                None => no_content(),
                Some((id, reply)) => self.single(&id, reply, shape.version),
            },
            // On the heap, so that a call alone does not carry the room for a batch along.
            Packet::Batch(entries) => Box::pin(self.batch(limits, entries, &caller, shape.version)).await,
        };
        if shape.varies {
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
        let size = response.body().len();
        if size < LARGE {
            return Ok(response);
        }
        // Clients that ask for much and take little would otherwise fill the memory with it.
        let mut lease = self.waiting.lease();
        lease.grow(size).map_err(|_| HttpError::Overloaded)?;
        Ok(response.map(|body| body.with_lease(lease)))
    }

    async fn one(&self, entry: Entry, caller: Caller) -> Option<(RawId, Reply)> {
        match made_out(entry) {
            Ok(mut call) => {
                let id = call.id.take();
                let reply = begin(&mut self.proxy.clone(), Request::alone(caller, call)).await;
                Some((id?, reply))
            }
            Err(Slot::Refused { id, error }) => Some((id, Reply::refused(&error, &caller))),
            Err(_) => {
                let _ = caller.charge();
                None
            }
        }
    }

    async fn batch(
        &self,
        limits: &Config,
        entries: Vec<Entry>,
        caller: &Caller,
        version: Version,
    ) -> Response<RpcBody> {
        let mut batch = Batch::new(limits.max_batch_answer.as_u64());
        let mut entries = entries.into_iter();
        while !entries.as_slice().is_empty() {
            let segment = Segment::next(&mut entries, caller);
            self.segment(&segment, limits.batch_concurrency.max(1), &mut batch).await;
        }
        let Batch { writer, marks, tally, .. } = batch;
        writer.finish().map_or_else(no_content, |rope| self.json(rope, &marks, version, tally.cache_status()))
    }

    /// Runs entries side by side, so many at a time. What is there at the first look, as answers from memory are,
    /// is written at once: it waits in no queue unless an entry before it does.
    async fn segment(&self, segment: &Segment, concurrency: usize, batch: &mut Batch) {
        let mut proxy = self.proxy.clone();
        let caller = segment.packet.caller();
        let mut waiting = FuturesOrdered::new();
        let mut begun = 0_usize;
        let mut ids = segment.slots.iter().map(|slot| segment.id(slot));
        let mut next = Box::pin(OptionFuture::from(None));
        loop {
            while waiting.len() < concurrency {
                let Some(slot) = segment.slots.get(begun) else { break };
                let reply = match slot {
                    Slot::Call(_) if batch.is_full => Poll::Ready(Some(batch.too_much(caller))),
                    Slot::Call(index) => {
                        next.set(Some(begin(&mut proxy, segment.packet.request(*index))).into());
                        poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await
                    }
                    Slot::Refused { error, .. } => Poll::Ready(Some(Reply::refused(error, caller))),
                    Slot::Nothing => {
                        let _ = caller.charge();
                        Poll::Ready(None)
                    }
                };
                match reply {
                    Poll::Ready(reply) if waiting.is_empty() => batch.write(ids.next().flatten(), reply),
                    Poll::Ready(reply) => waiting.push_back(Either::Left(ready(reply))),
                    // What is polled stays where it is: it moves on with its box.
                    Poll::Pending => {
                        let waits = std::mem::replace(&mut next, Box::pin(OptionFuture::from(None)));
                        waiting.push_back(Either::Right(waits));
                    }
                }
                begun += 1;
                if begun.is_multiple_of(TURN) {
                    task::yield_now().await;
                }
            }
            match waiting.next().await {
                Some(reply) => batch.write(ids.next().flatten(), reply),
                None => return,
            }
        }
    }
}

// === impl Packets ===

impl<P> Packets<P> {
    fn single(
        &self,
        id: &RawId,
        Reply { answer, outcome, deflated }: Reply,
        version: Version,
    ) -> Response<RpcBody> {
        let mut writer = ReplyWriter::single();
        let (answer, verdict) = match answer {
            Ok(answer) => (answer, None),
            Err(verdict) => (Answer::from(&verdict.error), Some(verdict)),
        };
        let start = writer.write(id, answer);
        let mark = deflated.map(|deflated| Mark { start, deflated });
        let cache_status =
            HeaderValue::from_static(outcome.map_or(cache_status::UNANSWERED, Outcome::cache_status));
        let mut response =
            self.json(writer.finish().unwrap_or_default(), mark.as_slice(), version, cache_status);
        if let Some(verdict) = verdict {
            verdict.mark(&mut response);
        }
        response
    }

    /// As gzip, if there is a deflated form of anything in it; only callers who take gzip are handed one.
    fn json(
        &self,
        plain: Rope,
        marks: &[Mark],
        version: Version,
        cache_status: HeaderValue,
    ) -> Response<RpcBody> {
        let size = plain.len();
        let rope = if marks.is_empty() { plain } else { gzip::stitch(plain, marks) };
        let sent = rope.len();
        let mut response = Response::new(RpcBody::new(rope, version));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(cache_status::NAME, cache_status);
        if !marks.is_empty() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            self.metrics.compressed(size, sent);
        }
        response
    }
}

/// Begins a call; a panic spoils nothing else.
fn begin<P>(proxy: &mut P, request: Request) -> impl Future<Output = Reply> + use<P>
where
    P: Service<Request, Response = Answered, Error = CallError>,
{
    rescue::guarded(|| proxy.call(request)).map(|answered| match answered {
        Ok(Ok(Answered { answer, outcome, deflated })) => {
            Reply { answer: Ok(answer), outcome: Some(outcome), deflated }
        }
        Ok(Err(error)) => Reply::failed(rescue::call_error(&error)),
        Err(panic) => Reply::failed(rescue::panicked(&*panic)),
    })
}

/// The call that an entry is, or what it is instead.
fn made_out(entry: Entry) -> Result<ReadCall, Slot> {
    match entry {
        Entry::Refused { id, error } => Err(Slot::Refused { id, error }),
        Entry::Ignored => Err(Slot::Nothing),
        // Nobody learns what a read found that nobody waits for.
        Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => Err(Slot::Nothing),
        Entry::Call(call) => Ok(call.into()),
    }
}

// === impl Segment ===

impl Segment {
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
                    Slot::Call(calls.len() - 1)
                }
                Err(slot) => slot,
            });
        }
        Self { packet: Arc::new(PacketContext::new(caller.clone(), calls)), slots }
    }

    /// Under which the reply to an entry is written; `None` if nobody waits for one.
    fn id<'a>(&'a self, slot: &'a Slot) -> Option<&'a RawId> {
        match slot {
            Slot::Call(index) => self.packet.calls()[*index].id.as_ref(),
            Slot::Refused { id, .. } => Some(id),
            Slot::Nothing => None,
        }
    }
}

// === impl Reply ===

impl Reply {
    fn failed(verdict: Verdict) -> Self {
        Self { answer: Err(verdict), outcome: None, deflated: None }
    }

    /// To what is no call. It costs one all the same: a batch may hold a thousand.
    fn refused(error: &ErrorObject, caller: &Caller) -> Self {
        match caller.charge() {
            Ok(()) => Self { answer: Ok(Answer::from(error)), outcome: None, deflated: None },
            Err(wait) => Self::failed(rescue::call_error(&CallError::RateLimited { wait })),
        }
    }
}

// === impl Batch ===

impl Batch {
    fn new(max_answer: u64) -> Self {
        Self {
            writer: ReplyWriter::batch(),
            marks: Vec::new(),
            tally: CacheTally::default(),
            max_answer,
            is_full: false,
        }
    }

    fn write(&mut self, id: Option<&RawId>, reply: Option<Reply>) {
        let (Some(id), Some(Reply { answer, outcome, deflated })) = (id, reply) else { return };
        self.tally.add(outcome);
        let answer = answer.unwrap_or_else(|verdict| Answer::from(&verdict.error));
        let fits = (self.writer.len() + answer.len()) as u64 <= self.max_answer;
        self.is_full |= !fits;
        if !fits {
            self.writer.write(id, self.refusal());
            return;
        }
        let start = self.writer.write(id, answer);
        self.marks.extend(deflated.map(|deflated| Mark { start, deflated }));
    }

    /// Instead of what is not begun.
    fn too_much(&self, caller: &Caller) -> Reply {
        // It has its answer, whatever is left.
        let _ = caller.charge();
        Reply { answer: Ok(self.refusal()), outcome: None, deflated: None }
    }

    /// What no longer fits becomes an error: its own, so that the others keep their answers.
    fn refusal(&self) -> Answer {
        let message =
            format!("the answers of this batch exceed {} bytes; ask for fewer at once", self.max_answer);
        Answer::from(&ErrorObject::new(Code::InvalidRequest, message))
    }
}

fn no_content() -> Response<RpcBody> {
    let mut response = Response::new(RpcBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(cache_status::NAME, HeaderValue::from_static(cache_status::UNANSWERED));
    response
}

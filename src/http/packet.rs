//! Answers a packet: its entries side by side, its replies in order.

use std::{
    future::{Future, poll_fn, ready},
    sync::Arc,
    task::Poll,
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
    id: RawId,
    answer: Result<Answer, Verdict>,
    /// Where the answer came from; `None` if there is none.
    outcome: Option<Outcome>,
    deflated: Option<Arc<Deflated>>,
}

/// An entry of a packet, made out.
enum Item {
    Call(ReadCall),
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
            Packet::Single(entry) => match self.one(Item::from(entry), caller).await {
                None => no_content(),
                Some(reply) => self.single(reply, shape.version),
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

    async fn one(&self, item: Item, caller: Caller) -> Option<Reply> {
        match item {
            Item::Call(call) => {
                let packet = Arc::new(PacketContext::alone(caller));
                begin(&mut self.proxy.clone(), call, packet).await
            }
            no_call => no_call.reply(&caller),
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
        let mut items = entries.into_iter().map(Item::from).peekable();
        while items.peek().is_some() {
            let segment = next_segment(&mut items);
            self.segment(segment, caller, limits.batch_concurrency.max(1), &mut batch).await;
        }
        let Batch { writer, marks, tally, .. } = batch;
        writer.finish().map_or_else(no_content, |rope| self.json(rope, &marks, version, tally.cache_status()))
    }

    /// Runs entries side by side, so many at a time. What is there at the first look, as answers from memory are,
    /// is written at once: it waits in no queue unless an entry before it does.
    async fn segment(&self, items: Vec<Item>, caller: &Caller, concurrency: usize, batch: &mut Batch) {
        let mut proxy = self.proxy.clone();
        let calls = items.iter().filter_map(|item| match item {
            Item::Call(call) => Some(call),
            Item::Refused { .. } | Item::Nothing => None,
        });
        let packet = Arc::new(PacketContext::new(caller.clone(), calls));
        let mut items = items.into_iter();
        let mut waiting = FuturesOrdered::new();
        let mut begun = 0_usize;
        let mut next = Box::pin(OptionFuture::from(None));
        loop {
            while waiting.len() < concurrency {
                let Some(item) = items.next() else { break };
                let reply = match item {
                    Item::Call(call) if batch.is_full => Poll::Ready(batch.too_much(call.id, caller)),
                    Item::Call(call) => {
                        next.set(Some(begin(&mut proxy, call, packet.clone())).into());
                        poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await.map(Option::flatten)
                    }
                    no_call => Poll::Ready(no_call.reply(caller)),
                };
                match reply {
                    Poll::Ready(reply) if waiting.is_empty() => batch.write(reply),
                    Poll::Ready(reply) => waiting.push_back(Either::Left(ready(reply))),
                    // What is polled stays where it is: it moves on with its box.
                    Poll::Pending => {
                        let waits = std::mem::replace(&mut next, Box::pin(OptionFuture::from(None)));
                        waiting.push_back(Either::Right(waits.map(Option::flatten)));
                    }
                }
                begun += 1;
                if begun.is_multiple_of(TURN) {
                    task::yield_now().await;
                }
            }
            match waiting.next().await {
                Some(reply) => batch.write(reply),
                None => return,
            }
        }
    }
}

// === impl Packets ===

impl<P> Packets<P> {
    fn single(&self, Reply { id, answer, outcome, deflated }: Reply, version: Version) -> Response<RpcBody> {
        let mut writer = ReplyWriter::single();
        let (answer, verdict) = match answer {
            Ok(answer) => (answer, None),
            Err(verdict) => (Answer::from(&verdict.error), Some(verdict)),
        };
        let start = writer.write(&id, answer);
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

/// Begins a call. Nothing comes back for a notification; a panic spoils nothing else.
fn begin<P>(
    proxy: &mut P,
    mut call: ReadCall,
    packet: Arc<PacketContext>,
) -> impl Future<Output = Option<Reply>> + use<P>
where
    P: Service<Request, Response = Answered, Error = CallError>,
{
    let id = call.id.take();
    rescue::guarded(|| proxy.call(Request { call, packet })).map(|answered| {
        let (answer, outcome, deflated) = match answered {
            Ok(Ok(Answered { answer, outcome, deflated })) => (Ok(answer), Some(outcome), deflated),
            Ok(Err(error)) => (Err(rescue::call_error(&error)), None, None),
            Err(panic) => (Err(rescue::panicked(&*panic)), None, None),
        };
        id.map(|id| Reply { id, answer, outcome, deflated })
    })
}

/// Takes the entries that may run side by side: reads up to the next write, or one write alone.
///
/// A write is a barrier in both directions, so that a batch reads what it wrote and its
/// transactions reach the node in their order.
fn next_segment(items: &mut std::iter::Peekable<impl Iterator<Item = Item>>) -> Vec<Item> {
    let writes = |item: &Item| matches!(item, Item::Call(call) if is_write(call.method.as_str()));
    let mut segment: Vec<_> = std::iter::from_fn(|| items.next_if(|item| !writes(item))).collect();
    if segment.is_empty() {
        segment.extend(items.next());
    }
    segment
}

// === impl Item ===

impl From<Entry> for Item {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Refused { id, error } => Self::Refused { id, error },
            Entry::Ignored => Self::Nothing,
            // Nobody learns what a read found that nobody waits for.
            Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => Self::Nothing,
            Entry::Call(call) => Self::Call(call.into()),
        }
    }
}

impl Item {
    /// What comes back for what is no call. It costs one all the same: a batch may hold a thousand.
    fn reply(self, caller: &Caller) -> Option<Reply> {
        let charged = caller.charge();
        let Self::Refused { id, error } = self else { return None };
        let answer = match charged {
            Ok(()) => Ok(Answer::from(&error)),
            Err(wait) => Err(rescue::call_error(&CallError::RateLimited { wait })),
        };
        Some(Reply { id, answer, outcome: None, deflated: None })
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

    fn write(&mut self, reply: Option<Reply>) {
        let Some(Reply { id, answer, outcome, deflated }) = reply else { return };
        self.tally.add(outcome);
        let answer = answer.unwrap_or_else(|verdict| Answer::from(&verdict.error));
        let fits = (self.writer.len() + answer.len()) as u64 <= self.max_answer;
        self.is_full |= !fits;
        if !fits {
            self.writer.write(&id, self.refusal());
            return;
        }
        let start = self.writer.write(&id, answer);
        self.marks.extend(deflated.map(|deflated| Mark { start, deflated }));
    }

    /// Instead of what is not begun.
    fn too_much(&self, id: Option<RawId>, caller: &Caller) -> Option<Reply> {
        // It has its answer, whatever is left.
        let _ = caller.charge();
        id.map(|id| Reply { id, answer: Ok(self.refusal()), outcome: None, deflated: None })
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

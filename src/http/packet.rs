//! Answers a packet: its entries side by side, its replies in order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, Version, header};
use tokio::task;
use tower::{Service, ServiceExt};

use super::{
    HttpError, RpcBody,
    cache_status::{self, CacheTally},
    rescue::{self, Verdict},
};
use crate::{
    budget::ByteBudget,
    eth::is_write,
    jsonrpc::{Answer, Code, Entry, ErrorObject, Packet, RawId, ReplyWriter},
    proxy::{Answered, CallError, Caller, Outcome, PacketContext, Request},
};

/// Runs the entries of packets on a service that answers calls.
#[derive(Clone, Debug)]
pub(super) struct Packets<P> {
    pub(super) proxy: P,
    /// Entries of one batch that run at a time.
    pub(super) concurrency: usize,
    /// The largest sum of a batch's answers, in bytes.
    pub(super) max_answer: u64,
    /// Bytes of large answers that wait to be taken, all together.
    pub(super) waiting: ByteBudget,
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
}

// === impl Packets ===

impl<P> Packets<P>
where
    P: Service<Request, Response = Answered, Error = CallError> + Clone,
{
    pub(super) async fn answer(
        &self,
        packet: Packet,
        caller: &Caller,
        version: Version,
    ) -> Result<Response<RpcBody>, HttpError> {
        let response = match packet {
            Packet::Single(entry) => {
                let context = Arc::new(context(std::slice::from_ref(&entry)));
                match self.run(entry, caller.clone(), context).await {
                    None => no_content(),
                    Some(reply) => single(reply, version),
                }
            }
            Packet::Batch(entries) => self.batch(entries, caller, version).await,
        };
        let size = response.body().len();
        if size < LARGE {
            return Ok(response);
        }
        // Clients that ask for much and take little would otherwise fill the memory with it.
        let mut lease = self.waiting.lease();
        lease.grow(size).map_err(|_| HttpError::Overloaded)?;
        Ok(response.map(|body| body.with_lease(lease)))
    }

    async fn batch(&self, entries: Vec<Entry>, caller: &Caller, version: Version) -> Response<RpcBody> {
        let mut writer = ReplyWriter::batch();
        let mut tally = CacheTally::default();
        let full = AtomicBool::new(false);
        let mut written = 0_usize;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let segment = next_segment(&mut entries);
            let context = Arc::new(context(&segment));
            let mut replies = stream::iter(segment)
                .map(|entry| self.run_unless(&full, entry, caller.clone(), context.clone()))
                .buffered(self.concurrency.max(1));
            while let Some(reply) = replies.next().await {
                written += 1;
                if written.is_multiple_of(TURN) {
                    task::yield_now().await;
                }
                let Some(Reply { id, answer, outcome }) = reply else { continue };
                tally.add(outcome);
                let answer = answer.unwrap_or_else(|verdict| Answer::from(&verdict.error));
                let fits = (writer.len() + answer.len()) as u64 <= self.max_answer;
                full.fetch_or(!fits, Relaxed);
                writer.write(&id, if fits { answer } else { self.too_much() });
            }
        }
        writer
            .finish()
            .map_or_else(no_content, |rope| json(RpcBody::new(rope, version), tally.cache_status()))
    }

    /// Once an answer did not fit, what has not begun is not begun: its answer would be thrown away.
    async fn run_unless(
        &self,
        full: &AtomicBool,
        entry: Entry,
        caller: Caller,
        context: Arc<PacketContext>,
    ) -> Option<Reply> {
        match entry {
            Entry::Call(call) if full.load(Relaxed) => {
                // It has its answer, whatever is left.
                let _ = caller.charge();
                call.id.map(|id| Reply { id, answer: Ok(self.too_much()), outcome: None })
            }
            entry => self.run(entry, caller, context).await,
        }
    }

    /// What no longer fits becomes an error: its own, so that the others keep their answers.
    fn too_much(&self) -> Answer {
        let message =
            format!("the answers of this batch exceed {} bytes; ask for fewer at once", self.max_answer);
        Answer::from(&ErrorObject::new(Code::InvalidRequest, message))
    }

    /// Nothing comes back for a notification.
    async fn run(&self, entry: Entry, caller: Caller, packet: Arc<PacketContext>) -> Option<Reply> {
        match entry {
            // What is no call costs one all the same: a batch may hold a thousand.
            Entry::Refused { id, error } => {
                let answer = match caller.charge() {
                    Ok(()) => Ok(Answer::from(&error)),
                    Err(wait) => Err(rescue::call_error(&CallError::RateLimited { wait })),
                };
                Some(Reply { id, answer, outcome: None })
            }
            Entry::Ignored => {
                let _ = caller.charge();
                None
            }
            // Nobody learns what a read found that nobody waits for.
            Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => {
                let _ = caller.charge();
                None
            }
            Entry::Call(call) => {
                let id = call.id.clone();
                let request = Request { call, caller, packet };
                let (answer, outcome) = match rescue::guarded(self.proxy.clone().oneshot(request)).await {
                    Ok(Ok(Answered { answer, outcome })) => (Ok(answer), Some(outcome)),
                    Ok(Err(error)) => (Err(rescue::call_error(&error)), None),
                    Err(verdict) => (Err(verdict), None),
                };
                id.map(|id| Reply { id, answer, outcome })
            }
        }
    }
}

fn context(entries: &[Entry]) -> PacketContext {
    PacketContext::new(entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(call),
        Entry::Refused { .. } | Entry::Ignored => None,
    }))
}

/// Takes the entries that may run side by side: reads up to the next write, or one write alone.
///
/// A write is a barrier in both directions, so that a batch reads what it wrote and its
/// transactions reach the node in their order.
fn next_segment(entries: &mut std::iter::Peekable<impl Iterator<Item = Entry>>) -> Vec<Entry> {
    let writes = |entry: &Entry| matches!(entry, Entry::Call(call) if is_write(call.method.as_str()));
    let mut segment: Vec<_> = std::iter::from_fn(|| entries.next_if(|entry| !writes(entry))).collect();
    if segment.is_empty() {
        segment.extend(entries.next());
    }
    segment
}

fn single(Reply { id, answer, outcome }: Reply, version: Version) -> Response<RpcBody> {
    let mut writer = ReplyWriter::single();
    let (answer, verdict) = match answer {
        Ok(answer) => (answer, None),
        Err(verdict) => (Answer::from(&verdict.error), Some(verdict)),
    };
    writer.write(&id, answer);
    let cache_status =
        HeaderValue::from_static(outcome.map_or(cache_status::UNANSWERED, Outcome::cache_status));
    let mut response = json(RpcBody::new(writer.finish().unwrap_or_default(), version), cache_status);
    if let Some(verdict) = verdict {
        verdict.mark(&mut response);
    }
    response
}

fn json(body: RpcBody, cache_status: HeaderValue) -> Response<RpcBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(cache_status::NAME, cache_status);
    response
}

fn no_content() -> Response<RpcBody> {
    let mut response = Response::new(RpcBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(cache_status::NAME, HeaderValue::from_static(cache_status::UNANSWERED));
    response
}

//! Answers a packet: its entries side by side, its replies in order.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, Version, header};
use tower::{Service, ServiceExt};

use super::{
    RpcBody,
    rescue::{self, Verdict},
};
use crate::{
    eth::is_write,
    jsonrpc::{Answer, Code, Entry, ErrorObject, Packet, RawId, ReplyWriter},
    proxy::{Answered, CallError, Caller, Request},
};

/// Runs the entries of packets on a service that answers calls.
#[derive(Clone, Debug)]
pub(super) struct Packets<P> {
    pub(super) proxy: P,
    /// Entries of one batch that run at a time.
    pub(super) concurrency: usize,
    /// The largest sum of a batch's answers, in bytes.
    pub(super) max_answer: u64,
}

/// What goes back for one entry: nothing for a notification.
type EntryReply = Option<(RawId, Result<Answer, Verdict>)>;

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
    ) -> Response<RpcBody> {
        match packet {
            Packet::Single(entry) => match self.run(entry, caller.clone()).await {
                None => no_content(),
                Some((id, answer)) => single(&id, answer, version),
            },
            Packet::Batch(entries) => self.batch(entries, caller, version).await,
        }
    }

    async fn batch(&self, entries: Vec<Entry>, caller: &Caller, version: Version) -> Response<RpcBody> {
        let mut writer = ReplyWriter::batch();
        let full = AtomicBool::new(false);
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let segment = next_segment(&mut entries);
            let mut replies = stream::iter(segment)
                .map(|entry| self.run_unless(&full, entry, caller.clone()))
                .buffered(self.concurrency.max(1));
            while let Some(reply) = replies.next().await {
                let Some((id, answer)) = reply else { continue };
                let answer = answer.unwrap_or_else(|verdict| Answer::from(&verdict.error));
                let fits = (writer.len() + answer.len()) as u64 <= self.max_answer;
                full.fetch_or(!fits, Relaxed);
                writer.write(&id, if fits { answer } else { self.too_much() });
            }
        }
        writer.finish().map_or_else(no_content, |rope| json(RpcBody::new(rope, version)))
    }

    /// Once an answer did not fit, what has not begun is not begun: its answer would be thrown away.
    async fn run_unless(&self, full: &AtomicBool, entry: Entry, caller: Caller) -> EntryReply {
        match entry {
            Entry::Call(call) if full.load(Relaxed) => call.id.map(|id| (id, Ok(self.too_much()))),
            entry => self.run(entry, caller).await,
        }
    }

    /// What no longer fits becomes an error: its own, so that the others keep their answers.
    fn too_much(&self) -> Answer {
        let message =
            format!("the answers of this batch exceed {} bytes; ask for fewer at once", self.max_answer);
        Answer::from(&ErrorObject::new(Code::InvalidRequest, message))
    }

    async fn run(&self, entry: Entry, caller: Caller) -> EntryReply {
        match entry {
            Entry::Refused { id, error } => Some((id, Ok(Answer::from(&error)))),
            Entry::Ignored => None,
            // Nobody learns what a read found that nobody waits for.
            Entry::Call(call) if call.id.is_none() && !is_write(call.method.as_str()) => None,
            Entry::Call(call) => {
                let id = call.id.clone();
                let answered = rescue::guarded(self.proxy.clone().oneshot(Request { call, caller })).await;
                let answer = match answered {
                    Ok(Ok(answered)) => Ok(answered.answer),
                    Ok(Err(error)) => Err(rescue::call_error(&error)),
                    Err(verdict) => Err(verdict),
                };
                id.map(|id| (id, answer))
            }
        }
    }
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

fn single(id: &RawId, answer: Result<Answer, Verdict>, version: Version) -> Response<RpcBody> {
    let mut writer = ReplyWriter::single();
    let (answer, verdict) = match answer {
        Ok(answer) => (answer, None),
        Err(verdict) => (Answer::from(&verdict.error), Some(verdict)),
    };
    writer.write(id, answer);
    let mut response = json(RpcBody::new(writer.finish().unwrap_or_default(), version));
    if let Some(verdict) = verdict {
        verdict.mark(&mut response);
    }
    response
}

fn json(body: RpcBody) -> Response<RpcBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn no_content() -> Response<RpcBody> {
    let mut response = Response::new(RpcBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

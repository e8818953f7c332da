//! Turns the body of an HTTP request into an answer or a fault.

use super::record::CallLog;
use crate::devchain::{
    chain::{error::RpcError, state::State},
    faults::{
        fault::{Fault, Faults, Struck},
        lie,
    },
    rpc::{
        envelope::{RpcEntry, RpcPacket, RpcReply, batch},
        methods::call,
    },
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::time::Duration;

/// The reaction of the node to an HTTP request. The code that owns the connection executes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeResponse {
    /// Sends a response.
    Reply {
        /// The HTTP status.
        status: u16,
        /// The headers, the content type among them.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Bytes,
        /// If set, the body goes out in small pieces with this pause between them.
        drip: Option<Duration>,
    },
    /// Keeps the connection and never answers.
    Hang,
    /// Closes the connection.
    Reset {
        /// The part of the body to send before closing. If it is empty, the node sends nothing, not even a status.
        sent: Bytes,
    },
}

/// The parts of a development chain that answer a request.
pub(in crate::devchain) struct Shared {
    pub(in crate::devchain) state: Mutex<State>,
    pub(in crate::devchain) faults: Mutex<Faults>,
    pub(in crate::devchain) record: Mutex<CallLog>,
}

/// One entry of a packet and the faults that strike it.
struct Job<'a> {
    entry: &'a RpcEntry<'a>,
    struck: Struck,
}

/// Counts a request as in progress until dropped. The count must end on drop, because a client that disconnects drops
/// the future at any point.
struct Working<'a>(&'a Shared);

const GARBAGE: &[u8] = b"upstream connect error or disconnect/reset before headers";

// === impl NodeResponse ===

impl NodeResponse {
    fn json(body: Bytes) -> Self {
        Self::page(200, "application/json", body)
    }

    fn page(status: u16, content_type: &str, body: Bytes) -> Self {
        Self::Reply { status, headers: vec![("content-type", content_type.to_owned())], body, drip: None }
    }
}

// === impl Working ===

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.record.lock().end();
    }
}

// === impl Shared ===

impl Shared {
    /// Answers an HTTP request with this body: records its calls, applies faults, and waits if a fault requires a
    /// wait.
    ///
    /// Accepts any bytes. Answers malformed requests as geth does.
    pub(in crate::devchain) async fn serve(&self, body: Bytes) -> NodeResponse {
        let request = self.record.lock().begin();
        let _working = Working(self);
        let packet = match RpcPacket::parse(&body) {
            Ok(packet) => packet,
            Err(error) => return NodeResponse::json(RpcReply::new(None, Err(error)).to_bytes()),
        };
        let jobs: Vec<Job<'_>> = packet.entries().iter().map(|entry| self.receive(entry, request)).collect();
        // In a batch, the longest wait applies to all calls.
        let queued = jobs.iter().filter_map(|job| job.struck.queued()).max();
        let delayed = jobs.iter().filter_map(|job| job.struck.delayed()).max();

        pause(queued).await;
        let transport =
            jobs.iter().find_map(|job| job.struck.failure.as_ref().filter(|it| it.is_transport()));
        let body = match transport {
            Some(fault) if fault.spares_the_call() => Bytes::new(),
            _ => {
                let replies: Vec<RpcReply> = jobs.iter().filter_map(|job| self.reply(job)).collect();
                match (&packet, replies.as_slice()) {
                    // Notifications get no answer.
                    (_, []) => Bytes::new(),
                    (RpcPacket::One(_), [reply, ..]) => reply.to_bytes(),
                    (RpcPacket::Many(_), replies) => batch(replies),
                }
            }
        };
        pause(delayed).await;
        dispatch(transport, body)
    }

    /// Records a call and uses up the faults that strike it.
    fn receive<'a>(&self, entry: &'a RpcEntry<'a>, request: u64) -> Job<'a> {
        let struck = match entry {
            RpcEntry::Call { method, params, .. } => {
                let params = params.map_or("", RawValue::get);
                self.record.lock().call(request, method, params);
                self.faults.lock().strike(method, params)
            }
            RpcEntry::Invalid { .. } => Struck::default(),
        };
        Job { entry, struck }
    }

    /// Returns the reply to one entry, with the content faults that strike it; `None` for a notification.
    fn reply(&self, job: &Job<'_>) -> Option<RpcReply> {
        let (id, method, params) = match job.entry {
            RpcEntry::Call { id, method, params } => ((*id)?, method, *params),
            RpcEntry::Invalid { id } => {
                return Some(RpcReply::new(*id, Err(RpcError::invalid_request("invalid request"))));
            }
        };
        let outcome = match &job.struck.failure {
            Some(Fault::Error { code, message }) => Err(RpcError::new(*code, message.clone())),
            _ => call(&mut self.state.lock(), method, params),
        };
        let mut reply = RpcReply::new(Some(id), outcome);
        match &job.struck.failure {
            Some(Fault::Null) => reply.outcome = Ok(Bytes::from_static(b"null")),
            Some(Fault::WrongId) => reply.id = wrong_id(&reply.id),
            Some(Fault::Lie(lie)) => {
                if let Ok(truth) = &reply.outcome {
                    let told = lie::tell(&mut self.state.lock(), lie, truth, method, params);
                    if told != *truth {
                        self.record.lock().lie();
                    }
                    reply.outcome = Ok(told);
                }
            }
            _ => {}
        }
        Some(reply)
    }
}

async fn pause(wait: Option<Duration>) {
    if let Some(wait) = wait {
        tokio::time::sleep(wait).await;
    }
}

/// Returns the response with this body, changed by the transport fault if there is one.
fn dispatch(fault: Option<&Fault>, body: Bytes) -> NodeResponse {
    let half = body.slice(..body.len() / 2);
    match fault {
        Some(Fault::Hang) => NodeResponse::Hang,
        Some(Fault::Reset) => NodeResponse::Reset { sent: Bytes::new() },
        Some(Fault::ResetMidBody) => NodeResponse::Reset { sent: half },
        Some(Fault::Truncated) => NodeResponse::json(half),
        Some(Fault::Garbage) => NodeResponse::page(200, "text/plain", Bytes::from_static(GARBAGE)),
        Some(Fault::Status(status)) => {
            let page =
                format!("<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>");
            NodeResponse::page(*status, "text/html", page.into())
        }
        Some(Fault::Refused { status, code, message }) => {
            let error = RpcReply::new(None, Err(RpcError::new(*code, message.clone())));
            NodeResponse::page(*status, "application/json", error.to_bytes())
        }
        Some(Fault::RateLimited { retry_after }) => {
            let mut headers = vec![("content-type", "text/plain".to_owned())];
            headers.extend(retry_after.map(|seconds| ("retry-after", seconds.to_string())));
            NodeResponse::Reply {
                status: 429,
                headers,
                body: Bytes::from_static(b"too many requests"),
                drip: None,
            }
        }
        Some(Fault::Drip(pause)) => NodeResponse::Reply {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body,
            drip: Some(*pause),
        },
        _ => NodeResponse::json(body),
    }
}

/// Returns an id that differs from this one.
fn wrong_id(id: &str) -> String {
    match id.parse::<u64>() {
        Ok(number) => number.wrapping_add(1_000_003).to_string(),
        Err(_) => String::from("\"not the id you sent\""),
    }
}

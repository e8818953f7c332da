//! A small receiver of spans, which decodes them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::support::eventually;

/// A running receiver.
pub struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// Reaction to a request.
#[derive(Clone, Copy)]
pub enum Manner {
    Takes,
    Refuses,
    Hangs,
}

#[derive(Default)]
pub struct Seen {
    /// The path and the headers of each request.
    pub requests: Vec<(String, HeaderMap)>,
    pub resource: BTreeMap<String, String>,
    pub spans: Vec<Span>,
}

#[derive(Clone, Debug, Default)]
pub struct Span {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub kind: u64,
    pub took: u64,
    pub attributes: BTreeMap<String, String>,
    pub status: u64,
}

/// A field of a message on the wire.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

pub const SERVER: u64 = 2;
pub const CLIENT: u64 = 3;

pub async fn run(manner: Manner) -> Receiver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Seen>>::default());
    let seeing = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let seeing = seeing.clone();
            let service = service_fn(move |request| receive(request, manner, seeing.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Receiver { address, seen }
}

async fn receive(
    request: Request<Incoming>,
    manner: Manner,
    seen: Arc<Mutex<Seen>>,
) -> hyper::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    seen.lock().unwrap().requests.push((head.uri.to_string(), head.headers));
    let mut response = Response::new(Full::default());
    match manner {
        Manner::Takes => seen.lock().unwrap().take(&body),
        Manner::Refuses => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        Manner::Hangs => std::future::pending().await,
    }
    Ok(response)
}

// === impl Receiver ===

impl Receiver {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Returns the spans of a trace, as soon as one of this name has arrived.
    pub async fn trace(&self, trace: &str, name: &str) -> Vec<Span> {
        let spans =
            || -> Vec<_> { self.seen().spans.iter().filter(|span| span.trace == trace).cloned().collect() };
        eventually("spans", async || spans().iter().any(|span| span.name == name)).await;
        spans()
    }
}

// === impl Seen ===

impl Seen {
    fn take(&mut self, body: &[u8]) {
        for sent in bytes(body, 1) {
            for resource in bytes(sent, 1) {
                self.resource.extend(bytes(resource, 1).map(attribute));
            }
            let spans = bytes(sent, 2).flat_map(|scope| bytes(scope, 2).collect::<Vec<_>>());
            self.spans.extend(spans.map(Span::read));
        }
    }
}

// === impl Span ===

impl Span {
    fn read(message: &[u8]) -> Self {
        let id = |field| hex(bytes(message, field).next().unwrap_or_default());
        Self {
            trace: id(1),
            id: id(2),
            parent: id(4),
            name: text(bytes(message, 5).next().unwrap()),
            kind: number(message, 6),
            took: number(message, 8) - number(message, 7),
            attributes: bytes(message, 9).map(attribute).collect(),
            status: bytes(message, 15).next().map_or(0, |status| number(status, 3)),
        }
    }

    pub fn said(&self, attribute: &str) -> &str {
        self.attributes.get(attribute).map_or("", String::as_str)
    }
}

fn attribute(message: &[u8]) -> (String, String) {
    let value = bytes(message, 2).next().unwrap_or_default();
    let shown = bytes(value, 1).next().map_or_else(|| number(value, 3).to_string(), text);
    (text(bytes(message, 1).next().unwrap()), shown)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the fields with this number that contain bytes: a text or a message.
fn bytes(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(field, value)| match value {
        Field::Bytes(bytes) if field == wanted => Some(bytes),
        _ => None,
    })
}

fn number(message: &[u8], wanted: u64) -> u64 {
    let mut numbers = fields(message).into_iter().filter_map(|(field, value)| match value {
        Field::Number(number) if field == wanted => Some(number),
        _ => None,
    });
    numbers.next_back().unwrap_or(0)
}

fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut message);
                Field::Bytes(take(&mut message, length as usize))
            }
            5 => Field::Number(u32::from_le_bytes(take(&mut message, 4).try_into().unwrap()).into()),
            other => panic!("no such wire type: {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

fn varint(message: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = take(message, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}

//! Reads a request, hands its packet on, and brings the replies back.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use http_body::Body;
use tower::Service;

use super::{
    packet::{Packets, Shape},
    read,
};
use crate::{
    budget::{ByteBudget, ByteLease},
    http::{
        access::auth::Admitted,
        config::Config,
        error::HttpError,
        reloadable::Live,
        response::{body::RpcBody, encoding::Accepted},
    },
    jsonrpc::Packet,
    proxy::{self, Answered, CallError, Caller},
};

/// What an entry of a batch takes besides its bytes, from when it has been made out until all are answered.
const ENTRY_ROOM: usize = 512;

/// The innermost service of the edge. Cheap to clone: each request has one.
#[derive(Debug)]
pub(in crate::http) struct Rpc<P>(Arc<Inner<P>>);

#[derive(Debug)]
struct Inner<P> {
    packets: Packets<P>,
    bytes: ByteBudget,
    live: Live,
}

/// What counts of a request's head.
#[derive(Debug)]
pub(in crate::http) struct Head {
    version: Version,
    accepted: Accepted,
    /// How long its body is said to be.
    announced: Option<u64>,
}

/// The headers that count, found in one pass: most requests have fewer headers than there are of these.
#[derive(Default)]
struct Named<'a> {
    upgrade: Option<&'a HeaderValue>,
    content_type: Option<&'a HeaderValue>,
    content_encoding: Option<&'a HeaderValue>,
    content_length: Option<&'a HeaderValue>,
    /// Is anything said of encodings that are taken?
    accepts: bool,
}

// === impl Rpc ===

impl<P> Rpc<P> {
    pub(in crate::http) fn new(packets: Packets<P>, bytes: ByteBudget, live: Live) -> Self {
        Self(Arc::new(Inner { packets, bytes, live }))
    }
}

impl<P> Clone for Rpc<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P, B> Service<Admitted<B>> for Rpc<P>
where
    P: Service<proxy::Request, Response = Answered, Error = CallError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data: Send> + Send + 'static,
{
    type Response = Response<RpcBody>;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<Response<RpcBody>, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, Admitted { head, body, caller }: Admitted<B>) -> Self::Future {
        Box::pin(self.0.clone().respond(head, body, caller))
    }
}

// === impl Inner ===

impl<P> Inner<P>
where
    P: Service<proxy::Request, Response = Answered, Error = CallError> + Clone,
{
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice, and every request has one"
    )]
    fn respond<B: Body>(
        self: Arc<Self>,
        head: Result<Head, HttpError>,
        body: B,
        mut caller: Caller,
    ) -> impl Future<Output = Result<Response<RpcBody>, HttpError>> {
        async move {
            // A request is answered under the limits that it came under.
            let limits = self.live.config();
            // Held until the packet, which is made of these bytes, has been answered.
            let mut lease = self.bytes.lease(caller.client);
            let read = match head {
                Ok(head) => {
                    // Where it is: handed on by value, each future on the way would have room for it.
                    let body = pin!(body);
                    let read = self.read(&limits, head.announced, body, &mut lease).await;
                    read.map(|packet| (head, packet))
                }
                Err(error) => Err(error),
            };
            let answering = match read {
                Ok((Head { version, accepted, .. }, packet)) => {
                    caller.gzip = limits.compress && accepted == Accepted::Gzip;
                    // Without the header an answer is what it always was: nothing is said of what others might get. No
                    // cache keeps the answer to a POST unless it is told to, and none is.
                    let varies = limits.compress && accepted != Accepted::Unsaid;
                    self.packets.answer(&limits, packet, caller, Shape { version, varies })
                }
                Err(error @ (HttpError::TooMuchToRead | HttpError::OverShare)) => return Err(error),
                // Each entry of a packet costs its client a call, and so does what is none: garbage is not free.
                Err(error) => {
                    caller.charge().map_err(|wait| HttpError::RateLimited { wait })?;
                    return Err(error);
                }
            };
            answering.await
        }
    }

    #[expect(clippy::manual_async_fn, reason = "as above")]
    fn read<B: Body>(
        &self,
        limits: &Config,
        announced: Option<u64>,
        body: Pin<&mut B>,
        lease: &mut ByteLease,
    ) -> impl Future<Output = Result<Packet, HttpError>> {
        async move {
            let body = read::body(limits, lease, announced, body).await?;
            let packet = Packet::read(&body, limits.max_batch).map_err(HttpError::Packet)?;
            if let Packet::Batch(entries) = &packet {
                lease.grow(entries.len() * ENTRY_ROOM).map_err(read::refused)?;
            }
            Ok(packet)
        }
    }
}

// === impl Head ===

impl Head {
    /// Is this a request that a packet can come out of?
    pub(in crate::http) fn check<B>(request: &Request<B>, hint: &Bytes) -> Result<Self, HttpError> {
        let (method, headers) = (request.method(), request.headers());
        let Named { upgrade, content_type, content_encoding, content_length, accepts } = Named::of(headers);
        if upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket")) {
            return Err(HttpError::WebSocket);
        }
        if method != Method::POST {
            let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
            let browser = method == Method::GET && accept.is_some_and(|accept| accept.contains("text/html"));
            return Err(HttpError::MethodNotAllowed { hint: browser.then(|| hint.clone()) });
        }
        if !content_type.is_some_and(is_json) {
            return Err(HttpError::ContentType);
        }
        if content_encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(HttpError::ContentEncoding);
        }
        let announced = content_length.and_then(|length| length.to_str().ok()?.parse().ok());
        let accepted = if accepts { Accepted::of(headers) } else { Accepted::Unsaid };
        Ok(Self { version: request.version(), accepted, announced })
    }
}

// === impl Named ===

impl<'a> Named<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut named = Self::default();
        for (name, value) in headers {
            let place = match name {
                name if name == header::UPGRADE => &mut named.upgrade,
                name if name == header::CONTENT_TYPE => &mut named.content_type,
                name if name == header::CONTENT_ENCODING => &mut named.content_encoding,
                name if name == header::CONTENT_LENGTH => &mut named.content_length,
                name => {
                    named.accepts |= name == header::ACCEPT_ENCODING;
                    continue;
                }
            };
            // Of several the first counts.
            place.get_or_insert(value);
        }
        named
    }
}

/// `application/json`, with or without parameters such as a charset.
fn is_json(content_type: &HeaderValue) -> bool {
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

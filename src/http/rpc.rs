//! Reads a request, hands its packet on, and brings the replies back.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Response, header, request::Parts};
use http_body::Body;
use tower::Service;

use super::{HttpError, Live, RpcBody, auth::Admitted, packet::Packets, read::BodyLimits};
use crate::{
    budget::Lease,
    jsonrpc::Packet,
    proxy::{self, Answered, CallError},
};

/// The innermost service of the edge.
#[derive(Clone, Debug)]
pub(super) struct Rpc<P> {
    pub(super) packets: Packets<P>,
    pub(super) body: BodyLimits,
    pub(super) max_batch: usize,
    pub(super) live: Live,
}

// === impl Rpc ===

impl<P> Rpc<P>
where
    P: Service<proxy::Request, Response = Answered, Error = CallError> + Clone,
{
    /// The service for one request, under the limits of this moment.
    fn now(&self) -> Self {
        let mut now = self.clone();
        let limits = self.live.config();
        now.body.max = limits.max_body.as_u64();
        now.body.timeout = limits.body_timeout;
        now.max_batch = limits.max_batch;
        now.packets.concurrency = limits.batch_concurrency;
        now.packets.max_answer = limits.max_batch_answer.as_u64();
        now
    }

    async fn respond<B: Body>(self, admitted: Admitted<B>) -> Result<Response<RpcBody>, HttpError> {
        let Admitted { request, caller } = admitted;
        let (parts, body) = request.into_parts();
        // The lease is held until the packet, which is made of these bytes, has been answered.
        let (packet, _lease) = match self.read(&parts, body).await {
            Ok(read) => read,
            Err(HttpError::Overloaded) => return Err(HttpError::Overloaded),
            // Each entry of a packet costs its client a call, and so does what is none: garbage is not free.
            Err(error) => {
                caller.charge().map_err(|wait| HttpError::RateLimited { wait })?;
                return Err(error);
            }
        };
        self.packets.answer(packet, &caller, parts.version).await
    }

    async fn read<B: Body>(&self, parts: &Parts, body: B) -> Result<(Packet, Lease), HttpError> {
        check_head(parts)?;
        let (body, lease) = self.body.read(&parts.headers, body).await?;
        Ok((Packet::read(&body, self.max_batch).map_err(HttpError::Packet)?, lease))
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

    fn call(&mut self, request: Admitted<B>) -> Self::Future {
        Box::pin(self.now().respond(request))
    }
}

/// Is this a request that a packet can come out of?
fn check_head(parts: &Parts) -> Result<(), HttpError> {
    if is_websocket(&parts.headers) {
        return Err(HttpError::WebSocket);
    }
    if parts.method != Method::POST {
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let browser =
            parts.method == Method::GET && accept.is_some_and(|accept| accept.contains("text/html"));
        return Err(HttpError::MethodNotAllowed { browser });
    }
    if !is_json(&parts.headers) {
        return Err(HttpError::ContentType);
    }
    let encoding = parts.headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(HttpError::ContentEncoding);
    }
    Ok(())
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// `application/json`, with or without parameters such as a charset.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|content_type| {
        let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

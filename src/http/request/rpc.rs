//! Reads a request, and answers its packet.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::Response;
use http_body::Body;
use tower::Service;

use super::{
    packet::{Packets, ResponseShape},
    read,
};
use crate::{
    budget::{ByteBudget, ByteLease},
    http::{
        access::{auth::Admitted, head::RequestHead},
        config::{Config, SharedConfig},
        error::HttpError,
        response::{body::RpcBody, encoding::Accepted},
    },
    jsonrpc::Packet,
    proxy::{self, Answered, CallError, Caller},
};

/// Memory that a parsed batch entry takes besides its bytes, until the whole batch is answered.
const ENTRY_ROOM: usize = 512;

/// The innermost service of the edge. Each request clones it, so it contains only an `Arc`.
#[derive(Debug)]
pub(in crate::http) struct Rpc<P>(Arc<Inner<P>>);

#[derive(Debug)]
struct Inner<P> {
    packets: Packets<P>,
    bytes: ByteBudget,
    config: SharedConfig,
}

// === impl Rpc ===

impl<P> Rpc<P> {
    pub(in crate::http) fn new(packets: Packets<P>, bytes: ByteBudget, config: SharedConfig) -> Self {
        Self(Arc::new(Inner { packets, bytes, config }))
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
        reason = "an async fn stores its arguments twice, in the future of every request"
    )]
    fn respond<B: Body>(
        self: Arc<Self>,
        head: Result<RequestHead, HttpError>,
        body: B,
        mut caller: Caller,
    ) -> impl Future<Output = Result<Response<RpcBody>, HttpError>> {
        async move {
            // The request keeps the limits that are in force when it arrives.
            let limits = self.config.load();
            // The lease lives until the packet is answered, because the packet refers to these bytes.
            let mut lease = self.bytes.lease(caller.client);
            let read = match head {
                Ok(head) => {
                    // The body is pinned here. If it were passed by value, each nested future would reserve space for
                    // it.
                    let body = pin!(body);
                    let read = self.read(&limits, head.announced, body, &mut lease).await;
                    read.map(|packet| (head, packet))
                }
                Err(error) => Err(error),
            };
            let answering = match read {
                Ok((RequestHead { version, accepted, .. }, packet)) => {
                    caller.gzip = limits.compress && accepted == Accepted::Gzip;
                    // The response to a request without `accept-encoding` needs no `vary`, because caches store a
                    // response to a POST only if a header allows that, and Holdfast sends no such header.
                    let varies = limits.compress && accepted != Accepted::Unsaid;
                    self.packets.answer(&limits, packet, caller, ResponseShape { version, varies })
                }
                Err(error @ (HttpError::BytesExhausted | HttpError::ClientLimit)) => return Err(error),
                // An unreadable request is charged to its client as one call, so that garbage is not free.
                Err(error) => {
                    caller.charge(1).map_err(|wait| HttpError::RateLimited { wait })?;
                    return Err(error);
                }
            };
            answering.await
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as in `respond`")]
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

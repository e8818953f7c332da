//! The transport to a node in this process.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::{
    super::{Answers, Calls, UpstreamError},
    client::IDLE_TIMEOUT,
    wire::{RequestIds, WireRequest, WireResponse},
};
use crate::context::CallContext;

/// A node that answers in this process.
pub trait InProcessNode: Clone + Send + Sync + 'static {
    /// Answers the body of an HTTP request.
    ///
    /// # Errors
    /// If the connection breaks, as it would over a socket.
    fn respond(&self, body: Bytes) -> impl Future<Output = Result<InProcessResponse, UpstreamError>> + Send;
}

/// The response of an [`InProcessNode`].
#[derive(Clone, Debug)]
pub struct InProcessResponse {
    /// The status.
    pub status: StatusCode,
    /// The header `retry-after`.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
}

/// A transport without a socket, so that the whole program can run with tokio's time paused.
///
/// Requests and answers have the same bytes as over a socket.
#[derive(Clone, Debug)]
pub struct InProcessTransport<N> {
    node: N,
    ids: Arc<RequestIds>,
    /// Time when the simulated connection was last used; `None` if it is closed.
    connection: Arc<Mutex<Option<Instant>>>,
}

// === impl InProcessTransport ===

impl<N> InProcessTransport<N> {
    /// Creates a transport to `node`.
    pub fn new(node: N) -> Self {
        Self { node, ids: Arc::default(), connection: Arc::default() }
    }

    /// Closes the simulated connection: the next call opens a new one.
    pub fn disconnect(&self) {
        *self.connection.lock() = None;
    }

    /// Uses the simulated connection. If it is closed, or has been idle for longer than an HTTP connection may be,
    /// reports that a new one opens.
    fn connect(&self) {
        let now = Instant::now();
        let used = self.connection.lock().replace(now);
        if used.is_none_or(|used| now >= used + IDLE_TIMEOUT) {
            CallContext::report_connection();
        }
    }
}

impl<N: InProcessNode> Service<Calls> for InProcessTransport<N> {
    type Response = Answers;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Answers, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, calls: Calls) -> Self::Future {
        let outgoing = WireRequest::write(&calls, &self.ids);
        let this = self.clone();
        Box::pin(async move {
            this.connect();
            let InProcessResponse { status, retry_after, body } =
                this.node.respond(outgoing.body.clone()).await?;
            outgoing.read(&WireResponse { status, retry_after, body })
        })
    }
}

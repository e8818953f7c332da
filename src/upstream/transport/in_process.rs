//! The transport that reaches a development chain in this process.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::{
    super::{Answers, Calls, UpstreamError},
    client::IDLE_TIMEOUT,
    reconnect,
    wire::{RequestIds, WireRequest, WireResponse},
};
use crate::devchain::{DevChain, Served};

/// How much of a dripping answer arrives with each pause.
const DRIP_BYTES: usize = 16;

/// A development chain without a socket in between: so the whole program can run under paused time.
///
/// Requests and answers go through the same bytes as with a node on a socket.
#[derive(Clone, Debug)]
pub struct DevChainTransport {
    chain: DevChain,
    ids: Arc<RequestIds>,
    /// When its connection, so to speak, was last used; `None` if there is none.
    connection: Arc<Mutex<Option<Instant>>>,
}

// === impl DevChainTransport ===

impl DevChainTransport {
    /// Asks `chain`.
    pub fn new(chain: DevChain) -> Self {
        Self { chain, ids: Arc::default(), connection: Arc::default() }
    }

    /// From here on it is as if the connection had been closed: the next call makes one.
    pub fn disconnect(&self) {
        *self.connection.lock() = None;
    }

    /// Uses the connection, which lasts as long without use as one over HTTP.
    fn connect(&self) {
        let now = Instant::now();
        let used = self.connection.lock().replace(now);
        if used.is_none_or(|used| now >= used + IDLE_TIMEOUT) {
            reconnect::record_connect();
        }
    }
}

impl Service<Calls> for DevChainTransport {
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
            let chain = &this.chain;
            let incoming = receive(chain.serve(outgoing.body.clone()).await).await?;
            outgoing.read(&incoming)
        })
    }
}

/// What a client at the other end of a socket would make of it.
async fn receive(served: Served) -> Result<WireResponse, UpstreamError> {
    match served {
        Served::Hang => std::future::pending().await,
        Served::Reset { .. } => Err(UpstreamError::Disconnected(Arc::from(Box::<
            dyn std::error::Error + Send + Sync,
        >::from("reset")))),
        Served::Reply { status, headers, body, drip } => {
            let pauses = u32::try_from(body.len() / DRIP_BYTES).unwrap_or(u32::MAX);
            tokio::time::sleep(drip.unwrap_or_default().saturating_mul(pauses)).await;
            let seconds = headers.iter().find(|(name, _)| *name == "retry-after");
            Ok(WireResponse {
                status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                retry_after: seconds.and_then(|(_, value)| value.parse().ok()).map(Duration::from_secs),
                body,
            })
        }
    }
}

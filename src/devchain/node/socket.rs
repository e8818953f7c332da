//! The development chain as a node on sockets.

use std::{net::SocketAddr, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{
    Stream,
    future::BoxFuture,
    stream::{self, StreamExt},
};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tower::service_fn;

use super::feed;
use crate::devchain::control::{handle::DevChain, serve::NodeResponse};
use crate::listen::{self, BindError, Listener};

/// Number of bytes of a dripping body that the node sends between two pauses.
const DRIP: usize = 16;

/// A development chain that answers on one port over HTTP and on another over WebSockets, until dropped.
#[derive(Debug)]
pub struct DevNode {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
    ws_address: SocketAddr,
    ws: JoinHandle<()>,
    cut: watch::Sender<()>,
}

/// The node closed the connection on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the connection is reset on purpose")]
struct Reset;

type NodeBody = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Reset>> + Send>>>;

// === impl DevNode ===

impl DevNode {
    /// Serves `chain` on `address`. Port 0 selects a free port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(chain: DevChain, address: SocketAddr) -> Result<Self, BindError> {
        let config = listen::Config { drain_timeout: Duration::ZERO, ..listen::Config::default() };
        let listener = Listener::bind(address, config, listen::Metrics::default()).await?;
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let sockets_chain = chain.clone();
        let service = service_fn(move |request| answer(chain.clone(), request));
        tokio::spawn(listener.serve(service, async {
            let _ = stopped.await;
        }));
        let ws_wanted = SocketAddr::new(address.ip(), 0);
        let error = |source| BindError { address: ws_wanted, source };
        let sockets = TcpListener::bind(ws_wanted).await.map_err(error)?;
        let ws_address = sockets.local_addr().map_err(error)?;
        let (cut, cuts) = watch::channel(());
        let ws = tokio::spawn(feed::serve(sockets_chain, sockets, cuts));
        Ok(Self { address, _stop: stop, ws_address, ws, cut })
    }

    /// Returns the HTTP address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the HTTP URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the WebSocket URL.
    pub fn ws_url(&self) -> String {
        format!("ws://{}", self.ws_address)
    }

    /// Drops all WebSocket connections without a close frame. Clients can reconnect.
    pub fn cut_sockets(&self) {
        self.cut.send_replace(());
    }
}

impl Drop for DevNode {
    fn drop(&mut self) {
        self.ws.abort();
    }
}

fn answer<B>(chain: DevChain, request: Request<B>) -> BoxFuture<'static, Result<Response<NodeBody>, Reset>>
where
    B: Body<Data: Send> + Send + 'static,
{
    Box::pin(async move {
        let body = request.into_body().collect().await.map_err(|_| Reset)?.to_bytes();
        match chain.serve(body).await {
            NodeResponse::Hang => std::future::pending().await,
            NodeResponse::Reset { sent } if sent.is_empty() => Err(Reset),
            NodeResponse::Reset { sent } => {
                let broken = stream::iter([Ok(Frame::data(sent)), Err(Reset)]);
                Ok(Response::new(StreamBody::new(broken.boxed())))
            }
            NodeResponse::Reply { status, headers, body, drip } => {
                let pieces = pieces(body, drip);
                let mut response = Response::new(StreamBody::new(pieces));
                *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Reset)?;
                for (name, value) in headers {
                    let value = value.parse().map_err(|_| Reset)?;
                    response.headers_mut().insert(name, value);
                }
                Ok(response)
            }
        }
    })
}

/// Returns the body at once, or in small pieces with a pause before each.
fn pieces(
    body: Bytes,
    drip: Option<Duration>,
) -> Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Reset>> + Send>> {
    let Some(pause) = drip else {
        return stream::iter([Ok(Frame::data(body))]).boxed();
    };
    stream::unfold(body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let piece = rest.split_to(rest.len().min(DRIP));
        Some((Ok(Frame::data(piece)), rest))
    })
    .boxed()
}

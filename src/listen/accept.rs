//! Binds an address and accepts connections until told to stop.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{self, Instant},
};
use tower::{BoxError, Service};
use tracing::{debug, warn};

use super::{Config, Metrics, connection::Connections};

/// How long to wait after the system has refused a connection for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An operator must learn of failing accepts, but not twenty times a second.
const ACCEPT_WARN_EVERY: Duration = Duration::from_secs(10);

/// The address could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    /// What was asked for.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    config: Config,
    metrics: Metrics,
}

// === impl Listener ===

impl Listener {
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub async fn bind(address: SocketAddr, config: Config, metrics: Metrics) -> Result<Self, BindError> {
        let error = |source| BindError { address, source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(Self { tcp, address, config, metrics })
    }

    /// The address it really listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves every connection with a clone of `service` until `stop`; then closes the socket and
    /// returns when every request whose head was read is answered, or `drain_timeout` has passed.
    pub async fn serve<S, B>(self, service: S, stop: impl Future<Output = ()>)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Error: std::error::Error + Send + Sync> + Send + 'static,
        B::Data: Send,
    {
        let Self { tcp, config, metrics, .. } = self;
        let drain_timeout = config.drain_timeout;
        let graceful = GracefulShutdown::new();
        let acceptor = Acceptor {
            tcp,
            slots: Arc::new(Semaphore::new(config.max)),
            pressure: Arc::new(Notify::new()),
            warned: None,
        };
        let connections = Connections::new(config, metrics, acceptor.pressure.clone());
        tokio::select! {
            () = acceptor.run(&connections, &graceful, service) => {}
            () = stop => {}
        }
        if time::timeout(drain_timeout, graceful.shutdown()).await.is_err() {
            warn!(?drain_timeout, "connections were cut off: their requests took too long");
        }
    }
}

struct Acceptor {
    tcp: TcpListener,
    slots: Arc<Semaphore>,
    /// Asks one idle connection to make room.
    pressure: Arc<Notify>,
    warned: Option<Instant>,
}

// === impl Acceptor ===

impl Acceptor {
    async fn run<S, B>(mut self, connections: &Connections, graceful: &GracefulShutdown, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Error: std::error::Error + Send + Sync> + Send + 'static,
        B::Data: Send,
    {
        loop {
            // Accepted before there is a place for it: only somebody's arrival is worth closing
            // another's idle connection.
            let stream = self.accept().await;
            let slot = self.slot().await;
            tokio::spawn(connections.serve(stream, service.clone(), graceful.watcher(), slot));
        }
    }

    /// Waits for a place under the cap, at the cost of an idle connection where there is one.
    async fn slot(&self) -> OwnedSemaphorePermit {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return slot;
        }
        self.pressure.notify_one();
        self.slots.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn accept(&mut self) -> TcpStream {
        loop {
            match self.tcp.accept().await {
                Ok((stream, _)) => {
                    // Answers are written whole: waiting to fill a packet would only delay them.
                    if let Err(error) = stream.set_nodelay(true) {
                        debug!(%error, "the connection was gone before it was served");
                    }
                    return stream;
                }
                Err(error) if is_peers_fault(&error) => {
                    debug!(%error, "a connection was lost before it was accepted");
                }
                Err(error) => {
                    // Out of files or memory (EMFILE and its kin): the connection stays in the
                    // backlog, so going on at once would only spin.
                    self.warn(&error);
                    self.pressure.notify_one();
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn warn(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.warned.is_none_or(|last| now.duration_since(last) >= ACCEPT_WARN_EVERY) {
            self.warned = Some(now);
            warn!(%error, "cannot accept connections: raise the file limit or lower connections.max");
        }
    }
}

fn is_peers_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

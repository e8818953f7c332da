//! Binds an address and accepts connections until told to stop.

use std::{future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{self, Instant},
};
use tracing::{debug, warn};

use super::{Config, HttpService, Metrics, Tls, connection::Connections, pressure::Pressure};

/// How long to wait after the system has refused a connection for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How soon a connection that nobody needs has made room; after that it is known that there is none.
const ROOM_MADE: Duration = Duration::from_millis(100);

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
    tls: Option<Tls>,
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
        Ok(Self { tcp, address, config, tls: None, metrics })
    }

    /// Speaks TLS, if there is a certificate to show, and nothing else.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// The address it really listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves every connection with a clone of `service` until `stop`; then closes the socket and returns
    /// when every request whose head was read is answered, or `drain_timeout` has passed: what connections
    /// are left then are cut off.
    pub async fn serve(self, service: impl HttpService, stop: impl Future<Output = ()>) {
        let Self { tcp, config, tls, metrics, .. } = self;
        let drain_timeout = config.drain_timeout;
        let mut acceptor = Acceptor {
            tcp,
            arrived: None,
            slots: Arc::new(Semaphore::new(config.max)),
            pressure: Arc::default(),
            warned: None,
        };
        let (stop_all, stopping) = watch::channel(false);
        // Dropped when this ends, however it ends: no connection is served longer.
        let (_until, open) = watch::channel(());
        let pressure = acceptor.pressure.clone();
        let connections = Connections::new(config, tls, metrics, pressure, stopping, open);
        tokio::select! {
            () = acceptor.run(&connections, &service) => {}
            () = stop => {}
        }
        acceptor.last(&connections, &service);
        // Each connection listens to this until it ends, and nobody else does from here on.
        drop(connections);
        stop_all.send_replace(true);
        if time::timeout(drain_timeout, stop_all.closed()).await.is_err() {
            warn!(?drain_timeout, "connections are cut off: their requests take too long");
        }
    }
}

struct Acceptor {
    tcp: TcpListener,
    /// Has connected, and has no place yet.
    arrived: Option<TcpStream>,
    slots: Arc<Semaphore>,
    /// Asks one idle connection to make room.
    pressure: Arc<Pressure>,
    warned: Option<Instant>,
}

// === impl Acceptor ===

impl Acceptor {
    async fn run(&mut self, connections: &Connections, service: &impl HttpService) {
        loop {
            // Accepted before there is a place for it: only somebody's arrival is worth closing
            // another's idle connection.
            if self.arrived.is_none() {
                self.arrived = Some(self.accept().await);
            }
            let slot = self.slot().await;
            if let Some(stream) = self.arrived.take() {
                tokio::spawn(connections.serve(stream, service.clone(), slot));
            }
        }
    }

    /// Serves those who have connected by now and find a place; nobody after them can connect. They cannot have known
    /// that it ends, and would lose what they have sent.
    fn last(mut self, connections: &Connections, service: &impl HttpService) {
        while let Some(stream) = self.arrived.take().or_else(|| self.accept().now_or_never())
            && let Ok(slot) = self.slots.clone().try_acquire_owned()
        {
            tokio::spawn(connections.serve(stream, service.clone(), slot));
        }
    }

    /// Waits for a place under the cap, at the cost of an idle connection where there is one, or of one whose peer hardly
    /// takes what it asked for.
    async fn slot(&self) -> OwnedSemaphorePermit {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return slot;
        }
        self.pressure.ask();
        let mut freed = pin!(self.slots.clone().acquire_owned());
        let slot = loop {
            match time::timeout(ROOM_MADE, freed.as_mut()).await {
                Ok(slot) => break slot.expect("the semaphore is never closed"),
                Err(_) => self.pressure.insist(),
            }
        };
        // It may have come from a connection that ended by itself.
        self.pressure.withdraw();
        slot
    }

    async fn accept(&mut self) -> TcpStream {
        loop {
            match self.tcp.accept().await {
                Ok((stream, _)) => {
                    self.pressure.withdraw();
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
                    self.pressure.ask();
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

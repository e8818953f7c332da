//! Binds an address and accepts connections until the listener stops.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{self, Instant},
};
use tracing::{debug, warn};

use super::{
    Config, HttpService, Metrics, Tls,
    connection::Connections,
    slots::{Slots, Trusted},
};
use crate::display::seconds;

/// Pause after `accept` has failed because the process ran out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of accepted connections that wait for a slot. The listener closes further ones instead of pausing
/// `accept`, so that other addresses can still connect.
const MAX_WAITING: usize = 64;

/// How often the listener checks whether a waiting connection can displace one that has become idle.
const WAITING_TICK: Duration = Duration::from_millis(20);

/// Minimum time between two warnings about failing accepts, which can fail twenty times a second.
const ACCEPT_WARN_EVERY: Duration = Duration::from_secs(10);

/// The listener could not bind its address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    /// The address to bind.
    pub address: SocketAddr,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

/// A bound socket.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    config: Config,
    tls: Option<Tls>,
    trusted: Trusted,
    metrics: Metrics,
}

// === impl Listener ===

impl Listener {
    /// Binds `address`; port 0 picks a free port.
    ///
    /// # Errors
    /// If the address cannot be bound, for example because it is in use or does not belong to this machine.
    pub async fn bind(address: SocketAddr, config: Config, metrics: Metrics) -> Result<Self, BindError> {
        let error = |source| BindError { address, source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(Self { tcp, address, config, tls: None, trusted: Arc::new(|_| false), metrics })
    }

    /// Accepts only TLS connections if `tls` is set, and only plain ones otherwise.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Sets which peers are trusted proxies. The listener displaces their connections last, and does not close them
    /// after a refused request.
    #[must_use]
    pub fn with_trusted(self, is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { trusted: Arc::new(is_trusted), ..self }
    }

    /// Returns the bound address, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves every connection with a clone of `service` until `stop` resolves. Then closes the socket and lets each
    /// connection answer its open requests. Returns when all connections have ended, or after `drain_timeout`, when it
    /// cuts off the remaining ones.
    pub async fn serve(self, service: impl HttpService, stop: impl Future<Output = ()>) {
        let Self { tcp, config, tls, trusted, metrics, .. } = self;
        let drain_timeout = config.drain_timeout;
        let slots = Arc::new(Slots::new(config.max, trusted));
        let mut acceptor = Acceptor { tcp, slots, waiting: VecDeque::new(), warned: None };
        let (stop_all, stopping) = watch::channel(false);
        // When this future ends or is dropped, `_until` is dropped, too, which cuts off all connections.
        let (_until, open) = watch::channel(());
        let connections = Connections::new(config, tls, metrics, stopping, open);
        tokio::select! {
            () = acceptor.run(&connections, &service) => {}
            () = stop => {}
        }
        acceptor.last(&connections, &service);
        // From here on, only open connections hold receivers of `stop_all`, so `closed()` resolves when the last
        // connection ends.
        drop(connections);
        stop_all.send_replace(true);
        if time::timeout(drain_timeout, stop_all.closed()).await.is_err() {
            let drain_timeout_seconds = seconds(drain_timeout);
            warn!(
                drain_timeout_seconds,
                "drain timeout reached; closing connections with requests in flight"
            );
        }
    }
}

struct Acceptor {
    tcp: TcpListener,
    slots: Arc<Slots>,
    /// Accepted connections that wait for a slot, because each connection that they could displace is busy, or because
    /// too many displaced connections have not ended.
    waiting: VecDeque<Arrival>,
    warned: Option<Instant>,
}

struct Arrival {
    stream: TcpStream,
    peer: Option<IpAddr>,
}

// === impl Acceptor ===

impl Acceptor {
    async fn run(&mut self, connections: &Connections, service: &impl HttpService) {
        loop {
            // While too many displaced connections have not ended, the listener accepts nothing: new connections wait
            // in the system's backlog.
            let is_settling = self.slots.is_settling();
            let waits = is_settling || !self.waiting.is_empty();
            tokio::select! {
                arrived = accept(&self.tcp), if !is_settling => match arrived {
                    Ok(arrival) => self.waiting.push_back(arrival),
                    Err(error) => {
                        // The process has run out of file descriptors or memory (EMFILE and the like). The connection
                        // stays in the backlog, so an immediate retry would only spin.
                        self.warn(&error);
                        self.slots.give_up_one();
                        time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = self.slots.freed(), if waits => {}
                () = time::sleep(WAITING_TICK), if waits => {}
            }
            self.serve_waiting(connections, service);
            // Closes the newest waiting connection. Its client can retry later.
            if self.waiting.len() > MAX_WAITING && self.waiting.pop_back().is_some() {
                debug!("connection closed: too many connections wait for a slot");
            }
        }
    }

    /// Accepts and serves the connections in the backlog before the socket closes, as far as there are slots. Their
    /// clients cannot know that the listener stops, and would lose requests that they have already sent.
    fn last(mut self, connections: &Connections, service: &impl HttpService) {
        while let Some(Ok(arrival)) = accept(&self.tcp).now_or_never() {
            self.waiting.push_back(arrival);
        }
        self.serve_waiting(connections, service);
    }

    /// Serves each waiting connection that gets a slot: a free slot, or the slot of a connection that it displaces.
    fn serve_waiting(&mut self, connections: &Connections, service: &impl HttpService) {
        // Addresses that got no slot in this loop. Their further connections would get none either, so the loop skips
        // them.
        let mut in_vain = Vec::new();
        for arrival in std::mem::take(&mut self.waiting) {
            let slot = if in_vain.contains(&arrival.peer) { None } else { self.slots.take(arrival.peer) };
            match slot {
                Some(slot) => {
                    tokio::spawn(connections.serve(arrival.stream, arrival.peer, service.clone(), slot));
                }
                None => {
                    in_vain.push(arrival.peer);
                    self.waiting.push_back(arrival);
                }
            }
        }
    }

    fn warn(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.warned.is_none_or(|last| now.duration_since(last) >= ACCEPT_WARN_EVERY) {
            self.warned = Some(now);
            warn!(%error, "cannot accept connections; raise the file limit or lower connections.max");
        }
    }
}

/// Accepts the next connection.
async fn accept(tcp: &TcpListener) -> io::Result<Arrival> {
    loop {
        match tcp.accept().await {
            Ok((stream, peer)) => {
                // Nagle's algorithm would only delay the answers, which are written whole.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "cannot disable Nagle's algorithm; the peer has probably disconnected");
                }
                return Ok(Arrival { stream, peer: Some(peer.ip()) });
            }
            Err(error) if is_peers_fault(&error) => {
                debug!(%error, "connection lost before it was accepted");
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_peers_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

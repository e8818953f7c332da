//! Binds an address and accepts connections until told to stop.

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

/// How long to wait after the system has refused a connection for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait for a slot. Past that they are closed: those of other addresses must be accepted.
const MAX_WAITING: usize = 64;

/// How often they look whether a connection has become idle.
const WAITING_TICK: Duration = Duration::from_millis(20);

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
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub async fn bind(address: SocketAddr, config: Config, metrics: Metrics) -> Result<Self, BindError> {
        let error = |source| BindError { address, source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(Self { tcp, address, config, tls: None, trusted: Arc::new(|_| false), metrics })
    }

    /// Speaks TLS, if there is a certificate to show, and nothing else.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Displaces connections of trusted proxies after all others, and closes none of them for a refused request.
    #[must_use]
    pub fn with_trusted(self, is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { trusted: Arc::new(is_trusted), ..self }
    }

    /// The address it really listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves every connection with a clone of `service` until `stop`; then closes the socket and returns
    /// when every request whose head was read is answered, or `drain_timeout` has passed: what connections
    /// are left then are cut off.
    pub async fn serve(self, service: impl HttpService, stop: impl Future<Output = ()>) {
        let Self { tcp, config, tls, trusted, metrics, .. } = self;
        let drain_timeout = config.drain_timeout;
        let slots = Arc::new(Slots::new(config.max, trusted));
        let mut acceptor = Acceptor { tcp, slots, waiting: VecDeque::new(), warned: None };
        let (stop_all, stopping) = watch::channel(false);
        // Dropped when this ends, however it ends: no connection is served longer.
        let (_until, open) = watch::channel(());
        let connections = Connections::new(config, tls, metrics, stopping, open);
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
    slots: Arc<Slots>,
    /// Connected, and without a slot: their address holds the most, and all its connections are busy.
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
            // Not accepted meanwhile: a newcomer of any address waits a moment in the backlog.
            let is_settling = self.slots.is_settling();
            let waits = is_settling || !self.waiting.is_empty();
            tokio::select! {
                arrived = accept(&self.tcp), if !is_settling => match arrived {
                    Ok(arrival) => self.waiting.push_back(arrival),
                    Err(error) => {
                        // Out of files or memory (EMFILE and its kin): the connection stays in the
                        // backlog, so going on at once would only spin.
                        self.warn(&error);
                        self.slots.give_up_one();
                        time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = self.slots.freed(), if waits => {}
                () = time::sleep(WAITING_TICK), if waits => {}
            }
            self.serve_waiting(connections, service);
            // The one that came last goes: a client with so many connections can wait with the next.
            if self.waiting.len() > MAX_WAITING && self.waiting.pop_back().is_some() {
                debug!("a connection was closed: too many of its address wait for a slot");
            }
        }
    }

    /// Serves those who have connected by now and find a slot; nobody after them can connect. They cannot have known
    /// that it ends, and would lose what they have sent.
    fn last(mut self, connections: &Connections, service: &impl HttpService) {
        while let Some(Ok(arrival)) = accept(&self.tcp).now_or_never() {
            self.waiting.push_back(arrival);
        }
        self.serve_waiting(connections, service);
    }

    /// Serves the connections that wait, as far as there are slots for them, or as others are displaced.
    fn serve_waiting(&mut self, connections: &Connections, service: &impl HttpService) {
        // One look for each address is enough.
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
            warn!(%error, "cannot accept connections: raise the file limit or lower connections.max");
        }
    }
}

/// The next connection.
async fn accept(tcp: &TcpListener) -> io::Result<Arrival> {
    loop {
        match tcp.accept().await {
            Ok((stream, peer)) => {
                // Answers are written whole: waiting to fill a packet would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "the connection was gone before it was served");
                }
                return Ok(Arrival { stream, peer: Some(peer.ip()) });
            }
            Err(error) if is_peers_fault(&error) => {
                debug!(%error, "a connection was lost before it was accepted");
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

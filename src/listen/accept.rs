//! Binds an address and accepts connections until the listener stops.

use std::{
    collections::VecDeque,
    future::Future,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task,
    time::{self, MissedTickBehavior},
};
use tracing::{debug, warn};

use super::{
    Config, HttpService, Metrics, Tls,
    connection::Connections,
    slots::{Slots, Trusted},
};
use crate::{display::seconds, log_throttle::LogThrottle};

/// Pause after `accept` has failed because the process ran out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time between two waiting connections that get a slot. A crowd that reconnects whenever it is displaced would otherwise
/// keep the program busy with nothing else.
const PACE: Duration = Duration::from_millis(5);

/// Errors of `accept` that concern only the connection.
const PEERS_FAULT: [ErrorKind; 3] =
    [ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused];

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

/// A connection that was accepted, and its peer.
type Arrival = (TcpStream, IpAddr);

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
        let slots = Slots::new(config.max, trusted, metrics.clone());
        // When this future ends or is dropped, `stop_all` is dropped, too, which cuts off all connections.
        let (stop_all, stopping) = watch::channel(false);
        let connections = Connections::new(config, tls, metrics, stopping);
        let serve = |(stream, peer)| {
            let slot = Slots::take(&slots, peer);
            task::spawn(connections.serve(stream, service.clone(), slot));
        };
        let mut waiting = VecDeque::new();
        tokio::select! {
            () = listen(&tcp, &slots, &mut waiting, serve) => {}
            () = stop => {}
        }
        // The clients of waiting connections and of those in the backlog cannot know that the listener stops, and would
        // lose requests that they have already sent.
        waiting.into_iter().for_each(serve);
        while let Some(Ok(arrival)) = accept(&tcp).now_or_never() {
            serve(arrival);
        }
        drop(tcp);
        // From here on, only open connections hold receivers of `stop_all`, so `closed()` resolves when the last
        // connection ends.
        drop(connections);
        stop_all.send_replace(true);
        if time::timeout(drain_timeout, stop_all.closed()).await.is_err() {
            warn!(
                drain_timeout_seconds = seconds(drain_timeout),
                "drain timeout reached; closing connections with requests in flight"
            );
        }
    }
}

/// Accepts connections for ever. While the listener is full, a network that has several newcomers waits for its next one,
/// so that newcomers of other networks are served at once.
async fn listen(tcp: &TcpListener, slots: &Slots, waiting: &mut VecDeque<Arrival>, serve: impl Fn(Arrival)) {
    let log_throttle = LogThrottle::default();
    let mut pace = time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = accept(tcp) => match accepted {
                Ok(arrival) if slots.must_wait(arrival.1) => {
                    waiting.push_back(arrival);
                    // Closes the newest one if too many wait. Its client can retry later.
                    waiting.truncate(slots.max / 2);
                }
                Ok(arrival) => serve(arrival),
                Err(error) => {
                    // The process has run out of file descriptors or memory (EMFILE and the like). The connection stays
                    // in the backlog, so an immediate retry would only spin.
                    if log_throttle.is_due("accept") {
                        warn!(%error, "cannot accept connections; raise the file limit or lower connections.max");
                    }
                    slots.give_up_one();
                    time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = pace.tick(), if !waiting.is_empty() => waiting.pop_front().into_iter().for_each(&serve),
        }
    }
}

/// Accepts the next connection.
async fn accept(tcp: &TcpListener) -> io::Result<Arrival> {
    loop {
        match tcp.accept().await {
            Ok((stream, peer)) => {
                // Nagle's algorithm would only delay the answers, which are written whole. Fails only if the peer has
                // disconnected.
                let _ = stream.set_nodelay(true);
                return Ok((stream, peer.ip()));
            }
            Err(error) if PEERS_FAULT.contains(&error.kind()) => {
                debug!(%error, "connection lost before it was accepted");
            }
            Err(error) => return Err(error),
        }
    }
}

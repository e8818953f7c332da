//! The short path to a node: plain HTTP/1.1 without a proxy, usually to a node on the same network.
//!
//! reqwest serves all other endpoints. It prepares each request for redirects, retries and proxies, which costs more
//! than the request itself. The requests of this client differ only in their body and trace headers, so their head is
//! built once.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    future::ready,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header, request::Parts, uri::Scheme};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::client::{legacy::connect::HttpConnector, proxy::matcher::Matcher};
use parking_lot::Mutex;
use tokio::time::{self, Instant};
use tower::{BoxError, ServiceExt, service_fn};
use tower_http::decompression::{Decompression, DecompressionBody};

use super::{
    EndpointAddress,
    client::{IDLE_TIMEOUT, USER_AGENT},
};
use crate::{context::CallContext, timeout::timeout};

/// Settings with which TCP gives up a connection that is silent, or on which nothing gets through. reqwest uses the
/// same values.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for an idle connection to become ready.
const READY_TIMEOUT: Duration = Duration::from_millis(20);

/// Accepted encodings of an answer.
const ENCODINGS: &str = "zstd,gzip";

/// A connection that takes one request at a time.
pub(in crate::upstream) type Connection = SendRequest<Full<Bytes>>;

/// A client for one node.
pub(in crate::upstream) struct DirectClient {
    connector: HttpConnector,
    connect_timeout: Duration,
    to: Uri,
    head: Parts,
    pool: Arc<Mutex<IdleConnections>>,
}

/// The idle connections.
#[derive(Debug, Default)]
struct IdleConnections {
    /// The idle connections, the longest idle one first.
    idle: VecDeque<IdleConnection>,
    /// Whether a task is running that closes expired connections.
    is_tended: bool,
}

/// The reason why a request got no response.
#[derive(Debug)]
pub(in crate::upstream) enum SendError {
    /// No connection could be opened.
    Connect(BoxError),
    /// The connection broke before the response began.
    Broken(hyper::Error),
}

#[derive(Debug)]
struct IdleConnection {
    connection: Connection,
    since: Instant,
}

// === impl DirectClient ===

impl DirectClient {
    /// Prepares the request head as reqwest would send it; does not connect yet. Returns `None` if the endpoint
    /// needs TLS or a proxy.
    pub(in crate::upstream) fn try_new(
        sent: &reqwest::Request,
        address: &EndpointAddress,
        connect_timeout: Duration,
    ) -> Option<Self> {
        let to = Uri::try_from(sent.url().as_str()).ok()?;
        let is_proxied = || !address.url().is_loopback() && Matcher::from_system().intercept(&to).is_some();
        if to.scheme() != Some(&Scheme::HTTP) || is_proxied() {
            return None;
        }
        let mut head = Request::post(to.path_and_query()?.as_str()).body(()).ok()?.into_parts().0;
        let headers = &mut head.headers;
        headers.extend(sent.headers().clone());
        headers.extend(address.headers().clone());
        // Sets these headers, unless the operator has configured other values.
        let host = HeaderValue::from_str(to.authority()?.as_str()).ok()?;
        headers.entry(header::HOST).or_insert(host);
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static(ENCODINGS));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE));
        connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
        Some(Self { connector, connect_timeout, to, head, pool: Arc::default() })
    }

    /// Sends a request, with `trace_headers` in addition to the fixed headers. After reading the response to its
    /// end, the caller [releases](Self::release) the connection; otherwise the connection closes.
    pub(in crate::upstream) async fn send(
        &self,
        body: Bytes,
        trace_headers: HeaderMap,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        let mut request = Request::from_parts(self.head.clone(), Full::new(body));
        request.headers_mut().extend(trace_headers);
        while let Some(mut connection) = self.take_idle() {
            // Drops a connection that is still sending an earlier request, which the node answered early: it may not
            // become ready soon.
            if !matches!(timeout(READY_TIMEOUT, connection.ready()).await, Ok(Ok(()))) {
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut error) => match error.take_message() {
                    // The node closed the connection before the request was sent: try another connection.
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Broken(error.into_error())),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await.map_err(SendError::Broken)?;
        Ok((response, connection))
    }

    /// Returns a connection to the pool once its response was read to the end.
    pub(in crate::upstream) fn release(&self, connection: Connection) {
        if connection.is_closed() {
            return;
        }
        let mut pool = self.pool.lock();
        pool.idle.push_back(IdleConnection { connection, since: Instant::now() });
        if !std::mem::replace(&mut pool.is_tended, true) {
            tokio::spawn(close_expired(Arc::downgrade(&self.pool)));
        }
    }

    /// Returns the connection used last, so that surplus connections expire.
    fn take_idle(&self) -> Option<Connection> {
        let mut pool = self.pool.lock();
        let last = pool.idle.pop_back()?;
        if last.is_expired(Instant::now()) {
            // All other connections have been idle for longer.
            pool.idle.clear();
            return None;
        }
        Some(last.connection)
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        CallContext::report_connection();
        let connecting = self.connector.clone().oneshot(self.to.clone());
        let stream = match timeout(self.connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| SendError::Connect(error.into()))?,
            Err(_) => return Err(SendError::Connect("operation timed out".into())),
        };
        let (sender, connection) = http1::handshake(stream).await.map_err(SendError::Broken)?;
        // The task ends when the sender is dropped or the node closes the connection. A pending request receives the
        // error.
        tokio::spawn(connection.map(drop));
        Ok(sender)
    }
}

impl fmt::Debug for DirectClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request head may hold a key.
        f.debug_struct("DirectClient").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Closes expired connections, and ends when no idle connection is left.
async fn close_expired(pool: Weak<Mutex<IdleConnections>>) {
    loop {
        time::sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let mut pool = pool.lock();
        while pool.idle.front().is_some_and(|idle| idle.is_expired(now)) {
            pool.idle.pop_front();
        }
        if pool.idle.is_empty() {
            pool.is_tended = false;
            return;
        }
    }
}

// === impl IdleConnection ===

impl IdleConnection {
    fn is_expired(&self, now: Instant) -> bool {
        now >= self.since + IDLE_TIMEOUT
    }
}

/// Decompresses a response while it is read.
pub(in crate::upstream) async fn decompress(
    response: Response<Incoming>,
) -> Response<DecompressionBody<Incoming>> {
    // The layer needs a service to wrap, so this one returns the response. Its closure is not `async`, because rustc 1.95
    // panics in incremental builds that check such a closure again.
    let responded = service_fn(|carrier: Request<_>| ready(Ok::<_, Infallible>(carrier.into_body())));
    let Ok(decompressed) = Decompression::new(responded).oneshot(Request::new(response)).await;
    decompressed
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::upstream::EndpointConfig;

    fn direct(url: &str) -> Option<DirectClient> {
        let address = EndpointAddress::resolve(&EndpointConfig::at(url)).unwrap();
        let sent = reqwest::Request::new(http::Method::POST, address.url().as_url().clone());
        DirectClient::try_new(&sent, &address, Duration::from_secs(1))
    }

    #[test]
    fn only_plain_http_uses_the_direct_transport() {
        assert!(direct("http://127.0.0.1:8545/KEY").is_some());
        assert!(direct("http://[::1]:8545").is_some());
        assert!(direct("https://127.0.0.1:8545").is_none());
    }

    #[tokio::test]
    async fn open_and_recently_used_connection_is_reused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let direct = direct(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        // Closes the first connection after three requests, and no other; reports the connection of each request.
        let (on, mut came) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for (connection, most) in (1..).zip([3, 9, 9]) {
                let ((mut stream, _), on) = (listener.accept().await.unwrap(), on.clone());
                tokio::spawn(async move {
                    for _ in 0..most {
                        let mut request = Vec::new();
                        while !request.ends_with(b"\r\n\r\n{}") {
                            if stream.read_buf(&mut request).await.unwrap() == 0 {
                                return;
                            }
                        }
                        on.send(connection).await.unwrap();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        for on in [1, 1, 1, 2, 3, 3] {
            let (response, connection) =
                direct.send(Bytes::from_static(b"{}"), HeaderMap::new()).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
            direct.release(connection);
            assert_eq!(came.recv().await, Some(on));
            // Waits until Holdfast has noticed that the node closed the connection.
            time::sleep(Duration::from_millis(20)).await;
            if on == 2 {
                // An expired connection is not reused: the node may be about to close it.
                for idle in &mut direct.pool.lock().idle {
                    idle.since -= IDLE_TIMEOUT;
                }
            }
        }
    }

    #[tokio::test]
    async fn answer_before_the_whole_request_was_read_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let direct = direct(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                stream.read_buf(&mut head).await.unwrap();
                stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                open.push(stream);
            }
        });
        for _ in 0..2 {
            // The body is larger than the socket buffers.
            let (response, connection) =
                direct.send(Bytes::from(vec![b' '; 32 << 20]), HeaderMap::new()).await.unwrap();
            assert_eq!(response.status(), 413);
            direct.release(connection);
        }
        let small =
            time::timeout(Duration::from_secs(5), direct.send(Bytes::from_static(b"{}"), HeaderMap::new()))
                .await;
        assert_eq!(small.expect("waited for a connection that is not ready").unwrap().0.status(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_without_a_new_call() {
        let (near, far) = tokio::io::duplex(64);
        let (sender, connection) = http1::handshake(hyper_util::rt::TokioIo::new(near)).await.unwrap();
        let _open = (tokio::spawn(connection.map(drop)), far);
        let direct = direct("http://127.0.0.1:1").unwrap();
        direct.release(sender);
        time::sleep(IDLE_TIMEOUT / 2).await;
        assert_eq!(direct.pool.lock().idle.len(), 1);
        time::sleep(IDLE_TIMEOUT).await;
        let pool = direct.pool.lock();
        assert!(pool.idle.is_empty() && !pool.is_tended);
    }
}

//! HTTP servers for tests of the upstream client. They record its connections and requests.

use std::{
    fs,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use holdfast::devchain::{DevChain, NodeResponse};
use http::{HeaderMap, Request, Response, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

pub use crate::support::authority::Authority;

/// Takes the text of a request and the chain's answer, and returns the answer to send.
type Change = dyn Fn(&str, Response<Bytes>) -> Response<Bytes> + Send + Sync;

/// Builder of a [`Server`] in front of a chain.
pub struct Builder {
    chain: DevChain,
    tls: Option<TlsAcceptor>,
    change: Arc<Change>,
}

/// A running server. Stops when dropped.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    seen: Arc<Mutex<Seen>>,
    end: watch::Sender<End>,
    accepting: AbortHandle,
}

/// State that the connections of a server share.
#[derive(Clone)]
struct Serving {
    node: Arc<Builder>,
    seen: Arc<Mutex<Seen>>,
}

/// How the server abandons all connections that are open at a moment.
enum End {
    HungUp,
    FellSilent,
}

/// Connections and requests that a server has received.
#[derive(Default)]
pub struct Seen {
    pub connections: usize,
    pub open: usize,
    pub most_open: usize,
    pub refused_handshakes: usize,
    pub requests: Vec<Seeing>,
}

/// A recorded request.
pub struct Seeing {
    pub version: Version,
    pub headers: HeaderMap,
    pub body: String,
}

pub fn node(chain: &DevChain) -> Builder {
    Builder { chain: chain.clone(), tls: None, change: Arc::new(|_, response| response) }
}

// === impl Builder ===

impl Builder {
    /// Serves TLS, with a certificate for `name` and these ALPN protocols.
    pub fn tls(self, authority: &Authority, name: &str, protocols: &[&str]) -> Self {
        Self { tls: Some(authority.acceptor(name, protocols)), ..self }
    }

    /// Changes the chain's answers, depending on the text of the request.
    pub fn changing(
        self,
        change: impl Fn(&str, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self { change: Arc::new(change), ..self }
    }

    pub async fn run(self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let seen = Arc::<Mutex<Seen>>::default();
        let end = watch::Sender::new(End::HungUp);
        let serving = Serving { node: Arc::new(self), seen: seen.clone() };
        let ended = end.subscribe();
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (serving, mut ended) = (serving.clone(), ended.clone());
                // Earlier changes do not concern this connection.
                ended.mark_unchanged();
                tokio::spawn(async move {
                    let seen = serving.seen.clone();
                    seen.lock().unwrap().opened();
                    let mut connection = pin!(serving.connection(stream));
                    tokio::select! {
                        () = &mut connection => {}
                        _ = ended.changed() => {
                            if matches!(*ended.borrow(), End::FellSilent) {
                                std::future::pending::<()>().await;
                            }
                        }
                    }
                    seen.lock().unwrap().open -= 1;
                });
            }
        });
        Server { address, scheme, seen, end, accepting: accepting.abort_handle() }
    }
}

// === impl Server ===

impl Server {
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Closes all open connections, even during a request.
    pub fn hang_up(&self) {
        self.end.send_replace(End::HungUp);
    }

    /// Returns whether the server has closed a connection that a client has not closed yet. Always `false` without
    /// `/proc/net/tcp`.
    pub fn is_half_closed(&self) -> bool {
        const CLOSE_WAIT: &str = "08";
        let port = format!(":{:04X}", self.address.port());
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        // The words of a line are its number, the local address, the remote address, and the state.
        sockets.lines().map(|line| line.split_whitespace().skip(2)).any(|mut words| {
            words.next().is_some_and(|far| far.ends_with(&port)) && words.next() == Some(CLOSE_WAIT)
        })
    }

    /// Keeps all open connections, but neither reads nor writes on them any more.
    pub fn fall_silent(&self) {
        self.end.send_replace(End::FellSilent);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

// === impl Seen ===

impl Seen {
    /// Returns the requests that name `method`.
    pub fn calls(&self, method: &str) -> impl Iterator<Item = &Seeing> {
        self.requests.iter().filter(move |seeing| seeing.body.contains(method))
    }

    fn opened(&mut self) {
        self.connections += 1;
        self.open += 1;
        self.most_open = self.most_open.max(self.open);
    }
}

// === impl Serving ===

impl Serving {
    async fn connection(self, stream: TcpStream) {
        match self.node.tls.clone() {
            None => self.serve(stream).await,
            Some(acceptor) => match acceptor.accept(stream).await {
                Ok(stream) => self.serve(stream).await,
                Err(_) => self.seen.lock().unwrap().refused_handshakes += 1,
            },
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| self.clone().answer(request));
        let http = auto::Builder::new(TokioExecutor::new());
        // Ignores the result, because the client reports how the connection ended.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(self, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let seeing = Seeing { version: head.version, headers: head.headers, body: text.clone() };
        self.seen.lock().unwrap().requests.push(seeing);
        let NodeResponse::Reply { body, .. } = self.node.chain.serve(body).await else {
            return std::future::pending().await;
        };
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
        Ok((self.node.change)(&text, response.body(body).unwrap()).map(Full::new))
    }
}

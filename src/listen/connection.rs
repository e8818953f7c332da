//! Serves one connection.

use std::{
    future::Future,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::{
    net::TcpStream,
    sync::watch,
    task::coop::{Unconstrained, unconstrained},
    time,
};
use tower::Service;
use tracing::debug;

use super::{
    Config, HttpService, Metrics, Refused, RequestBody, Tls,
    activity::{Activity, Closed, RequestGuard, WatchedBody},
    handshake::Stream,
    slots::Slot,
};

/// Largest head of a request; known clients need less than half of it.
const MAX_HEAD: u32 = 64 * 1024;

/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Most bytes that one HTTP/2 stream buffers for a peer that does not read.
const MAX_SEND_BUFFER: usize = 128 * 1024;

/// When the listener stops, a connection without any request yet may have one on its way: it stays open this long.
const HEARING: Duration = Duration::from_millis(250);

/// How long a peer without an open request may take to close its side, once the connection finishes.
const FINISHING: Duration = Duration::from_secs(1);

/// State that all connections of a listener share.
#[derive(Clone)]
pub(super) struct Connections {
    http: Arc<auto::Builder<TokioExecutor>>,
    config: Arc<Config>,
    tls: Option<Tls>,
    metrics: Metrics,
    /// Changes when the listener stops accepting connections.
    stopping: watch::Receiver<bool>,
    /// Closes when the listener stops serving connections.
    open: watch::Receiver<()>,
}

/// Counts the requests that pass through `inner`.
///
/// hyper calls through a shared reference. Cloning the service for each request would touch the reference counts that all
/// layers share. The lock belongs to one connection and is never held across an await.
struct CountedService<S> {
    inner: Mutex<S>,
    activity: Arc<Activity>,
    /// `None` if the address is unknown.
    peer: Option<IpAddr>,
}

pin_project! {
    struct CountedFuture<F> {
        #[pin]
        inner: F,
        in_flight: Option<RequestGuard>,
    }
}

// === impl Connections ===

impl Connections {
    pub(super) fn new(
        config: Config,
        tls: Option<Tls>,
        metrics: Metrics,
        stopping: watch::Receiver<bool>,
        open: watch::Receiver<()>,
    ) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            // hyper's time-out includes idle time; `Activity` distinguishes the two.
            .header_read_timeout(None)
            // Would delay answers without bound while further requests arrive.
            .pipeline_flush(false)
            .max_buf_size(MAX_HEAD as usize);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD)
            .max_send_buf_size(MAX_SEND_BUFFER);
        Self { http: Arc::new(http), config: Arc::new(config), tls, metrics, stopping, open }
    }

    pub(super) fn serve<S: HttpService>(
        &self,
        stream: TcpStream,
        peer: Option<IpAddr>,
        service: S,
        slot: Slot,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let this = self.clone();
        async move {
            let _open = this.metrics.opened();
            let activity = slot.activity.clone();
            let service = CountedService { inner: Mutex::new(service), activity: activity.clone(), peer };
            let served = async {
                let mut stopping = this.stopping.clone();
                let stream = match &this.tls {
                    None => Stream::plain(stream, activity.clone()),
                    Some(tls) => tokio::select! {
                        secured = Stream::secure(stream, activity.clone(), tls, &this.metrics) => secured?,
                        // No request of this connection can have been read yet.
                        _ = stopping.changed() => return None,
                    },
                };
                let mut connection = pin!(this.http.serve_connection(TokioIo::new(stream), service));
                let mut stop = seldom_polled(async {
                    tokio::select! {
                        _ = stopping.changed() => true,
                        () = activity.finishing() => false,
                    }
                });
                let is_stopping = tokio::select! {
                    biased;
                    ended = connection.as_mut() => return ended.err(),
                    is_stopping = stop.next() => is_stopping == Some(true),
                };
                if !is_stopping {
                    connection.as_mut().graceful_shutdown();
                    let mut requests = None;
                    // Answers open requests and those already on their way. Cuts off a peer that goes on sending requests.
                    while time::timeout(FINISHING, connection.as_mut()).await.is_err()
                        && activity.is_answering()
                        && *requests.get_or_insert(activity.requests()) == activity.requests()
                    {
                    }
                    if activity.is_displaced() {
                        this.metrics.closed(Closed::Displaced);
                    }
                    return None;
                }
                if activity.is_new() {
                    tokio::select! {
                        biased;
                        ended = connection.as_mut() => return ended.err(),
                        () = unconstrained(time::sleep(HEARING)) => {}
                    }
                }
                connection.as_mut().graceful_shutdown();
                connection.await.err()
            };
            let mut open = this.open.clone();
            let mut ended = seldom_polled(async {
                tokio::select! {
                    reason = activity.expired(&this.config) => Some(reason),
                    // Nothing is ever sent on this channel: it only closes.
                    _ = open.changed() => None,
                }
            });
            tokio::select! {
                biased;
                error = served => {
                    if let Some(error) = error {
                        debug!(error, "connection ended");
                    }
                }
                Some(reason) = ended.next() => match reason {
                    Some(reason) => {
                        debug!(reason = reason.as_str(), "connection closed");
                        this.metrics.closed(reason);
                    }
                    None => debug!("connection cut off: the listener has stopped"),
                },
            }
        }
    }
}

/// Wraps a future so that it is polled only when it is woken, not each time its connection makes progress. It is exempt from
/// tokio's cooperative budget, which a peer that floods the connection could use up.
fn seldom_polled<F: Future>(future: F) -> FuturesUnordered<Unconstrained<F>> {
    std::iter::once(unconstrained(future)).collect()
}

// === impl CountedService ===

impl<S, B> hyper::service::Service<Request<Incoming>> for CountedService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
{
    type Response = Response<WatchedBody<B>>;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let in_flight = Some(self.activity.begin_request(request.version()));
        let request = request.map(|body| RequestBody::new(body, self.activity.clone(), self.peer));
        let mut inner = self.inner.lock();
        CountedFuture { inner: inner.call(request), in_flight }
    }
}

impl<F, B, E> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<WatchedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        let in_flight = this.in_flight.take().expect("future polled after completion");
        if response.extensions().get::<Refused>().is_some() {
            in_flight.refused();
        }
        // Keeps web pages from loading an answer as a script or a style sheet.
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if in_flight.ends_connection() {
            // The connection ends with this answer: a client with a connection pool must not reuse it.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody::new(body, in_flight))))
    }
}

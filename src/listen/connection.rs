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

/// Maximum size of a request head in bytes. Known clients need less than half of it.
const MAX_HEAD: u32 = 64 * 1024;

/// Maximum number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Maximum number of bytes that one HTTP/2 stream buffers for a peer that does not read.
const MAX_SEND_BUFFER: usize = 128 * 1024;

/// How long a connection that has received no request stays open after the listener stops, because its first request
/// may be on its way.
const HEARING: Duration = Duration::from_millis(250);

/// How long a connection without an open request may take to close after its graceful shutdown begins.
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
/// hyper calls a service through `&self`, but `inner` needs `&mut self`, hence the lock. It belongs to one connection
/// and is never held across an await. Cloning `inner` for each request would instead change reference counts that all
/// connections share.
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
            // hyper's time-out includes idle time, for which `Activity` has a separate time-out.
            .header_read_timeout(None)
            // Flushing pipelined answers together would delay them for as long as further requests arrive.
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
                        // A connection in its handshake has no request to answer.
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
                    // Waits until all open requests are answered, including those that were on their way. Cuts off a
                    // peer that keeps sending requests.
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
                    // `changed` returns an error when the listener drops the sender, which never sends a value.
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

/// Wraps a future so that it is polled only when it is woken, not each time its connection makes progress. The future
/// is exempt from tokio's cooperative budget, because a peer that floods the connection could use up that budget.
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
            // Tells a client with a connection pool not to reuse the connection, which closes after this answer.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody::new(body, in_flight))))
    }
}

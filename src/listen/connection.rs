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

/// Room for a request's head, per connection; no client of ours needs half of it.
const MAX_HEAD: u32 = 64 * 1024;

/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// What one HTTP/2 stream may hold ready for a peer that does not take it.
const MAX_SEND_BUFFER: usize = 128 * 1024;

/// Whoever has connected and asked nothing when all is to end may just be asking: so long they are heard.
const HEARING: Duration = Duration::from_millis(250);

/// How long a peer that has no open request may take to close its side, once the connection is to finish.
const FINISHING: Duration = Duration::from_secs(1);

/// What all connections of a listener share.
#[derive(Clone)]
pub(super) struct Connections {
    http: Arc<auto::Builder<TokioExecutor>>,
    config: Arc<Config>,
    tls: Option<Tls>,
    metrics: Metrics,
    /// Changes when connections are no longer accepted.
    stopping: watch::Receiver<bool>,
    /// Closed when connections are no longer served.
    open: watch::Receiver<()>,
}

/// Counts requests on their way through `inner`.
///
/// hyper calls through a shared reference; a clone of the service for each request would count up and down what
/// every layer shares. The lock is one connection's own, and nobody waits while holding it.
struct CountedService<S> {
    inner: Mutex<S>,
    activity: Arc<Activity>,
    /// Unknown if it was gone before it was served.
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
            // hyper counts idleness into this time; `Activity` tells the two apart.
            .header_read_timeout(None)
            // Would hold answers back while more requests are there to be read, without a bound.
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
                        // No request of its can have been read yet.
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
                    // Open requests are answered, and those that were on their way. A peer that goes on asking is cut off.
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
                    // Nothing is ever sent: it changes by being closed.
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
                    None => debug!("connection cut off"),
                },
            }
        }
    }
}

/// Something that happens once, and is looked at only when it says that it has: not each time that its connection
/// does anything. However busy that is: a peer that floods it must not use up the time to find that out.
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
        let in_flight = this.in_flight.take().expect("a future is not polled after it is ready");
        if response.extensions().get::<Refused>().is_some() {
            in_flight.refused();
        }
        // A page that loads an answer as a script or a style sheet gets nothing out of it.
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if in_flight.ends_connection() {
            // The connection ends with this answer, and a client with many must not ask on it again.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody::new(body, in_flight))))
    }
}

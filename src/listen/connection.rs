//! Serves one connection.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, TryFutureExt, stream::FuturesUnordered};
use http::{HeaderValue, Request, Response, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    task::coop::{Unconstrained, unconstrained},
    time,
};
use tracing::debug;

use super::{
    Config, HttpService, Metrics, Refused, RequestBody, Tls,
    activity::{RequestGuard, WatchedBody},
    handshake::secure,
    slots::Slot,
    socket::Watched,
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
    stopping: Stopping,
}

/// Changes when the listener stops accepting connections, and closes when it stops serving them.
type Stopping = watch::Receiver<bool>;

/// A connection, plain or over TLS.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<IO: AsyncRead + AsyncWrite + Send> Stream for IO {}

// === impl Connections ===

impl Connections {
    pub(super) fn new(config: Config, tls: Option<Tls>, metrics: Metrics, stopping: Stopping) -> Self {
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
        Self { http: Arc::new(http), config: Arc::new(config), tls, metrics, stopping }
    }

    pub(super) fn serve<S: HttpService>(
        &self,
        stream: TcpStream,
        service: S,
        slot: Slot,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let this = self.clone();
        async move {
            let activity = &slot.activity;
            // hyper calls a service through `&self`, but `service` needs `&mut self`, hence the lock. It belongs to one
            // connection and is never held across an await. Cloning `service` for each request would instead change
            // reference counts that all connections share.
            let service = Mutex::new(service);
            let service = service_fn(|request: Request<Incoming>| {
                let in_flight = activity.begin_request(request.version());
                let request = request.map(|body| RequestBody::new(body, activity.clone(), slot.peer));
                let answered = service.lock().call(request);
                // The service checks the key when it is called.
                slot.count_request();
                answered.map_ok(|response| finish_head(response, in_flight))
            });
            let served = async {
                let mut stopping = this.stopping.clone();
                let stream: Pin<Box<dyn Stream>> = match &this.tls {
                    None => Box::pin(Watched::new(stream, activity.clone())),
                    Some(tls) => tokio::select! {
                        secured = secure(stream, activity.clone(), tls, &this.metrics) => Box::pin(secured?),
                        // A connection in its handshake has no request to answer.
                        _ = stopping.changed() => return None,
                    },
                };
                let mut connection = pin!(this.http.serve_connection(TokioIo::new(stream), service));
                let mut stop = seldom_polled(async {
                    tokio::select! {
                        _ = stopping.changed() => {
                            if activity.is_new() {
                                time::sleep(HEARING).await;
                            }
                            true
                        }
                        () = activity.finish.notified() => false,
                    }
                });
                let is_stopping = tokio::select! {
                    biased;
                    ended = connection.as_mut() => return ended.err(),
                    is_stopping = stop.next() => is_stopping == Some(true),
                };
                connection.as_mut().graceful_shutdown();
                if !is_stopping {
                    let mut requests = None;
                    // Waits until all open requests are answered, including those that were on their way. Cuts off a
                    // peer that keeps sending requests.
                    while time::timeout(FINISHING, connection.as_mut()).await.is_err()
                        && activity.is_answering()
                        && *requests.get_or_insert(activity.requests()) == activity.requests()
                    {
                    }
                    return None;
                }
                connection.await.err()
            };
            let mut stopped = this.stopping.clone();
            let mut ended = seldom_polled(async {
                tokio::select! {
                    reason = activity.expired(&this.config) => {
                        debug!(reason = reason.as_str(), "connection closed");
                        this.metrics.closed(reason);
                    }
                    () = activity.cut_off.notified() => debug!("connection displaced"),
                    // Resolves with an error when the listener drops the sender.
                    _ = stopped.wait_for(|_| false) => debug!("connection cut off: the listener has stopped"),
                }
            });
            tokio::select! {
                biased;
                error = served => {
                    if let Some(error) = error {
                        debug!(error, "connection ended");
                    }
                }
                _ = ended.next() => {}
            }
        }
    }
}

/// Wraps a future so that it is polled only when it is woken, not each time its connection makes progress. The future
/// is exempt from tokio's cooperative budget, because a peer that floods the connection could use up that budget.
fn seldom_polled<F: Future>(future: F) -> FuturesUnordered<Unconstrained<F>> {
    std::iter::once(unconstrained(future)).collect()
}

/// Completes the head of a response.
fn finish_head<B>(mut response: Response<B>, in_flight: RequestGuard) -> Response<WatchedBody<B>> {
    let is_refused = response.extensions().get::<Refused>().is_some();
    // Keeps web pages from loading an answer as a script or a style sheet.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if in_flight.ends_connection(is_refused) {
        // Tells a client with a connection pool not to reuse the connection, which closes after this answer.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|body| WatchedBody::new(body, in_flight))
}

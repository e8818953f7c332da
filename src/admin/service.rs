//! The routes of the admin listener.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Either},
};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use prometheus_client::registry::Registry;
use tower::Service;

use super::{
    body::Body,
    events::{self, Events},
    guard::{Guard, WriteRefusal},
    operate::Operator,
    page,
    report::Report,
    response::{plain, typed},
};
use crate::http::HostCheck;

/// Answers the admin routes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    report: Arc<dyn Report>,
    registry: Arc<Registry>,
    hosts: HostCheck,
    events: Events,
    operator: Operator,
    guard: Guard,
}

/// The future of a response, which is ready at once for most routes.
type Answering =
    Either<Ready<Result<Response<Body>, Infallible>>, BoxFuture<'static, Result<Response<Body>, Infallible>>>;

const ROUTES: &str = "\
/         the status page
/live     200 while the process runs
/ready    200 while calls can be answered, degraded if every endpoint refuses calls; else 503 and the reason
/status   the status report as JSON
/events   the status report each second, as server-sent events
/metrics  metrics for Prometheus
/lookup   cached entries of a block or a transaction: /lookup?q=HASH or NUMBER

with POST, not from other web pages, and with the admin token if one is required:
/purge    removes a block or a transaction from the cache: /purge?q=HASH
";

// === impl Admin ===

impl Admin {
    /// Creates the service. Serves `report`, the metrics of `registry`, `events` and look-ups of `operator` to requests for
    /// one of `hosts`. If `guard` allows a request, it may also purge.
    pub fn new(
        report: Arc<dyn Report>,
        registry: Registry,
        hosts: HostCheck,
        events: Events,
        operator: Operator,
        guard: Guard,
    ) -> Self {
        Self { report, registry: Arc::new(registry), hosts, events, operator, guard }
    }

    fn answer<B>(&self, request: &Request<B>) -> Answering {
        if let Err(refusal) = self.hosts.check(request) {
            return at_once(plain(StatusCode::FORBIDDEN, format!("{refusal}\n")));
        }
        let query = || request.uri().query().unwrap_or_default().to_owned();
        let operator = self.operator.clone();
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/lookup") => later(operator.look_up(query())),
            (&Method::POST, "/purge") => match self.guard.check(request) {
                Err(refusal) => at_once(refused(refusal)),
                Ok(()) => later(operator.purge(query())),
            },
            (_, "/purge") => {
                at_once(wrong_method("POST", "/purge changes the cache; send it with POST\n".to_owned()))
            }
            _ => at_once(self.read(request)),
        }
    }

    fn read<B>(&self, request: &Request<B>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return wrong_method("GET, HEAD", "send this request with GET\n".to_owned());
        }
        match request.uri().path() {
            "/live" => plain(StatusCode::OK, "live\n".to_owned()),
            "/ready" => match self.report.ready() {
                Ok(None) => plain(StatusCode::OK, "ready\n".to_owned()),
                Ok(Some(reason)) => plain(StatusCode::OK, format!("degraded: {reason}\n")),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            },
            "/status" => typed(StatusCode::OK, "application/json", format!("{:#}\n", self.report.status())),
            "/metrics" => self.metrics(),
            "/events" => self.events(request.method()),
            path => page::asset(path).unwrap_or_else(|| {
                plain(StatusCode::NOT_FOUND, format!("not found; the routes are:\n\n{ROUTES}"))
            }),
        }
    }

    fn events(&self, method: &Method) -> Response<Body> {
        // A HEAD request opens no stream.
        let body = if *method == Method::HEAD { Some(String::new().into()) } else { self.events.listen() };
        let Some(body) = body else {
            let most = events::MOST_STREAMS;
            let text =
                format!("{most} streams of events are open, which is the limit; close a status page\n");
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        typed(StatusCode::OK, "text/event-stream", body)
    }

    fn metrics(&self) -> Response<Body> {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => {
                typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
            }
            Err(error) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write metrics: {error}\n"))
            }
        }
    }
}

fn at_once(response: Response<Body>) -> Answering {
    Either::Left(ready(Ok(response)))
}

fn later(answering: impl Future<Output = Response<Body>> + Send + 'static) -> Answering {
    Either::Right(answering.map(Ok).boxed())
}

fn wrong_method(allowed: &'static str, text: String) -> Response<Body> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, text);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

fn refused(refusal: WriteRefusal) -> Response<Body> {
    let mut response = plain(refusal.status(), format!("{refusal}\n"));
    if refusal.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

impl<B> Service<Request<B>> for Admin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.answer(&request)
    }
}

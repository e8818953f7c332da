//! The admin listener: is it alive, is it ready, what does it count, what does it know.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use prometheus_client::registry::Registry;
use tower::Service;

use crate::http::HostCheck;

/// What the program tells of itself.
pub trait Report: Send + Sync + 'static {
    /// Can it answer calls?
    ///
    /// # Errors
    /// If not: why, in a line for people.
    fn ready(&self) -> Result<(), String>;

    /// All there is to know, for people and programs.
    fn status(&self) -> serde_json::Value;
}

/// Answers the admin routes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    report: Arc<dyn Report>,
    registry: Arc<Registry>,
    hosts: HostCheck,
}

const ROUTES: &str = "\
/live     200 while the process runs
/ready    200 while calls can be answered, else 503 and the reason
/status   what is known, as JSON
/metrics  what is counted, for Prometheus
";

// === impl Admin ===

impl Admin {
    /// Tells of `report` and counts from `registry`, to those who ask for one of `hosts`.
    pub fn new(report: Arc<dyn Report>, registry: Registry, hosts: HostCheck) -> Self {
        Self { report, registry: Arc::new(registry), hosts }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if let Err(refusal) = self.hosts.check(request) {
            return plain(StatusCode::FORBIDDEN, format!("{refusal}\n"));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".to_owned());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/" => plain(StatusCode::OK, format!("holdfast {}\n\n{ROUTES}", env!("CARGO_PKG_VERSION"))),
            "/live" => plain(StatusCode::OK, "live\n".to_owned()),
            "/ready" => match self.report.ready() {
                Ok(()) => plain(StatusCode::OK, "ready\n".to_owned()),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            },
            "/status" => typed(StatusCode::OK, "application/json", format!("{:#}\n", self.report.status())),
            "/metrics" => self.metrics(),
            _ => plain(StatusCode::NOT_FOUND, format!("there is nothing here; what there is:\n\n{ROUTES}")),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
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

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", text)
}

fn typed(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What a probe or a person sees must be now.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<B> Service<Request<B>> for Admin {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

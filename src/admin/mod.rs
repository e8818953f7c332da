//! The admin listener: is it alive, is it ready, what does it count, what does it know; and a page that shows it.

mod body;
mod events;
mod history;
mod page;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use prometheus_client::registry::Registry;
use tower::Service;

pub use self::{
    body::Body,
    events::{Clockwork, Events},
    history::{Counts, History},
};
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

    /// What has been counted, for the history. Taken every other second, whether anybody looks or not.
    fn counts(&self) -> Counts;
}

/// Answers the admin routes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    report: Arc<dyn Report>,
    registry: Arc<Registry>,
    hosts: HostCheck,
    events: Events,
}

const ROUTES: &str = "\
/         a page that shows how it goes
/live     200 while the process runs
/ready    200 while calls can be answered, else 503 and the reason
/status   what is known, as JSON
/events   the same each second, as server-sent events
/metrics  what is counted, for Prometheus
";

// === impl Admin ===

impl Admin {
    /// Tells of `report`, counts from `registry` and hands out `events`, to those who ask for one of `hosts`.
    pub fn new(report: Arc<dyn Report>, registry: Registry, hosts: HostCheck, events: Events) -> Self {
        Self { report, registry: Arc::new(registry), hosts, events }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        if let Err(refusal) = self.hosts.check(request) {
            return plain(StatusCode::FORBIDDEN, format!("{refusal}\n"));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".to_owned());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/live" => plain(StatusCode::OK, "live\n".to_owned()),
            "/ready" => match self.report.ready() {
                Ok(()) => plain(StatusCode::OK, "ready\n".to_owned()),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            },
            "/status" => typed(StatusCode::OK, "application/json", format!("{:#}\n", self.report.status())),
            "/metrics" => self.metrics(),
            "/events" => self.events(request.method()),
            path => page::asset(path).unwrap_or_else(|| {
                plain(StatusCode::NOT_FOUND, format!("there is nothing here; what there is:\n\n{ROUTES}"))
            }),
        }
    }

    fn events(&self, method: &Method) -> Response<Body> {
        // Whoever asks for the head alone takes no place.
        let body = if *method == Method::HEAD { Some(String::new().into()) } else { self.events.listen() };
        let Some(body) = body else {
            let most = events::MOST_STREAMS;
            let text = format!("{most} streams of events are open, and there are no more; close a page\n");
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

fn plain(status: StatusCode, text: String) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", text)
}

fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What a probe or a person sees must be now.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<B> Service<Request<B>> for Admin {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

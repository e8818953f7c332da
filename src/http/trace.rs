//! Request ids, trace contexts and spans of requests.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{Level, Span, debug, debug_span, field, span_enabled};

use crate::{
    context::{CallContext, InContext},
    display::seconds,
    trace::{TRACEPARENT, TraceContext, span},
};

/// Header with the client's id for a request. The response repeats the id.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts a [`Trace`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceLayer;

/// Copies request ids to responses, runs each request within its client's trace, and logs requests and their status at
/// debug level. It does not log paths, which may contain keys. If a request has no id and no trace, and debug spans are
/// disabled, this layer only forwards the request.
#[derive(Clone, Debug)]
pub(super) struct Trace<S>(S);

pin_project! {
    /// Runs a request within its span and its trace, and copies its id to the response.
    pub(super) struct Traced<F> {
        #[pin]
        inner: InContext<F>,
        span: Span,
        begun: Instant,
        id: Option<HeaderValue>,
    }
}

/// The headers that this layer uses, found in one pass.
#[derive(Default)]
struct TraceHeaders<'a> {
    id: Option<&'a HeaderValue>,
    /// Whether the request has a `traceparent`.
    is_traced: bool,
}

/// Length of the longest method or request id that a span contains. It is limited because clients choose these texts,
/// and spans stay in memory until they are exported.
const LONGEST_LOGGED: usize = 128;

/// Returns the text, or a placeholder if it is too long.
fn shortened(chosen: &str) -> &str {
    if chosen.len() <= LONGEST_LOGGED { chosen } else { "(long)" }
}

// === impl TraceLayer ===

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace(inner)
    }
}

// === impl Trace ===

impl<S, A, B> Service<Request<A>> for Trace<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    // The traced future is boxed, because few requests are traced.
    type Future = Either<S::Future, Pin<Box<Traced<S::Future>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let TraceHeaders { id, is_traced } = TraceHeaders::of(request.headers());
        if id.is_none() && !is_traced && !span_enabled!(Level::DEBUG) {
            return Either::Left(self.0.call(request));
        }
        let (id, context) = (id.cloned(), TraceContext::read(request.headers()));
        let span = debug_span!(
            "request",
            method = %shortened(request.method().as_str()),
            version = ?request.version(),
            id = id.as_ref().and_then(|id| id.to_str().ok()).map(shortened),
            trace = context.as_ref().map(TraceContext::trace_id),
            status = field::Empty,
        );
        if let Some(context) = &context {
            span::join(&span, context);
        }
        let begun = Instant::now();
        let context = CallContext { trace: context, ..CallContext::default() };
        let inner = context.scope(span.in_scope(|| self.0.call(request)));
        Either::Right(Box::pin(Traced { inner, span, begun, id }))
    }
}

// === impl Traced ===

impl<F, B, E> Future for Traced<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let inside = this.span.enter();
        let mut response = ready!(this.inner.poll(cx))?;
        if let Some(id) = this.id.take() {
            response.headers_mut().entry(REQUEST_ID).or_insert(id);
        }
        let status = response.status().as_u16();
        debug!(status, elapsed_seconds = seconds(this.begun.elapsed()), "request answered");
        drop(inside);
        this.span.record("status", status);
        span::end(this.span);
        Poll::Ready(Ok(response))
    }
}

// === impl TraceHeaders ===

impl<'a> TraceHeaders<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut named = Self::default();
        for (name, value) in headers {
            if name == REQUEST_ID {
                // If there are several such headers, the first one is used.
                named.id.get_or_insert(value);
            } else if name == TRACEPARENT {
                named.is_traced = true;
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_id_is_not_logged() {
        let id = "x".repeat(LONGEST_LOGGED);
        assert_eq!(shortened(&id), id);
        assert_eq!(shortened(&format!("{id}x")), "(long)");
    }
}

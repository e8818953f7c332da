//! Requests that can be told from others: by the id they came with, and by a span where anybody looks at them.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{Level, Span, debug, debug_span, enabled};

use super::find;

/// Comes back as it came.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts a [`Trace`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceLayer;

/// Brings back the id of requests that have one, and says at the level of debug what requests come and what becomes
/// of them: no paths, which may hold keys. Costs nothing where there is neither.
#[derive(Clone, Debug)]
pub(super) struct Trace<S>(S);

pin_project! {
    /// Runs inside its span, and brings the id back.
    pub(super) struct Traced<F> {
        #[pin]
        inner: F,
        span: Span,
        begun: Instant,
        id: Option<HeaderValue>,
    }
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
    // On the heap, as few requests are looked at.
    type Future = Either<S::Future, Pin<Box<Traced<S::Future>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let id = find::first(request.headers(), &REQUEST_ID).cloned();
        if id.is_none() && !enabled!(Level::DEBUG) {
            return Either::Left(self.0.call(request));
        }
        let shown = id.as_ref().and_then(|id| id.to_str().ok());
        let span =
            debug_span!("request", method = %request.method(), version = ?request.version(), id = shown);
        let begun = Instant::now();
        let inner = span.in_scope(|| self.0.call(request));
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
        let _inside = this.span.enter();
        let mut response = ready!(this.inner.poll(cx))?;
        if let Some(id) = this.id.take() {
            response.headers_mut().entry(REQUEST_ID).or_insert(id);
        }
        debug!(status = response.status().as_u16(), elapsed = ?this.begun.elapsed(), "request answered");
        Poll::Ready(Ok(response))
    }
}

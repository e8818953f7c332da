//! A span around each request, where anybody looks at them.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{Level, Span, debug, debug_span, enabled};

use super::stack::REQUEST_ID;

/// Puts a [`Trace`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceLayer;

/// Says at the level of debug what requests come and what becomes of them; costs nothing where that is not logged.
/// Says no paths: they may hold keys.
#[derive(Clone, Debug)]
pub(super) struct Trace<S>(S);

pin_project! {
    /// Runs inside its span.
    pub(super) struct Traced<F> {
        #[pin]
        inner: F,
        span: Span,
        begun: Instant,
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
    type Future = Either<S::Future, Traced<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if !enabled!(Level::DEBUG) {
            return Either::Left(self.0.call(request));
        }
        let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let span = debug_span!("request", method = %request.method(), version = ?request.version(), id);
        let begun = Instant::now();
        let inner = span.in_scope(|| self.0.call(request));
        Either::Right(Traced { inner, span, begun })
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
        let response = ready!(this.inner.poll(cx))?;
        debug!(status = response.status().as_u16(), elapsed = ?this.begun.elapsed(), "answered");
        Poll::Ready(Ok(response))
    }
}

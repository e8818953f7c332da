//! Counts and times every call, logs it at debug level, and gives each call its own tracing span.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{Span, debug, debug_span, field};

use crate::{
    display::seconds,
    eth::MethodLabel,
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            request::Request,
            result::CallResult,
        },
        error::CallError,
        metrics::Metrics,
    },
    trace,
};

/// Puts a [`Measured`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct MeasureLayer(pub(crate) Metrics);

/// Records the duration and the result of each call.
#[derive(Clone, Debug)]
pub(crate) struct Measured<S> {
    inner: S,
    metrics: Metrics,
}

pin_project! {
    /// Resolves with the result of the call and records it.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        method: MethodLabel,
        begun: Instant,
        // Whether any poll was pending. A hit from memory is ready at the first poll.
        waited: bool,
        metrics: Metrics,
        // Span of the call; disabled unless a tracing subscriber records it.
        span: Span,
    }
}

// === impl MeasureLayer ===

impl<S> Layer<S> for MeasureLayer {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        Measured { inner, metrics: self.0.clone() }
    }
}

// === impl Measured ===

impl<S> Service<Request> for Measured<S>
where
    S: Service<Request, Response = Answered, Error = CallError>,
{
    type Response = Answered;
    type Error = CallError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let method = request.call().label;
        let begun = Instant::now();
        let span = debug_span!("call", method = method.as_str(), outcome = field::Empty);
        let inner = span.in_scope(|| self.inner.call(request));
        ResponseFuture { inner, method, begun, waited: false, metrics: self.metrics.clone(), span }
    }
}

// === impl ResponseFuture ===

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Answered, CallError>>,
{
    type Output = Result<Answered, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let inside = this.span.enter();
        let Poll::Ready(answered) = this.inner.poll(cx) else {
            *this.waited = true;
            return Poll::Pending;
        };
        let counted = CallResult::of(&answered);
        let elapsed = this.begun.elapsed();
        this.metrics.call_ended(*this.method, counted, *this.waited, elapsed);
        if let Ok(Answered { answer: Answer::Result(result), outcome, .. }) = &answered {
            if outcome.is_from_memory() {
                this.metrics.recalled(result.len());
            }
            if let Outcome::Logs(source, proof) | Outcome::Stale { logs: Some((source, proof)), .. } =
                *outcome
            {
                this.metrics.logs_found(source, proof);
            }
        }
        debug!(
            method = this.method.as_str(),
            outcome = counted.as_str(),
            elapsed_seconds = seconds(elapsed),
            "call"
        );
        drop(inside);
        if !this.span.is_disabled() {
            this.span.record("outcome", counted.as_str());
        }
        trace::span::end(this.span);
        Poll::Ready(answered)
    }
}

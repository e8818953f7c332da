//! Counts, times and (at debug) logs every call.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::debug;

use super::{Answered, CallError, Outcome, Request, method::MethodLabel};
use crate::jsonrpc::Answer;

/// What came of a call, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Answered(Outcome),
    /// Answered with the node's own error object.
    NodeError,
    /// Not allowed, or asked wrongly: the client's to mend.
    Refused,
    /// No answer could be had.
    Failed,
}

/// The counters of calls. A default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: Family<Labels, Counter>,
    /// `calls`, by method and outcome, found without a lock.
    by_method: Vec<[Counter; Counted::ALL.len()]>,
    seconds: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    outcome: &'static str,
}

/// Puts a [`Measured`] around a service.
#[derive(Clone, Debug)]
pub(super) struct MeasureLayer(pub(super) Metrics);

/// Notes when a call begins and what comes of it.
#[derive(Clone, Debug)]
pub(super) struct Measured<S> {
    inner: S,
    metrics: Metrics,
}

pin_project! {
    /// Resolves as the call does, and notes it.
    pub(super) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        method: MethodLabel,
        begun: Instant,
        metrics: Metrics,
    }
}

// === impl Counted ===

impl Counted {
    const ALL: [Self; 5] = [
        Self::Answered(Outcome::Local),
        Self::Answered(Outcome::Forwarded),
        Self::NodeError,
        Self::Refused,
        Self::Failed,
    ];

    fn of(answered: &Result<Answered, CallError>) -> Self {
        match answered {
            Ok(Answered { answer: Answer::Result(_), outcome }) => Self::Answered(*outcome),
            Ok(Answered { answer: Answer::Error(_), .. }) => Self::NodeError,
            Err(
                CallError::MethodNotAllowed { .. }
                | CallError::OriginNotTrusted { .. }
                | CallError::Params(_),
            ) => Self::Refused,
            Err(CallError::Stranger(_) | CallError::Upstream(_) | CallError::Deadline { .. }) => Self::Failed,
        }
    }

    fn index(self) -> usize {
        Self::ALL.iter().position(|counted| *counted == self).unwrap_or(Self::ALL.len() - 1)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Answered(outcome) => outcome.as_str(),
            Self::NodeError => "node_error",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

// === impl Inner ===

impl Default for Inner {
    fn default() -> Self {
        let calls = Family::<Labels, Counter>::default();
        let by_method = MethodLabel::all()
            .map(|method| {
                Counted::ALL
                    .map(|counted| calls.get_or_create_owned(&Labels { method, outcome: counted.as_str() }))
            })
            .collect();
        // 16 µs to 34 s: an answer from memory to the deadline of a call.
        let seconds = Histogram::new(exponential_buckets(0.000_016, 2.0, 22));
        Self { calls, by_method, seconds }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `calls_total{method,outcome}` and `call_seconds`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register(
            "calls",
            "Calls of clients, by method and by what came of them",
            inner.calls.clone(),
        );
        registry.register("call_seconds", "Time a call took, whatever came of it", inner.seconds.clone());
        Self(Arc::new(inner))
    }

    /// How many calls there have been.
    pub fn calls(&self) -> u64 {
        self.0.by_method.iter().flatten().map(Counter::get).sum()
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
        let method = MethodLabel::of(request.call.method.as_str());
        let begun = Instant::now();
        ResponseFuture { inner: self.inner.call(request), method, begun, metrics: self.metrics.clone() }
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
        let answered = ready!(this.inner.poll(cx));
        let counted = Counted::of(&answered);
        let elapsed = this.begun.elapsed();
        this.metrics.0.by_method[this.method.index()][counted.index()].inc();
        this.metrics.0.seconds.observe(elapsed.as_secs_f64());
        debug!(method = this.method.as_str(), outcome = counted.as_str(), ?elapsed, "call");
        Poll::Ready(answered)
    }
}

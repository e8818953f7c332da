//! Limits the total time of a call.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use crate::{
    proxy::error::CallError,
    timeout::{Timeout, timeout},
};

/// Deadline of calls, and the signal that ends all calls at shutdown. Clones share both.
#[derive(Clone, Debug)]
pub(crate) struct Limit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    after: ArcSwap<Duration>,
    /// Semaphore without permits. Closing it ends all waiting calls.
    end: Semaphore,
}

/// Puts a [`Deadline`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct DeadlineLayer(pub(crate) Limit);

/// Fails a call at its deadline, or when the proxy shuts down.
#[derive(Clone, Debug)]
pub(crate) struct Deadline<S> {
    inner: S,
    limit: Limit,
}

pin_project! {
    /// Resolves with the answer, [`CallError::Deadline`] or [`CallError::Stopping`], whichever comes first.
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        inner: Timeout<F>,
        after: Duration,
        limit: Limit,
        // Allocated only if the call has to wait.
        end: Option<BoxFuture<'static, ()>>,
    }
}

// === impl Limit ===

impl Limit {
    pub(crate) fn new(after: Duration) -> Self {
        Self(Arc::new(Inner { after: ArcSwap::from_pointee(after), end: Semaphore::new(0) }))
    }

    /// Sets the deadline of later calls.
    pub(crate) fn set(&self, after: Duration) {
        self.0.after.store(Arc::new(after));
    }

    /// Returns the deadline of calls.
    pub(super) fn after(&self) -> Duration {
        **self.0.after.load()
    }

    /// Returns `work` with the deadline of a call.
    pub(super) fn within<F: Future>(&self, work: F) -> ResponseFuture<F> {
        let after = self.after();
        ResponseFuture { inner: timeout(after, work), after, limit: self.clone(), end: None }
    }

    /// Ends all waiting calls; later calls fail instead of waiting.
    pub(crate) fn end(&self) {
        self.0.end.close();
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        let inner = self.0.clone();
        Box::pin(async move {
            let _ = inner.end.acquire().await;
        })
    }
}

// === impl DeadlineLayer ===

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, limit: self.0.clone() }
    }
}

// === impl Deadline ===

impl<S, R> Service<R> for Deadline<S>
where
    S: Service<R, Error = CallError>,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.limit.within(self.inner.call(request))
    }
}

// === impl ResponseFuture ===

impl<F, T> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, CallError>>,
{
    type Output = Result<T, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answered) = this.inner.poll(cx) {
            let after = *this.after;
            return Poll::Ready(answered.unwrap_or(Err(CallError::Deadline { after })));
        }
        ready!(this.end.get_or_insert_with(|| this.limit.ended()).as_mut().poll(cx));
        Poll::Ready(Err(CallError::Stopping))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;
    use tokio_test_free::poll_once;
    use tower_test::mock;

    use super::*;

    /// Polls a future once.
    mod tokio_test_free {
        use std::{future::Future, pin::pin};

        pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
            tokio::time::timeout(std::time::Duration::ZERO, pin!(future)).await.ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_call_ends_at_its_deadline() {
        let (service, mut handle) = mock::pair::<(), ()>();
        let service = tower::ServiceExt::map_err(service, |error| panic!("the mock failed: {error}"));
        let limit = Limit::new(Duration::from_secs(30));
        let mut service = DeadlineLayer(limit.clone()).layer(service);
        handle.allow(4);

        let begun = time::Instant::now();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let error = service.call(()).await.unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }));
        assert_eq!(begun.elapsed(), Duration::from_secs(30));

        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let mut answered = Box::pin(service.call(()));
        assert!(poll_once(&mut answered).await.is_none());
        let _gave_up = handle.next_request().await;
        let (_, respond) = handle.next_request().await.unwrap();
        respond.send_response(());
        assert!(answered.await.is_ok());

        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let mut waits = Box::pin(service.call(()));
        assert!(poll_once(&mut waits).await.is_none());
        limit.end();
        assert!(matches!(waits.await, Err(CallError::Stopping)));
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        assert!(matches!(service.call(()).await, Err(CallError::Stopping)));
    }
}

//! Bounds the time of a call, whatever it waits for.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::CallError;
use crate::timeout::{Timeout, timeout};

/// Puts a [`Deadline`] around a service.
#[derive(Clone, Debug)]
pub(super) struct DeadlineLayer(pub(super) Arc<ArcSwap<Duration>>);

/// Gives up on a call after a time.
#[derive(Clone, Debug)]
pub(super) struct Deadline<S> {
    inner: S,
    after: Arc<ArcSwap<Duration>>,
}

pin_project! {
    /// Resolves with the answer or with [`CallError::Deadline`], whichever is first.
    pub(super) struct ResponseFuture<F> {
        #[pin]
        inner: Timeout<F>,
        after: Duration,
    }
}

// === impl DeadlineLayer ===

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, after: self.0.clone() }
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
        let after = **self.after.load();
        ResponseFuture { inner: timeout(after, self.inner.call(request)), after }
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
        Poll::Ready(ready!(this.inner.poll(cx)).unwrap_or(Err(CallError::Deadline { after: *this.after })))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;
    use tokio_test_free::poll_once;
    use tower_test::mock;

    use super::*;

    /// A future polled once, without a test executor of its own.
    mod tokio_test_free {
        use std::{future::Future, pin::pin};

        pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
            tokio::time::timeout(std::time::Duration::ZERO, pin!(future)).await.ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_ends_at_its_deadline() {
        let (service, mut handle) = mock::pair::<(), ()>();
        let service = tower::ServiceExt::map_err(service, |error| panic!("the mock failed: {error}"));
        let mut service =
            DeadlineLayer(Arc::new(ArcSwap::from_pointee(Duration::from_secs(30)))).layer(service);
        handle.allow(2);

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
    }
}
